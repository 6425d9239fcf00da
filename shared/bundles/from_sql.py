"""A domain bundle made from a plain SQL file: hand-written, or as `pg_dump` writes it.

The file's text is kept, comments included: it becomes the prompt. Only its parts are sorted into a schema and a seed,
and what a read-only copy has no use for (SET, DROP, GRANT, owners, triggers, …) is dropped and reported.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import postgast

from shared.bundles.files import Origin, write_folder
from shared.bundles.parts import counts_on, part_of, why_refused
from shared.bundles.sql_dump import plain_sql
from shared.bundles.sql_statements import Statement, nodes, statements, without_public
from shared.domain import BundleError
from shared.sql import identifier, relation_name

UNCHECKED_BODIES: Final = "SET check_function_bodies = false;\n"
"""Before the first function: its body may name tables that come later, as it may in a dump."""
ABSENT_FUNCTIONS: Final = re.compile(r"\buuid_generate_v\d\w*\(\)")
"""Functions of extensions that the sandbox lacks, as column defaults; Postgres' own stands in."""


@dataclass(frozen=True)
class SplitSql:
    """A SQL file in parts."""

    schema_sql: str
    seed_sql: str
    dropped: tuple[str, ...]
    """What was left out: line and first words of each statement."""


def split_sql(sql_text: str, lean: bool = False, absent_types: frozenset[str] = frozenset()) -> SplitSql:
    """Sort the file's statements into a schema and a seed. Raises BundleError naming the line.

    Foreign keys go to the schema. Where the file adds them after its rows (pg_dump), the INSERTs are put in an order
    that satisfies them; tables that refer to each other in a ring get keys that are checked at the end.
    `lean`: drop what a bundle cannot take instead of raising, and sequences, whose rows are there already.
    `absent_types`: types that the sandbox lacks; columns of them become text.
    """
    schema: list[Statement] = []
    seed: list[Statement] = []
    dropped: list[Statement] = []
    carried = ""
    keys_after_rows = False
    for statement in statements(without_public(plain_sql(sql_text))):
        if lean and counts_on(statement):
            continue
        part = part_of(statement)
        if part == "refused" and not lean:
            raise BundleError(
                f"line {statement.line}: a bundle cannot keep `{statement.opening} …`: {why_refused(statement)}"
            )
        if part == "schema":
            text = _with_text_for(absent_types, statement) if absent_types else statement.text
            schema.append(replace(statement, comments=carried + statement.comments, text=text))
            keys_after_rows |= bool(seed) and any(True for _ in foreign_keys(statement.node))
            carried = ""
        elif part == "seed":
            seed.append(statement)
        else:
            carried += statement.comments  # a title above `DROP TABLE IF EXISTS …` belongs to the schema
            dropped.append(statement)
    if not any(statement.kind == "create_stmt" for statement in schema):
        raise BundleError("the file creates no table: a bundle needs its CREATE TABLE statements")
    if lean:
        schema = _without_sequences(schema)
    schema, unused = _without_unused(schema)
    dropped = sorted([*dropped, *unused], key=lambda statement: statement.line)
    texts = [statement.comments + statement.text for statement in schema]
    if keys_after_rows:
        keys = [key for statement in schema for key in foreign_keys(statement.node)]
        ring = _ring(keys, seed)
        texts = [s.comments + (_deferred(s) if set(foreign_keys(s.node)) & ring else s.text) for s in schema]
        seed = _in_key_order(seed, keys)
    functions = [number for number, statement in enumerate(schema) if statement.kind == "create_function_stmt"]
    if functions:
        texts[functions[0]] = UNCHECKED_BODIES + texts[functions[0]]
    texts = [ABSENT_FUNCTIONS.sub("gen_random_uuid()", text) for text in texts]
    rows = [statement.comments + statement.text for statement in seed] + _refreshed(schema)
    return SplitSql(joined(texts), joined(rows), tuple(f"line {s.line}: {s.opening}" for s in dropped))


def foreign_keys(node: Any) -> Iterator[tuple[str, str]]:
    """(table, table it refers to) for each foreign key in a CREATE TABLE or ALTER TABLE."""
    if isinstance(node, nodes.CreateStmt | nodes.AlterTableStmt):
        for constraint in postgast.find_nodes(node, nodes.Constraint):
            if constraint.contype == nodes.CONSTR_FOREIGN:
                yield relation_name(node.relation), relation_name(constraint.pktable)


def _with_text_for(absent_types: frozenset[str], statement: Statement) -> str:
    """The CREATE TABLE with `text` in place of these types."""
    if statement.kind != "create_stmt":
        return statement.text
    data = statement.text.encode()
    tokens = list(postgast.scan(statement.text).tokens)
    spans = []
    for definition in postgast.find_nodes(postgast.parse(statement.text), nodes.ColumnDef):
        if definition.type_name.names[-1].string.sval in absent_types:
            start = definition.type_name.location
            rest = [data[token.start : token.end] for token in tokens if token.start >= start]
            taken = 3 if rest[1:2] == [b"."] else 1
            while rest[taken : taken + 1] in ([b"("], [b"["]):
                taken = rest.index({b"(": b")", b"[": b"]"}[rest[taken]], taken) + 1
            first = next(number for number, token in enumerate(tokens) if token.start >= start)
            spans.append((start, tokens[first + taken - 1].end))
    for start, end in sorted(spans, reverse=True):
        data = data[:start] + b"text" + data[end:]
    return data.decode()


def _without_sequences(schema: Sequence[Statement]) -> list[Statement]:
    """Without the sequences that no default names."""
    others = "\n".join(s.text for s in schema if s.kind != "create_seq_stmt")

    def is_kept(statement: Statement) -> bool:
        name = statement.node.sequence.relname if statement.kind == "create_seq_stmt" else ""
        return not name or re.search(rf"\b{re.escape(name)}\b", others) is not None

    return [statement for statement in schema if is_kept(statement)]


def _without_unused(schema: Sequence[Statement]) -> tuple[list[Statement], list[Statement]]:
    """What can be loaded and is needed, and the rest.

    Functions nobody calls, indexes of dropped ones, keys to tables and views over tables that the file does not create.
    """
    made = {relation_name(s.node.relation) for s in schema if s.kind == "create_stmt"}
    others = "\n".join(s.text for s in schema if s.kind != "create_function_stmt")
    indexes = {s.node.idxname for s in schema if s.kind == "index_stmt"}
    indexes |= {c.conname for s in schema for c in postgast.find_nodes(s.node, nodes.Constraint) if c.conname}
    kept: list[Statement] = []
    unused: list[Statement] = []
    for statement in schema:
        node, used = statement.node, True
        if statement.kind == "create_function_stmt":
            used = re.search(rf"\b{re.escape(node.funcname[-1].string.sval)}\b", others) is not None
        elif statement.kind == "alter_table_stmt" and node.objtype == nodes.OBJECT_INDEX:
            used = node.relation.relname in indexes
        elif statement.kind in ("view_stmt", "create_table_as_stmt"):
            used = _reads(node.query) <= made
            made |= {relation_name(node.view if statement.kind == "view_stmt" else node.into.rel)} if used else set()
        elif statement.kind == "alter_table_stmt":
            used = {other for _, other in foreign_keys(node)} <= made
        (kept if used else unused).append(statement)
    return kept, unused


def _reads(query: Any) -> set[str]:
    """The relations of the file that a query reads."""
    common = {expression.ctename for expression in postgast.find_nodes(query, nodes.CommonTableExpr)}
    found = {relation_name(relation) for relation in postgast.find_nodes(query, nodes.RangeVar)}
    return {name for name in found - common if not name.startswith(("pg_", "information_schema."))}


def _ring(keys: Sequence[tuple[str, str]], seed: Sequence[Statement]) -> set[tuple[str, str]]:
    """The keys that no order of INSERTs satisfies: in a ring of tables, or to the own table over several INSERTs."""
    inserted = [relation_name(statement.node.relation) for statement in seed if statement.kind == "insert_stmt"]
    reach: dict[str, set[str]] = {}
    for table, other in keys:
        reach.setdefault(table, set()).add(other)
    for _ in reach:
        for table, targets in reach.items():
            reach[table] = targets.union(*(reach.get(target, set()) for target in targets))
    return {
        (table, other)
        for table, other in keys
        if (inserted.count(table) > 1 if table == other else table in reach.get(other, ()))
    }


def _deferred(statement: Statement) -> str:
    """The statement with its foreign key checked at the end of the transaction."""
    constraints = list(postgast.find_nodes(statement.node, nodes.Constraint))
    if statement.kind != "alter_table_stmt" or len(constraints) != 1 or constraints[0].initdeferred:
        return statement.text  # CREATE TABLE cannot refer to a later table: such a key closes no ring
    words = " INITIALLY DEFERRED" if constraints[0].deferrable else " DEFERRABLE INITIALLY DEFERRED"
    head, _, tail = statement.text.rpartition(";")
    return f"{head}{words};{tail}"


def _in_key_order(seed: Sequence[Statement], keys: Sequence[tuple[str, str]]) -> list[Statement]:
    """INSERTs so that a table's rows come after those they refer to, else in the file's order; the rest after them.

    Tables that refer to each other in a ring keep the file's order.
    """
    inserts = [statement for statement in seed if statement.kind == "insert_stmt"]
    rank = key_order([relation_name(statement.node.relation) for statement in inserts], keys)
    inserts.sort(key=lambda statement: rank[relation_name(statement.node.relation)])
    return inserts + [statement for statement in seed if statement.kind != "insert_stmt"]


def key_order(tables: Sequence[str], keys: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Table to rank such that a table comes after those it refers to, else in the given order; a ring keeps it."""
    waiting = list(dict.fromkeys(tables))
    rank: dict[str, int] = {}
    while waiting:
        needs = {table for table, other in keys if other != table and other in waiting}
        free = [name for name in waiting if name not in needs]
        chosen = free[0] if free else waiting[0]
        waiting.remove(chosen)
        rank[chosen] = len(rank)
    return rank


def _refreshed(schema: Sequence[Statement]) -> list[str]:
    """Materialized views are filled when the rows are there."""
    views = [s.node.into.rel for s in schema if s.kind == "create_table_as_stmt"]
    names = [".".join(identifier(part) for part in (view.schemaname, view.relname) if part) for view in views]
    return [f"REFRESH MATERIALIZED VIEW {name};" for name in names]


def joined(texts: Sequence[str]) -> str:
    """Statements as a file."""
    return "\n\n".join(texts) + "\n" if texts else ""


def read_sql_file(path: Path) -> str:
    """The text of a SQL file. Raises BundleError where it is none."""
    data = path.read_bytes()
    if data.startswith((b"PGDMP", b"\x1f\x8b", b"PK")):
        raise BundleError(
            f"{path} is no plain text: make it so by `pg_restore --no-owner -f file.sql {path.name}` (a dump in the "
            "custom format) or by unpacking it"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BundleError(f"{path}, line {line}: not UTF-8: dump with `pg_dump --encoding=UTF8`") from error


def write_bundle(name: str, sql_text: str, target_folder: Path) -> SplitSql:
    """Make the bundle folder `target_folder` from a SQL file. All of it appears, or nothing.

    Raises BundleError: the folder exists, the name is no identifier, or the SQL cannot be used (with its line).
    """
    parts = split_sql(sql_text)
    write_folder(name, parts.schema_sql, parts.seed_sql, Origin("a SQL file", dropped=parts.dropped), target_folder)
    return parts
