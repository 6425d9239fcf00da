"""Candidate seeds: the main seed's rows, sampled, repeated, linked anew and changed cell by cell. Pure.

The same key gives the same rows. What the schema forbids beyond keys and references (CHECK, exclusion, lengths) is left
to Postgres: every row comes with milder alternatives, the mildest being a row of the main seed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random

from services.verifier.suites.perturbation import cases, moved, shifted
from services.verifier.suites.study import Place
from services.verifier.suites.tables import Column, ForeignKey, Kind, Row, Table, Value

GROWN_ROWS = 120
"""Tables are not grown beyond: results stay under the row cap of 200."""

FEW_ROWS = 12
"""A table of no more is grown most: with five rows hardly two of them tie."""

KEEP_MAIN = 0.5
"""Share of the seeds that hold the main seed's rows and others: golds with narrow answers keep one there."""

REDRAWS = 6
"""Tries to link a row anew when its key is taken."""


class Mildness(IntEnum):
    """How far a table's rows may leave the main seed's, when a gold fails on bolder ones."""

    BOLD = 0
    MILD = 1  # no more rows, each once, text kept
    MAIN = 2  # the main seed's rows


@dataclass(frozen=True)
class Material:
    """What candidate seeds are made from."""

    tables: Sequence[Table]
    """Parents first."""
    boundaries: Mapping[Place, Sequence[str]]
    """Values at and around the constants that golds compare a column with."""
    shared: Mapping[Place, Sequence[str]]
    """Values that a column, or one that golds equate it with, has on the main seed."""


Draft = tuple[Row, ...]
"""One row to insert: the first of these that Postgres takes."""


@dataclass(frozen=True)
class _Temper:
    """How boldly one table of one seed is changed: probabilities, except where said otherwise."""

    growth: float
    """Rows a row of the main seed."""
    change: float
    """A cell is changed."""
    repeat: float
    """A row repeats the one before it."""
    parents: float
    """Share of the parents that get children."""
    keep_reference: float
    null_reference: float
    orphan: float
    """A reference that nothing declares points to nothing."""

    @classmethod
    def draw(cls, random: Random, rows: int, mildness: Mildness) -> "_Temper":
        growths = (0.6, 1.0, 2.0, 3.0, 5.0) if rows <= FEW_ROWS else (0.5, 0.8, 1.0, 1.3, 2.0)
        return cls(
            growth=min(1.0, random.choice(growths)) if mildness else random.choice(growths),
            change=random.choice((0.1, 0.2, 0.35, 0.5, 0.8)),
            repeat=0.0 if mildness else random.choice((0.0, 0.1, 0.3)),
            parents=random.choice((1.0, 1.0, 0.6, 0.3)),
            keep_reference=random.choice((0.9, 0.5, 0.1)),
            null_reference=random.choice((0.0, 0.05, 0.2)),
            orphan=random.choice((0.0, 0.05, 0.2)),
        )


def draw_seed(material: Material, key: str, mildness: Mapping[str, Mildness]) -> dict[str, list[Draft]]:
    """One candidate seed, table by table, parents first."""
    drafts: dict[str, list[Draft]] = {}
    keeps_main = Random(key).random() < KEEP_MAIN
    for table in material.tables:
        level = mildness.get(table.name, Mildness.BOLD)
        if level is Mildness.MAIN:
            drafts[table.name] = [(row,) for row in table.rows]
        else:
            writer = _Writer(table, material, drafts, Random(f"{key}/{table.name}"), level, keeps_main)
            drafts[table.name] = writer.rows()
    return drafts


@dataclass
class _Writer:
    """Draws the rows of one table."""

    table: Table
    material: Material
    parents: Mapping[str, list[Draft]]
    random: Random
    mildness: Mildness
    keeps_main: bool
    taken: dict[tuple[int, ...], set[Row]] = field(default_factory=dict)
    counter: int = 0

    def rows(self) -> list[Draft]:
        source = self.table.rows
        self.temper = _Temper.draw(self.random, len(source), self.mildness)
        self.references = {key: self._referable(key) for key in self.table.foreign_keys}
        self.taken = {key: set() for key in self.table.keys}
        self.own: list[Row] = []
        if not source:
            return []
        most = max(len(source), GROWN_ROWS) if len(source) < GROWN_ROWS else int(1.2 * len(source))
        count = max(1, min(most, round(self.temper.growth * len(source))))
        kept = list(source) if self.keeps_main and not self.mildness else []
        drafts: list[Draft] = []
        for row in kept:
            self._take((row,), drafts)
        drawn = self.random.sample(source, min(count, len(source))) if not kept else []
        drawn += [self.random.choice(source) for _ in range(count - len(drawn))]
        for number, row in enumerate(drawn):
            repeated = number > 0 and self.random.random() < self.temper.repeat
            draft = self._draft(drawn[number - 1] if repeated else row, repeated)
            if draft:
                self._take(draft, drafts)
        return drafts

    def _take(self, draft: Draft, drafts: list[Draft]) -> None:
        for key in self.table.keys:
            self.taken[key].update(_part(row, key) for row in draft)
        drafts.append(draft)
        self.own.append(draft[0])

    def _referable(self, key: ForeignKey) -> list[Row]:
        """The parents' keys that this table's rows may take: some parents stay without children."""
        rows = [draft[0] for draft in self.parents.get(key.table, [])]
        keys = [tuple(row[index] for index in key.referenced) for row in rows]
        keys = list(dict.fromkeys(found for found in keys if None not in found))
        return self.random.sample(keys, max(1, round(self.temper.parents * len(keys)))) if keys else []

    def _draft(self, source: Row, repeated: bool) -> Draft:
        """The row changed, half changed and (but for its keys) unchanged; none of them when its keys are taken."""
        linked = list(source)
        for key in self.table.foreign_keys:
            self._refer(linked, key)
        for key_columns in self.table.keys:
            if not self._make_unique(linked, key_columns):
                return ()
        bold, half = list(linked), list(linked)
        if not repeated:
            for index in self._changeable():
                if self.random.random() < self.temper.change:
                    bold[index] = self._changed(index, linked[index])
                    if self.random.random() < 0.5:
                        half[index] = bold[index]
        draft = tuple(dict.fromkeys((tuple(bold), tuple(half), tuple(linked))))
        # Unique columns of several may have been changed: only what stays unique is offered.
        return tuple(row for row in draft if all(self._free(row, key) for key in self.table.keys))

    def _free(self, row: Sequence[Value], key: tuple[int, ...]) -> bool:
        part = _part(row, key)
        return None in part or part not in self.taken[key]

    def _changeable(self) -> list[int]:
        fixed = {index for key in self.table.foreign_keys for index in key.columns}
        fixed |= {key[0] for key in self.table.keys if len(key) == 1}
        columns = enumerate(self.table.columns)
        textual = (Kind.TEXT, Kind.CHOICE)
        return [i for i, column in columns if i not in fixed and not (self.mildness and column.kind in textual)]

    def _refer(self, row: list[Value], key: ForeignKey) -> None:
        """Point a row to a parent, mostly to the one it had."""
        nullable = all(self.table.columns[index].nullable for index in key.columns)
        to_itself = key.table == self.table.name
        choices = [_part(other, key.referenced) for other in self.own] if to_itself else self.references[key]
        present: tuple[Value, ...] = _part(row, key.columns)
        if nullable and (self.random.random() < self.temper.null_reference or (not choices and key.declared)):
            chosen: tuple[Value, ...] = (None,) * len(key.columns)
        elif not key.declared and self.random.random() < self.temper.orphan:
            place = self.table.name, self.table.columns[key.columns[0]].name
            chosen = (self.random.choice([*self.material.shared[place], present[0]]),)
        elif not choices or (
            (present in choices or (None in present and nullable)) and self.random.random() < self.temper.keep_reference
        ):
            return
        else:
            chosen = self.random.choice(choices)
        for index, value in zip(key.columns, chosen, strict=True):
            row[index] = value

    def _make_unique(self, row: list[Value], key: tuple[int, ...]) -> bool:
        """Change a row so that its key is free; False when it cannot be."""
        referring = [found for found in self.table.foreign_keys if set(found.columns) & set(key)]
        for _ in range(REDRAWS):
            valid = all(row[index] is not None or self.table.columns[index].nullable for index in key)
            if valid and self._free(row, key):
                return True
            free = [index for index in key if all(index not in found.columns for found in referring)]
            if free:
                index = self.random.choice(free)
                row[index] = self._fresh(index, row[index])
            else:
                for found in referring:
                    options = self.references[found] if found.table != self.table.name else []
                    if options:
                        for index, value in zip(found.columns, self.random.choice(options), strict=True):
                            row[index] = value
        return False

    def _fresh(self, index: int, value: Value) -> Value:
        """A value that the column does not have on the main seed and that was not drawn before."""
        column = self.table.columns[index]
        boundaries = self.material.boundaries.get((self.table.name, column.name), ())
        if boundaries and self.random.random() < 0.5:
            return self.random.choice(boundaries)
        self.counter += 1
        if value is None:
            return None
        if column.kind is Kind.INTEGER:
            return str(max(int(row[index] or 0) for row in self.table.rows) + self.counter)
        if column.kind in (Kind.DATE, Kind.TIMESTAMP):
            day = moved(value[:10], self.counter)
            return None if day is None else f"{day}{value[10:]}"
        if column.kind is Kind.TEXT:
            found = re.fullmatch(r"(.*?)(\d+)(\D*)", value, re.DOTALL)
            if found is None:
                return f"{value} {self.counter + 1}"
            largest = 10 ** len(found[2]) - 1
            number = (int(found[2]) + 37 * self.counter) % largest + 1 if len(found[2]) > 1 else self.counter + 10
            return f"{found[1]}{number:0{len(found[2])}d}{found[3]}"
        if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
            return f"{self.random.getrandbits(32):08x}{value[8:]}"
        return None

    def _changed(self, index: int, value: Value) -> Value:
        """Another value for a cell: at a boundary, tied with another row, nearby, NULL, in other case."""
        column = self.table.columns[index]
        place = self.table.name, column.name
        shared, boundaries = self.material.shared[place], self.material.boundaries.get(place, ())
        ways = ["boundary"] * (4 if boundaries else 0) + ["tie"] * (3 if shared else 0)
        ways += ["shift"] * (3 if value is not None else 0) + ["null"] * (2 if column.nullable else 0)
        ways += ["case"] if column.kind is Kind.TEXT and value is not None else []
        match self.random.choice(ways) if ways else "keep":
            case "boundary":
                return self.random.choice(boundaries)
            case "tie":
                return self.random.choice(shared)
            case "shift" if value is not None:
                return shifted(value, column, shared, self.random)
            case "null":
                return None
            case "case" if value is not None:
                return self.random.choice(cases(value) or [value])
            case _:
                return value


def _part(row: Sequence[Value], columns: tuple[int, ...]) -> tuple[Value, ...]:
    return tuple(row[index] for index in columns)


def boundary_values(column: Column, around: Sequence[str]) -> list[str]:
    """The values of `around` that may stand in the column, sorted, each once."""
    kinds = {Kind.INTEGER: r"-?\d+", Kind.DECIMAL: r"-?\d+(\.\d+)?", Kind.DATE: r"\d{4}-\d\d-\d\d"}
    shape = re.compile(kinds.get(column.kind, r".*"), re.DOTALL)
    return sorted({value for value in around if shape.fullmatch(value)})
