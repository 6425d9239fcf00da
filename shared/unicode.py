"""Text that encoders or Postgres refuse: lone surrogates and NUL, as a model's broken bytes can bring them."""

import re
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """Text as Postgres can hold it: a NUL, which a model may write, becomes U+FFFD."""
    return text.replace("\x00", "\ufffd")


def without_lone_surrogates(value: Any) -> Any:
    """A JSON value with U+FFFD in their place, as decoders of model output write it. Raises RecursionError."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_lone_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(key): without_lone_surrogates(part) for key, part in value.items()}
    return value
