"""Mutants of a gold: statements one edit of its parse tree away. Pure.

What counts as one edit is in `clause_edits`, `expression_edits` and, where the tables must be known, here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any, NamedTuple

import postgast

from services.verifier.suites import clause_edits, expression_edits
from services.verifier.suites.clause_edits import Edit
from services.verifier.suites.tree import Path, Scope, column_refs, last_name, pb, string, visit
from shared.contracts.suites import MutationKind as Kind

OTHER_COLUMNS = 2
"""Columns tried in place of one: more would be most of the mutants of a wide table."""

OTHER_VALUES = 2
"""Values of its column tried in place of a literal."""


class ColumnFacts(NamedTuple):
    """What a mutation needs to know of a column."""

    name: str
    type: str
    nullable: bool
    values: Sequence[str]
    """Some distinct values, as text."""


Facts = Mapping[str, Sequence[ColumnFacts]]
"""Table to its columns, in order."""


@dataclass(frozen=True)
class Mutant:
    """A statement one edit away from its gold."""

    kind: Kind
    sql: str


def mutants(sql: str, facts: Facts, at_most: int, random: Random) -> list[Mutant]:
    """The mutants of one SELECT, none equal to it or to each other as a normalised tree.

    Of more than `at_most` a sample is drawn, as even by kind as it can be. Raises postgast.PgQueryError.
    """
    tree = postgast.parse(sql)
    seen = {postgast.deparse(tree)}
    scope = Scope(tree, {table: [column.name for column in columns] for table, columns in facts.items()})
    found = []
    for message, path in visit(tree.stmts[0].stmt):
        for kind, edit in list(_edits(message, path, scope, facts, random)):
            saved = type(message)()
            saved.CopyFrom(message)
            edit()
            try:
                text = postgast.deparse(tree)
                postgast.parse(text)  # what deparses need not parse, e.g. DISTINCT behind a changed function
            except postgast.PgQueryError:
                continue
            finally:
                message.CopyFrom(saved)
            if text not in seen:
                seen.add(text)
                found.append(Mutant(kind, text))
    return _sample(found, at_most, random)


def _sample(found: list[Mutant], at_most: int, random: Random) -> list[Mutant]:
    """Round-robin over the kinds, each in random order; the order of `found` is kept."""
    if len(found) <= at_most:
        return found
    by_kind: dict[Kind, list[int]] = {}
    for index in random.sample(range(len(found)), len(found)):
        by_kind.setdefault(found[index].kind, []).append(index)
    chosen: list[int] = []
    while len(chosen) < at_most:
        for indices in by_kind.values():
            if indices and len(chosen) < at_most:
                chosen.append(indices.pop())
    return [found[index] for index in sorted(chosen)]


def _edits(message: Any, path: Path, scope: Scope, facts: Facts, random: Random) -> Iterator[Edit]:
    match message.DESCRIPTOR.name:
        case "SelectStmt":
            yield from clause_edits.select_edits(message)
        case "JoinExpr":
            yield from clause_edits.join_edits(message)
        case "SortBy":
            yield from clause_edits.sort_edits(message)
        case "WindowDef":
            yield from clause_edits.window_edits(message)
        case "BoolExpr":
            yield from clause_edits.connective_edits(message)
        case "A_Expr":
            yield from expression_edits.operator_edits(message, path)
            yield from _value_edits(message, scope, facts, random)
        case "FuncCall":
            yield from expression_edits.call_edits(message)
            yield from _count_edits(message, scope, facts)
        case "NullTest":
            yield from expression_edits.null_test_edits(message)
        case "CaseExpr":
            yield from expression_edits.case_edits(message)
        case "TypeCast":
            yield from expression_edits.cast_edits(message)
        case "A_Const":
            yield from expression_edits.literal_edits(message, path)
        case "ColumnRef":
            yield from _column_edits(message, path, scope, facts, random)
        case "Node":
            yield from expression_edits.node_edits(message, path)


def _column_edits(ref: Any, path: Path, scope: Scope, facts: Facts, random: Random) -> Iterator[Edit]:
    """Another column of the same type and table."""
    place = scope.resolve(ref)
    if place is None:
        return
    table, name = place
    own = next(column for column in facts[table] if column.name == name)
    others = [column.name for column in facts[table] if column.type == own.type and column.name != name]
    kind = Kind.JOIN_COLUMN if "quals" in path else Kind.COLUMN
    for other in random.sample(others, min(OTHER_COLUMNS, len(others))):
        yield kind, _naming(ref, other)


def _naming(ref: Any, name: str) -> Callable[[], None]:
    def edit() -> None:
        ref.fields[-1].string.sval = name

    return edit


def _count_edits(call: Any, scope: Scope, facts: Facts) -> Iterator[Edit]:
    """COUNT(*) → COUNT of a column that may be NULL, one a table."""
    if not call.agg_star or last_name(call.funcname) != "count":
        return
    for table in scope.tables:
        column = next((column.name for column in facts[table] if column.nullable), None)
        ref = pb.ColumnRef(fields=[string(column)]) if column is not None else None
        if ref is not None and scope.resolve(ref) == (table, column):
            yield Kind.COUNT, _counting(call, ref)


def _counting(call: Any, ref: Any) -> Callable[[], None]:
    def edit() -> None:
        call.agg_star = False
        call.args.append(pb.Node(column_ref=ref))

    return edit


def _value_edits(expression: Any, scope: Scope, facts: Facts, random: Random) -> Iterator[Edit]:
    """A text literal that is compared with a column: another value of the column, or a date's neighbour."""
    if expression.kind not in (pb.AEXPR_OP, pb.AEXPR_IN, pb.AEXPR_BETWEEN, pb.AEXPR_NOT_BETWEEN):
        return
    for field, other in (("lexpr", "rexpr"), ("rexpr", "lexpr")):
        side = getattr(expression, other)
        places = {place for ref in column_refs(side) if (place := scope.resolve(ref)) is not None}
        values: Sequence[str] = ()
        if len(places) == 1:
            table, name = places.pop()
            values = next(column.values for column in facts[table] if column.name == name)
        for index, constant in enumerate(_text_literals(getattr(expression, field))):
            for text in _other_texts(constant.sval.sval, values, random):
                yield Kind.LITERAL, _replacing(expression, field, index, text)


def _text_literals(node: Any) -> list[Any]:
    """The string constants at the top of a side: itself, under a cast, or the items of a list."""
    if node.HasField("list"):
        return [constant for item in node.list.items for constant in _text_literals(item)]
    if node.HasField("type_cast") and last_name(node.type_cast.type_name.names) != "interval":
        return _text_literals(node.type_cast.arg)
    return [node.a_const] if node.a_const.HasField("sval") else []


_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(.*)", re.DOTALL)


def _other_texts(text: str, values: Sequence[str], random: Random) -> list[str]:
    found = _DATE.fullmatch(text)
    if found:
        try:
            day = date.fromisoformat(found[1])
            return [f"{day + timedelta(days=step)}{found[2]}" for step in (-1, 1)]
        except (ValueError, OverflowError):
            return []
    others = [value for value in values if value != text]
    return random.sample(others, min(OTHER_VALUES, len(others)))


def _replacing(expression: Any, field: str, index: int, text: str) -> Callable[[], None]:
    def edit() -> None:
        _text_literals(getattr(expression, field))[index].sval.sval = text

    return edit
