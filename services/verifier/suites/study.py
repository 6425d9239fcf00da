"""What the golds' parse trees say: mutants, constants that columns are compared with, columns that are equated. Pure.

`python -m services.verifier.suites.study` is the process in which that is done: a crash of the C parser ends it alone.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import postgast
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types

from services.verifier.gold_plan import expression_text
from services.verifier.suites.mutation import ColumnFacts, Facts, Mutant, mutants
from services.verifier.suites.tree import Scope, column_refs, is_constant, last_name, pb, visit
from shared.contracts.suites import MutationKind

Place = tuple[str, str]
"""(table, column)."""


@dataclass(frozen=True)
class Constant:
    """An expression without columns that a gold compares a column with."""

    table: str
    column: str
    expression: str
    """As SQL; a literal or e.g. `current_date - '30 days'::interval`."""
    pattern: bool = False
    """Of LIKE or ILIKE."""
    year: bool = False
    """Compared with the column's year."""
    follows_clock: bool = False
    """Depends on the current date."""


@dataclass(frozen=True)
class GoldStudy:
    """One gold. `error` is set when it cannot be parsed; then nothing else is."""

    mutants: list[Mutant] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    links: list[tuple[Place, Place]] = field(default_factory=list)
    """Columns that it equates."""
    tables: list[str] = field(default_factory=list)
    """Tables that it reads."""
    error: str | None = None


@dataclass(frozen=True)
class SeedStudy:
    """What the main seed's INSERTs say of the columns."""

    written: dict[str, list[str]] = field(default_factory=dict)
    """Table to the columns that its INSERTs fill; a table is absent where an INSERT lists none."""
    clock: list[Place] = field(default_factory=list)
    """Columns that are given values relative to the current date."""


def study_gold(sql: str, facts: Facts, at_most: int, random: Random) -> GoldStudy:
    """Everything about one gold."""
    try:
        tree = postgast.parse(sql)
        if len(tree.stmts) != 1 or not tree.stmts[0].stmt.HasField("select_stmt"):
            return GoldStudy(error="is not exactly one SELECT")
        scope = Scope(tree, {table: [column.name for column in columns] for table, columns in facts.items()})
        return GoldStudy(
            mutants(sql, facts, at_most, random),
            list(dict.fromkeys(_constants(tree, scope))),
            list(dict.fromkeys(_links(tree, scope))),
            scope.tables,
        )
    except postgast.PgQueryError as error:
        return GoldStudy(error=str(error))
    except (DecodeError, RecursionError):
        return GoldStudy(error="is nested too deeply")


_COMPARING = frozenset({"<", "<=", "=", "<>", ">=", ">", "~~", "~~*", "!~~", "!~~*", "BETWEEN", "NOT BETWEEN"})


def _constants(tree: Any, scope: Scope) -> Iterator[Constant]:
    for message, _ in visit(tree.stmts[0].stmt):
        if message.DESCRIPTOR.name == "A_Expr" and message.name[-1].string.sval in _COMPARING:
            for column_side, constant_side in ((message.lexpr, message.rexpr), (message.rexpr, message.lexpr)):
                yield from _compared(message, column_side, constant_side, scope)


def _compared(expression: Any, column_side: Any, constant_side: Any, scope: Scope) -> Iterator[Constant]:
    if constant_side.WhichOneof("node") is None or not is_constant(constant_side):
        return
    if any(message.DESCRIPTOR.name == "SelectStmt" for message, _ in visit(column_side)):
        return
    places = {scope.resolve(ref) for ref in column_refs(column_side)}
    place = places.pop() if len(places) == 1 else None
    if place is None:
        return
    pattern = expression.kind in (pb.AEXPR_LIKE, pb.AEXPR_ILIKE)
    call = column_side.func_call
    year = column_side.HasField("func_call") and last_name(call.funcname) in ("extract", "date_part")
    year = year and bool(call.args) and call.args[0].a_const.sval.sval.lower() == "year"
    items = constant_side.list.items if constant_side.HasField("list") else [constant_side]
    for item in items:
        yield Constant(*place, expression_text(item), pattern, year, _reads_clock(item))


def _links(tree: Any, scope: Scope) -> Iterator[tuple[Place, Place]]:
    for message, _ in visit(tree.stmts[0].stmt):
        match message.DESCRIPTOR.name:
            case "A_Expr" if message.kind == pb.AEXPR_OP and message.name[-1].string.sval == "=":
                yield from _link(message.lexpr, message.rexpr, scope)
            case "SubLink" if message.HasField("testexpr") and message.subselect.select_stmt.target_list:
                target = message.subselect.select_stmt.target_list[0].res_target.val
                yield from _link(message.testexpr, target, scope)
            case "JoinExpr":
                for name in message.using_clause:
                    refs = [
                        pb.ColumnRef(fields=[pb.Node(string=pb.String(sval=table)), name]) for table in scope.tables
                    ]
                    places = [place for ref in refs if (place := scope.resolve(ref)) is not None]
                    yield from ((places[0], other) for other in places[1:])


def _link(left: Any, right: Any, scope: Scope) -> Iterator[tuple[Place, Place]]:
    if left.HasField("column_ref") and right.HasField("column_ref"):
        places = scope.resolve(left.column_ref), scope.resolve(right.column_ref)
        if places[0] is not None and places[1] is not None and places[0] != places[1]:
            yield places[0], places[1]


_CLOCK_CALLS = frozenset({"now", "statement_timestamp", "transaction_timestamp", "clock_timestamp"})


def study_seed(seed_sql: str, columns: dict[str, list[str]]) -> SeedStudy:
    """Read a seed's INSERTs. `columns`: table to its column names, in order. Raises postgast.PgQueryError."""
    written: dict[str, list[str]] = {}
    unlisted: set[str] = set()
    clock: dict[Place, None] = {}
    for raw in postgast.parse(seed_sql).stmts:
        insert = raw.stmt.insert_stmt
        table = insert.relation.relname
        if insert.relation.schemaname not in ("", "public"):
            table = f"{insert.relation.schemaname}.{table}"
        if not raw.stmt.HasField("insert_stmt") or table not in columns:
            continue
        listed = [target.res_target.name for target in insert.cols]
        if listed:
            written.setdefault(table, []).extend(name for name in listed if name not in written.get(table, []))
        else:
            unlisted.add(table)
        for values in insert.select_stmt.select_stmt.values_lists:
            for name, value in zip(listed or columns[table], values.list.items, strict=False):
                if (table, name) not in clock and _reads_clock(value):
                    clock[table, name] = None
    return SeedStudy({table: names for table, names in written.items() if table not in unlisted}, list(clock))


def _reads_clock(node: Any) -> bool:
    if node.HasField("a_const"):
        return False
    return any(
        message.DESCRIPTOR.name == "SQLValueFunction"
        or (message.DESCRIPTOR.name == "FuncCall" and last_name(message.funcname) in _CLOCK_CALLS)
        for message, _ in visit(node)
    )


@dataclass(frozen=True)
class StudyRequest:
    """What the process is given, as one JSON object."""

    at_most: int
    """Mutants of one gold."""
    random_key: str
    """Seeds the draws, together with a gold's text: the same gold has the same mutants in any company."""
    seed_sql: str
    golds: Sequence[str] = ()
    facts: Facts = field(default_factory=dict)


def main() -> None:
    """One JSON object in; a JSON line a gold out, then one for the seed."""
    request = StudyRequest(**json.load(sys.stdin))
    facts = {table: [ColumnFacts(*column) for column in columns] for table, columns in request.facts.items()}
    for gold in request.golds:
        study = study_gold(gold, facts, request.at_most, Random(f"{request.random_key}/{gold}"))
        print(json.dumps(asdict(study)), flush=True)
    columns = {table: [column.name for column in columns] for table, columns in facts.items()}
    print(json.dumps(asdict(study_seed(request.seed_sql, columns))), flush=True)


def read_gold_study(line: bytes) -> GoldStudy:
    """A gold's line."""
    fields = json.loads(line)
    fields["mutants"] = [Mutant(MutationKind(found["kind"]), found["sql"]) for found in fields["mutants"]]
    fields["constants"] = [Constant(**found) for found in fields["constants"]]
    fields["links"] = [((a, b), (c, d)) for (a, b), (c, d) in fields["links"]]
    return GoldStudy(**fields)


def read_seed_study(line: bytes) -> SeedStudy:
    """The seed's line."""
    fields = json.loads(line)
    return SeedStudy(fields["written"], [(table, column) for table, column in fields["clock"]])


if __name__ == "__main__":
    main()
