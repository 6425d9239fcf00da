"""What a bundle's text says of its fitness, without running it: what to describe, to mask, to fill. Pure."""

import re
from dataclasses import dataclass
from pathlib import Path

import postgast

from shared.bundles.notes import table_columns, undescribed_columns
from shared.bundles.personal import Finding, personal_kind
from shared.bundles.sql_statements import nodes, statements
from shared.domain import Bundle
from shared.seed_rows import rows_of
from shared.sql import relation_name

CHARACTERS_PER_TOKEN = 3.5
"""Of schemas and notes in English under the tokenizers of current open models: 3 to 4. Only an estimate."""
_CLOCK = re.compile(
    r"\b(now\s*\(|current_(date|timestamp|time)\b|localtimestamp\b|clock_timestamp\s*\(|random\s*\()", re.I
)


@dataclass(frozen=True)
class PromptLength:
    """Tokens of a system prompt."""

    tokens: int
    by: str
    """The tokenizer's folder, or `estimate`."""


def personal_columns(bundle: Bundle) -> list[Finding]:
    """Columns that look personal and that `domain.toml` names neither as masked nor as reviewed."""
    known = {*bundle.settings.masked_columns, *bundle.settings.reviewed_columns}
    columns = table_columns(bundle.schema_sql)
    rows = rows_of(bundle.seed_sql, {table: dict.fromkeys(names, True) for table, names in columns.items()})
    found = []
    for table, types in columns.items():
        for column, type_name in types.items():
            values = [str(row[column]) for row in rows.get(table, ()) if row.get(column) is not None]
            kind = personal_kind(table.rpartition(".")[2], column, type_name, values)
            if kind is not None and f"{table}.{column}" not in known and values:
                found.append(Finding(f"{table}.{column}", *kind))
    return found


def tables_without_key(schema_sql: str) -> list[str]:
    """Tables with neither a primary key nor a UNIQUE: nothing tells their rows apart."""
    keyed = set()
    for statement in statements(schema_sql):
        if statement.kind in ("create_stmt", "alter_table_stmt"):
            kinds = {constraint.contype for constraint in postgast.find_nodes(statement.node, nodes.Constraint)}
            if kinds & {nodes.CONSTR_PRIMARY, nodes.CONSTR_UNIQUE}:
                keyed.add(relation_name(statement.node.relation))
        elif statement.kind == "index_stmt":
            keyed.add(relation_name(statement.node.relation))
    return [table for table in table_columns(schema_sql) if table not in keyed]


def missing_notes(bundle: Bundle) -> list[str]:
    """What `notes.md` does not say, a line each."""
    lines = [] if bundle.notes.strip() else ["notes.md is missing or empty: formulas and what NULL means belong there"]
    text = re.sub(r"<!--.*?-->", "", bundle.notes, flags=re.DOTALL)
    if bundle.notes.strip() and not re.search(r"^[-*] .+:.*[-+*/=]", text, re.MULTILINE):
        lines.append("no formula (`- Revenue: quantity * unit_price …`)")
    for table, columns in undescribed_columns(bundle.schema_sql, text, bundle.seed_sql).items():
        lines.append(f"what NULL means in {table}: {', '.join(columns)}")
    return lines


def clock_use(bundle: Bundle) -> list[str]:
    """Seeds whose rows depend on when they are loaded: golds would change by the day."""
    seeds = {"seed.sql": bundle.seed_sql} | {f"variants/{name}.sql": text for name, text in bundle.variants.items()}
    return [f"{name}: {found[0].strip('( ')}" for name, text in seeds.items() if (found := _CLOCK.search(_code(text)))]


def _code(seed_sql: str) -> str:
    """The seed without its string literals and comments."""
    return re.sub(r"'(?:[^']|'')*'|--[^\n]*", "''", seed_sql)


def prompt_length(prompt: str, model: Path | None) -> PromptLength:
    """In tokens of the tokenizer in a model's folder; estimated where none is given or no library can read it.

    Raises FileNotFoundError where the folder holds no `tokenizer.json`.
    """
    if model is None:
        return PromptLength(round(len(prompt) / CHARACTERS_PER_TOKEN), "estimate")
    file = model / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(file)
    try:
        from tokenizers import Tokenizer  # an extra of the trainer; the command works without
    except ImportError:
        return PromptLength(round(len(prompt) / CHARACTERS_PER_TOKEN), "estimate (tokenizers is not installed)")
    return PromptLength(len(Tokenizer.from_file(str(file)).encode(prompt, add_special_tokens=False).ids), str(model))
