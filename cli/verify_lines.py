"""JSON lines of replies to verify: each becomes an item, or a fault that says where it is and what to do. Pure."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from shared.contracts.verifier import VerifyItem
from shared.unicode import without_lone_surrogates

CALL_ITEMS = 512
CALL_CHARACTERS = 8_000_000
"""One call's share of a file: below the service's limits on items and bytes, above its cost."""


@dataclass(frozen=True)
class NumberedItem:
    """An item and the line it stands on, from 1."""

    line: int
    item: VerifyItem

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.item.item_id or str(self.line)


@dataclass(frozen=True)
class Fault:
    """A line that is no item."""

    line: int
    what: str
    """Field and message."""


def read_lines(lines: Iterable[bytes]) -> Iterator[NumberedItem | Fault]:
    """One of either for each line that is not blank."""
    first_with: dict[str, int] = {}
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        found = _read(number, raw)
        if isinstance(found, NumberedItem) and found.item.item_id is not None:
            first = first_with.setdefault(found.item.item_id, number)
            if first != number:
                found = Fault(number, f"item_id: {found.item.item_id!r} stands on line {first} already")
        yield found


def _read(number: int, raw: bytes) -> NumberedItem | Fault:
    try:
        value = without_lone_surrogates(json.loads(raw.decode()))
        return NumberedItem(number, VerifyItem.model_validate(value))
    except UnicodeDecodeError as error:
        return Fault(number, f"is not UTF-8: byte 0x{raw[error.start]:02x} at column {error.start + 1}")
    except json.JSONDecodeError as error:
        return Fault(number, f"is no JSON: {error.msg} at column {error.colno}")
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        fields = (".".join(str(part) for part in fault["loc"]) for fault in faults)
        return Fault(
            number, "; ".join(f"{field or 'line'}: {f['msg']}" for field, f in zip(fields, faults, strict=True))
        )
    except (RecursionError, ValueError) as error:  # nested too deeply; a number of thousands of digits
        return Fault(number, f"is no JSON that can be read: {error}")


def calls(items: Iterable[NumberedItem]) -> Iterator[list[NumberedItem]]:
    """The items in order, as many a call as fit."""
    call: list[NumberedItem] = []
    characters = 0
    for item in items:
        length = len(item.item.reply or item.item.sql or "")
        if call and (len(call) >= CALL_ITEMS or characters + length > CALL_CHARACTERS):
            yield call
            call, characters = [], 0
        call.append(item)
        characters += length
    if call:
        yield call
