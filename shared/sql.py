"""Parsing SQL with Postgres' own grammar (libpg_query through postgast)."""

import postgast


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
