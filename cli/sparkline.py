"""A series as one line of block characters, for a terminal."""

import statistics
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60
"""Characters; a longer series is averaged into so many parts."""


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """The series between `low` and `high` (its own extremes by default); empty for none."""
    if not values:
        return ""
    size = max(1, -(-len(values) // WIDTH))
    means = [statistics.fmean(values[start : start + size]) for start in range(0, len(values), size)]
    bottom = min(means) if low is None else low
    top = max(means) if high is None else high
    scale = (len(BLOCKS) - 1) / (top - bottom) if top > bottom else 0.0
    return "".join(BLOCKS[round(min(max(value - bottom, 0.0), top - bottom) * scale)] for value in means)
