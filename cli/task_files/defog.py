"""Rows of defog's golds: `;` separates acceptable queries, `{a, b}` in a select list is any non-empty choice of these
columns, an empty `{}` stands for the chosen ones again (in GROUP BY). Pure."""

import re
from itertools import combinations, product

from cli.task_files.rows import RawRow
from shared.contracts.tasks import ImportedTask

_OPTIONAL = re.compile(r"\{([^{}]*)\}")


def read_row(row: RawRow, database: str) -> ImportedTask | None:
    """None for a row of another database. What a row gives as instructions belongs to its question."""
    if row["db"] != database:
        return None
    parts = (row["question"].strip(), row.get("instructions", "").strip())
    return ImportedTask(
        question="\n".join(part for part in parts if part),
        golds=list(dict.fromkeys(query for text in row["gold"].split(";") if text.strip() for query in expanded(text))),
        style=row.get("category", ""),
    )


def expanded(text: str) -> list[str]:
    """Every query that a gold with optional columns stands for; the one with the fewest columns first."""
    choices = [
        [", ".join(chosen) for size in range(1, len(columns) + 1) for chosen in combinations(columns, size)]
        for columns in (_columns(group) for group in _OPTIONAL.findall(text))
        if columns
    ]
    return [_filled(text, list(chosen)) for chosen in product(*choices)]


def _columns(group: str) -> list[str]:
    return [column.strip() for column in group.split(",") if column.strip()]


def _filled(text: str, chosen: list[str]) -> str:
    named = iter(chosen)
    every = ", ".join(chosen)
    return _OPTIONAL.sub(lambda group: next(named) if group[1].strip() else every, text).strip()
