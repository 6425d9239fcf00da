"""Parsing SQL with Postgres' own grammar (libpg_query through postgast), and spelling names and literals in it."""

import re
from typing import Any, Final

import postgast

_SPELLED: Final = {
    "\\": "\\\\",
    "'": "''",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\x0B",
}
_UNRESERVED_KEYWORD: Final = 1


class SqlSyntaxError(ValueError):
    """The text is not SQL that Postgres' grammar accepts."""


def normalise(sql: str) -> str:
    """The canonical text of a statement's parse tree: comments, case and spacing gone, names and literals kept.

    Two texts with equal results here are the same query. Raises SqlSyntaxError.
    """
    try:
        text: str = postgast.deparse(postgast.parse(sql))
        return text
    except postgast.PgQueryError as error:
        raise SqlSyntaxError(str(error)) from error


def literal(value: str | None) -> str:
    """A literal on one line: Postgres coerces it to the column's type, as COPY does."""
    if value is None:
        return "NULL"
    spelled = "".join(_SPELLED.get(character, character) for character in value)
    return f"E'{spelled}'" if "\\" in spelled else f"'{spelled}'"


def identifier(name: str) -> str:
    """A name, quoted where plain spelling would not give it back."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) is not None
    keyword = plain and postgast.scan(name).tokens[0].keyword_kind > _UNRESERVED_KEYWORD
    return name if plain and not keyword else '"' + name.replace('"', '""') + '"'


def relation_name(range_var: Any) -> str:
    """What a parse tree's RangeVar is called here: `orders`, or `sales.orders` outside `public`."""
    qualified = f"{range_var.schemaname}.{range_var.relname}"
    return range_var.relname if range_var.schemaname in ("", "public") else qualified
