"""Text that encoders refuse: lone surrogates, as a model's broken bytes or a JSON escape can bring them."""

import re
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def without_lone_surrogates(value: Any) -> Any:
    """A JSON value with U+FFFD in their place, as decoders of model output write it. Raises RecursionError."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_lone_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(key): without_lone_surrogates(part) for key, part in value.items()}
    return value
