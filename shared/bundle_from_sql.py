"""A domain bundle made from a plain SQL file: hand-written, or as `pg_dump` writes it.

The file's text is kept, comments included: it becomes the prompt. Only its parts are sorted into a schema and a seed,
and what a read-only copy has no use for (SET, DROP, GRANT, owners, triggers) is dropped and reported.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

import postgast

from shared.domain import BundleError, DomainSettings
from shared.sql_dump import plain_sql

Part = Literal["schema", "seed", "dropped"]

nodes: Final = postgast.pg_query_pb2  # by attribute: mypy cannot read the stub that an import would follow

PART_OF_KIND: Final[dict[str, Part]] = {
    **dict.fromkeys(["create_stmt", "view_stmt", "index_stmt", "comment_stmt", "define_stmt"], "schema"),
    **dict.fromkeys(["create_enum_stmt", "composite_type_stmt", "create_range_stmt", "create_domain_stmt"], "schema"),
    **dict.fromkeys(["create_seq_stmt", "alter_seq_stmt", "alter_enum_stmt", "create_function_stmt"], "schema"),
    **dict.fromkeys(["create_schema_stmt", "create_extension_stmt"], "schema"),
    **dict.fromkeys(["insert_stmt", "update_stmt", "delete_stmt", "truncate_stmt"], "seed"),
    **dict.fromkeys(["select_stmt", "refresh_mat_view_stmt"], "seed"),  # SELECT: pg_dump's setval
    **dict.fromkeys(["variable_set_stmt", "transaction_stmt", "drop_stmt", "vacuum_stmt", "lock_stmt"], "dropped"),
    **dict.fromkeys(["grant_stmt", "grant_role_stmt", "alter_owner_stmt", "create_role_stmt"], "dropped"),
    **dict.fromkeys(["alter_default_privileges_stmt", "create_policy_stmt", "create_trig_stmt"], "dropped"),
}
"""libpg_query's statement kinds; one that is not listed is refused."""

PG_DUMP_COMMENT: Final = re.compile(
    r"--\s*(PostgreSQL database dump.*|Dumped (from|by) .*|(Data for )?Name: .*; Type: .*|TOC entry .*)?"
)


@dataclass(frozen=True)
class SplitSql:
    """A SQL file in parts."""

    schema_sql: str
    seed_sql: str
    dropped: tuple[str, ...]
    """What was left out: line and first words of each statement."""


@dataclass(frozen=True)
class Statement:
    """One statement of the file."""

    node: Any
    """Its parse tree below `Node`, e.g. a `CreateStmt`."""
    kind: str
    """The tree's kind as libpg_query spells it, e.g. `create_stmt`."""
    comments: str
    """Comment lines before it, each with its line end."""
    text: str
    """The statement with its semicolon and a comment that follows on the same line."""
    line: int
    """Line of its first word, from 1."""

    @property
    def opening(self) -> str:
        """Its first words, for a message."""
        return " ".join(self.text.split()[:4])


def split_sql(sql_text: str) -> SplitSql:
    """Sort the file's statements into a schema and a seed. Raises BundleError naming the line.

    Foreign keys go to the schema. Where the file adds them after its rows (pg_dump), the INSERTs are put in an order
    that satisfies them.
    """
    schema: list[str] = []
    seed: list[Statement] = []
    dropped: list[str] = []
    keys: list[tuple[str, str]] = []
    carried, keys_after_rows, creates_table = "", False, False
    for statement in _statements(_without_public(plain_sql(sql_text))):
        part = part_of(statement)
        if part == "schema":
            schema.append(carried + statement.comments + statement.text)
            added = list(foreign_keys(statement.node))
            keys += added
            keys_after_rows |= bool(seed and added)
            creates_table |= statement.kind == "create_stmt"
            carried = ""
        elif part == "seed":
            seed.append(statement)
        else:
            carried += statement.comments  # a title above `DROP TABLE IF EXISTS …` belongs to the schema
            dropped.append(f"line {statement.line}: {statement.opening}")
    if not creates_table:
        raise BundleError("the file creates no table: a bundle needs its CREATE TABLE statements")
    rows = _in_key_order(seed, keys) if keys_after_rows else seed
    return SplitSql(_joined(schema), _joined([row.comments + row.text for row in rows]), tuple(dropped))


def part_of(statement: Statement) -> Part:
    """Where a statement belongs. Raises BundleError for one a bundle cannot keep."""
    kind, node = statement.kind, statement.node
    if kind == "alter_table_stmt":
        commands = {command.alter_table_cmd.subtype for command in node.cmds}
        return "dropped" if commands <= {nodes.AT_ChangeOwner, nodes.AT_EnableRowSecurity} else "schema"
    if kind == "select_stmt" and "set_config" in statement.text:
        return "dropped"
    if kind == "create_table_as_stmt" and node.into.skip_data:
        return "schema"
    if kind in PART_OF_KIND:
        return PART_OF_KIND[kind]
    raise BundleError(f"line {statement.line}: a bundle cannot keep `{statement.opening} …`: remove it from the file")


def foreign_keys(node: Any) -> Iterator[tuple[str, str]]:
    """(table, table it refers to) for each foreign key in a CREATE TABLE or ALTER TABLE; self-references left out."""
    if isinstance(node, nodes.CreateStmt | nodes.AlterTableStmt):
        for constraint in postgast.find_nodes(node, nodes.Constraint):
            if constraint.contype == nodes.CONSTR_FOREIGN and constraint.pktable.relname != node.relation.relname:
                yield node.relation.relname, constraint.pktable.relname


def _statements(text: str) -> Iterator[Statement]:
    """The file's statements, with what surrounds them. Raises BundleError naming the line."""
    try:
        parsed = postgast.parse(text).stmts
        tokens = postgast.scan(text).tokens
    except postgast.PgQueryError as error:
        line = text.count("\n", 0, max(0, error.cursorpos - 1)) + 1
        raise BundleError(f"line {line}: {error}") from error
    data = text.encode()
    ends = [token.end for token in tokens if token.token == nodes.ASCII_59]
    comments = {nodes.SQL_COMMENT, nodes.C_COMMENT}
    words = [token.start for token in tokens if token.token not in comments]
    position = 0
    for raw in parsed:
        stop = raw.stmt_location + raw.stmt_len if raw.stmt_len else len(data)
        end = next((end for end in ends if end > stop), len(data))
        start = next(word for word in words if word >= max(position, raw.stmt_location))
        trailing = re.match(rb"[ \t]*(--[^\n]*)?(?=\n|$)", data[end:])
        after = end + (trailing.end() if trailing else 0)
        kind = raw.stmt.WhichOneof("node")
        yield Statement(
            node=getattr(raw.stmt, kind),
            kind=kind,
            comments=_kept_comments(data[position:start].decode()),
            text=data[start:after].decode().rstrip() + ("" if data[start:end].rstrip().endswith(b";") else ";"),
            line=data.count(b"\n", 0, start) + 1,
        )
        position = after


def _kept_comments(text: str) -> str:
    """The lines before a statement without blank ones and without those pg_dump writes."""
    lines = [line.rstrip() for line in text.split("\n")]
    return "".join(f"{line}\n" for line in lines if line.strip(" ;") and not PG_DUMP_COMMENT.fullmatch(line))


def _without_public(text: str) -> str:
    """`public.author` → `author`: a bundle's tables are in the search path, and the prompt is shorter."""
    try:
        tokens = postgast.scan(text).tokens
    except postgast.PgQueryError:
        return text  # the parser reports it with its line
    data = text.encode()
    kept, position = [], 0
    for token, following in pairwise(tokens):
        spelled = data[token.start : token.end]
        if spelled in (b"public", b'"public"') and following.token == nodes.ASCII_46:
            kept.append(data[position : token.start])
            position = following.end
    return b"".join([*kept, data[position:]]).decode()


def _in_key_order(seed: Sequence[Statement], keys: Sequence[tuple[str, str]]) -> list[Statement]:
    """INSERTs so that a table's rows come after those they refer to, else in the file's order; the rest after them.

    Tables that refer to each other in a ring keep the file's order.
    """
    inserts = [statement for statement in seed if statement.kind == "insert_stmt"]
    waiting = list(dict.fromkeys(statement.node.relation.relname for statement in inserts))
    rank: dict[str, int] = {}
    while waiting:
        free = [name for name in waiting if not any(name == table and other in waiting for table, other in keys)]
        chosen = free[0] if free else waiting[0]
        waiting.remove(chosen)
        rank[chosen] = len(rank)
    inserts.sort(key=lambda statement: rank[statement.node.relation.relname])
    return inserts + [statement for statement in seed if statement.kind != "insert_stmt"]


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(texts) + "\n" if texts else ""


def undescribed_columns(schema_sql: str, notes: str = "") -> dict[str, list[str]]:
    """Table to the columns that may be NULL while neither the schema's comments nor the notes say what that means."""
    found: dict[str, list[str]] = {}
    for statement in _statements(schema_sql):
        if statement.kind != "create_stmt":
            continue
        table = statement.node.relation.relname
        keys = {
            key.string.sval
            for element in statement.node.table_elts
            if element.constraint.contype == nodes.CONSTR_PRIMARY
            for key in element.constraint.keys
        }
        for element in statement.node.table_elts:
            column = element.column_def
            kinds = {constraint.constraint.contype for constraint in column.constraints}
            never_null = kinds & {nodes.CONSTR_NOTNULL, nodes.CONSTR_PRIMARY, nodes.CONSTR_IDENTITY}
            if not column.colname or never_null or column.colname in keys:
                continue
            line = rf"^\s*\"?{re.escape(column.colname)}\"?\s.*--.*\bNULL\b"
            said = re.search(line, statement.text, re.MULTILINE | re.IGNORECASE)
            noted = re.search(rf"\b{re.escape(table)}\.{re.escape(column.colname)}\b", notes)
            if not (said or noted):
                found.setdefault(table, []).append(column.colname)
    return found


def notes_skeleton(schema_sql: str) -> str:
    """`notes.md` for a person to fill in. What is open stands in a Markdown comment, which no prompt shows."""
    lines = [f"- {table}: {', '.join(columns)}" for table, columns in undescribed_columns(schema_sql).items()]
    return "\n".join(
        [
            "<!-- Write below what an analyst needs and the schema does not say; this comment is in no prompt.",
            "Formulas, one a line: `- Revenue: quantity * unit_price over orders that are not cancelled.`",
            "What NULL means, one a line: `- orders.shipped_at: not shipped yet.`",
            *(["Columns that may be NULL, meaning unknown:", *lines] if lines else []),
            "-->",
            "",
        ]
    )


def write_bundle(name: str, sql_text: str, target_folder: Path) -> SplitSql:
    """Make the bundle folder `target_folder` from a SQL file. All of it appears, or nothing.

    Raises BundleError: the folder exists, the name is no identifier, or the SQL cannot be used (with its line).
    """
    if target_folder.exists():
        raise BundleError(f"{target_folder} exists and was left as it is: choose another name or move it away")
    try:
        settings = DomainSettings(name=name)
    except ValueError as error:
        raise BundleError(f"{name!r} is no domain name: letters, digits, `.`, `_`, `-`, at most 128") from error
    parts = split_sql(sql_text)
    toml = f"name = {json.dumps(settings.name)}\n" + "".join(
        f"{field} = {json.dumps(getattr(settings, field))}\n"
        for field in ("description", "statement_timeout_seconds", "round_decimals")
    )
    target_folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target_folder.parent) as scratch:
        made = Path(scratch) / "bundle"
        (made / "variants").mkdir(parents=True)
        (made / "domain.toml").write_text(toml, encoding="utf-8")
        (made / "schema.sql").write_text(parts.schema_sql, encoding="utf-8")
        (made / "seed.sql").write_text(parts.seed_sql, encoding="utf-8")
        (made / "notes.md").write_text(notes_skeleton(parts.schema_sql), encoding="utf-8")
        shutil.move(made, target_folder)
    return parts
