"""Values made of values: arrays, JSON, ranges. Pure.

Arrays and JSON are flattened to `(kind, tokens, numbers)`: where the numbers stand is part of the hashable tokens, so
that tolerance can reach the numbers themselves. Flat, because tuples nested as deep as hostile JSON break comparing.
A range's bounds are exact: `[1,2)` and `[1,2.004)` are other ranges.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

Value = None | Decimal | str | tuple[Any, ...]
Decoder = Callable[[str], Value]

ARRAY, JSON = "array", "json"

_NUMBER, _OPEN, _CLOSE = ("number here",), ("open",), ("close",)
"""Tokens; tuples, so that no text equals them."""

ArrayItem = str | None | list["ArrayItem"]

_ARRAY_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([{},])|([^{},"]+)', re.DOTALL)
_RANGE_BOUND = re.compile(r'"((?:[^"\\]|\\.|"")*)"|([^,\[\]()"]*)', re.DOTALL)
_RANGE = re.compile(r'[\[(](?:"(?:[^"\\]|\\.|"")*"|[^"\])])*[\])]', re.DOTALL)


def is_nested(value: Value) -> bool:
    """Whether a value is an array or JSON."""
    return isinstance(value, tuple) and value[0] in (ARRAY, JSON)


def array_items(raw: str) -> list[ArrayItem]:
    """`{1,NULL,"a,b"}`, nested, with or without dimensions in front, as lists of the elements' texts."""
    body = raw[raw.index("={") + 1 :] if raw.startswith("[") else raw
    stack: list[list[ArrayItem]] = [[]]
    for quoted, mark, bare in _ARRAY_TOKEN.findall(body):
        if mark == "{":
            stack.append([])
        elif mark == "}":
            finished = stack.pop()
            stack[-1].append(finished)
        elif bare == "NULL":
            stack[-1].append(None)
        elif mark != ",":
            stack[-1].append(bare or re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
    (whole,) = stack[0]
    return whole if isinstance(whole, list) else [whole]


def array(raw: str, element: Decoder) -> Value:
    """Elements by value, in their order."""
    tokens: list[Value] = []
    numbers: list[Decimal] = []
    _put_array(array_items(raw), element, tokens, numbers)
    return (ARRAY, tuple(tokens), tuple(numbers))


def _put_array(items: list[ArrayItem], element: Decoder, tokens: list[Value], numbers: list[Decimal]) -> None:
    """Recursion ends at Postgres' six dimensions."""
    tokens.append(_OPEN)
    for item in items:
        if isinstance(item, list):
            _put_array(item, element, tokens, numbers)
            continue
        value = None if item is None else element(item)
        if isinstance(value, Decimal):
            tokens.append(_NUMBER)
            numbers.append(value)
        elif isinstance(value, tuple) and is_nested(value):
            tokens.extend(value[1])
            numbers.extend(value[2])
        else:
            tokens.append(value)
    tokens.append(_CLOSE)


def json_value(raw: str, text: Decoder) -> Value:
    """Objects whatever their keys' order, numbers by value, strings by `text`."""
    try:
        loaded = json.loads(raw, parse_int=Decimal, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):  # beyond Python's parser or Decimal: compared as printed
        return (JSON, (("as printed", raw),), ())
    tokens: list[Value] = []
    numbers: list[Decimal] = []
    for token in _json_tokens(loaded):
        if isinstance(token, Decimal):
            tokens.append(_NUMBER)
            numbers.append(token)
        else:
            tokens.append(text(token) if isinstance(token, str) else token)
    return (JSON, tuple(tokens), tuple(numbers))


def _json_tokens(loaded: Any) -> Iterator[Value]:
    """Prefix notation: a container's size stands before its contents. Without recursion."""
    stack = [loaded]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield ("object", *sorted(item))
            stack.extend(item[key] for key in sorted(item, reverse=True))
        elif isinstance(item, list):
            yield ("list", len(item))
            stack.extend(reversed(item))
        else:
            yield ("bool", item) if isinstance(item, bool) else item


def range_value(raw: str, element: Decoder) -> Value:
    """`[1,10)`, `empty`, `("a b",]`: bracket kinds and bounds by value."""
    if raw == "empty":
        return ("range", "empty")
    lower = _RANGE_BOUND.match(raw, 1)
    upper = _RANGE_BOUND.match(raw, lower.end() + 1) if lower else None
    if lower is None or upper is None:
        return ("range", raw)
    return ("range", raw[0], _bound(lower, element), _bound(upper, element), raw[-1])


def _bound(found: re.Match[str], element: Decoder) -> Value:
    if found[1] is not None:
        return element(re.sub(r'\\(.)|"(")', r"\1\2", found[1], flags=re.DOTALL))
    return element(found[2]) if found[2] else None


def multirange(raw: str, element: Decoder) -> Value:
    """`{[1,2),[3,4)}`: its ranges by value."""
    return ("multirange", tuple(range_value(part, element) for part in _RANGE.findall(raw)))


def same_but_for_numbers(gold: Value, candidate: Value, close: Callable[[Decimal, Decimal], bool]) -> bool:
    """Whether two values are equal when numbers, alone or inside, only need to be close."""
    if isinstance(gold, Decimal) and isinstance(candidate, Decimal):
        return close(gold, candidate)
    if isinstance(gold, tuple) and isinstance(candidate, tuple) and is_nested(gold) and gold[:2] == candidate[:2]:
        return all(map(close, gold[2], candidate[2]))
    return gold == candidate
