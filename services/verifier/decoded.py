"""Rows that become values when someone looks at them: a result of another height is told apart without that. Pure."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from services.verifier.nested import Value
from services.verifier.values import decode_rows

Row = tuple[Value, ...]


class DecodedRows(Sequence[Row]):
    """Rows of Postgres' text as rows of values (profile `standard`)."""

    def __init__(self, texts: Sequence[tuple[str | None, ...]], oids: Sequence[int]) -> None:
        self._texts = texts
        self._oids = oids

    @cached_property
    def _values(self) -> list[Row]:
        return decode_rows(self._texts, self._oids)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._values[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DecodedRows) and self._oids == other._oids and self._texts == other._texts:
            return True
        return isinstance(other, Sequence) and self._values == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none
