"""Statements that a careless evaluator takes for the gold. Made of the gold, so that they fit it as well as can be."""

import re

_NAMES = re.compile(r"\bFROM\s+(\w+)", re.IGNORECASE)
_TABLES = re.compile(r"\bCREATE\s+TABLE\s+(?:\w+\.)?(\w+)", re.IGNORECASE)


def impostors(gold: str, columns: int, rows: int, schema_sql: str) -> dict[str, str]:
    """By what they do. `columns` × `rows` is the gold's shape on the main seed."""
    gold = gold.strip().rstrip(";")
    names = [f"c{index}" for index in range(columns)]
    answer = f"({gold}) AS answer ({', '.join(names)})"
    tables = {name.lower() for name in _TABLES.findall(schema_sql)}
    table = next(name for name in _NAMES.findall(gold) if name.lower() in tables)
    made = {
        "SELECT 1": "SELECT 1",
        "SELECT NULL": "SELECT NULL",
        "an empty result": "SELECT 1 WHERE false",
        "NULL in the gold's shape": f"SELECT {', '.join(['NULL'] * columns)} FROM generate_series(1, {rows})",
        "five copies of a scalar": f"SELECT c0 FROM {answer}, generate_series(1, 5)",
        "a scalar repeated across columns": f"SELECT {', '.join(['c0'] * (columns + 2))} FROM {answer}",
        "one column for all": f"SELECT {', '.join(['c0'] * columns)} FROM {answer}",
        "SELECT * of its answer, a column more": f"SELECT *, 1 FROM {answer}",
        "all rows but one": f"SELECT * FROM {answer} LIMIT {rows - 1}",
        "SELECT *": f"SELECT * FROM {table}",
        "SELECT * of as many rows": f"SELECT * FROM {table} LIMIT {rows}",
        "one row twice": f"(SELECT * FROM {answer}) UNION ALL (SELECT * FROM {answer} LIMIT 1)",
    }
    if columns > 1 and rows > 1:
        others = ", ".join(names[1:])
        made["two columns paired wrongly"] = (
            f"WITH numbered AS (SELECT *, row_number() OVER () AS place FROM {answer}) SELECT a.c0, {others} FROM "
            f"(SELECT c0, place FROM numbered) a JOIN (SELECT {others}, place FROM numbered) b "
            f"ON b.place = a.place % {rows} + 1"
        )
    return made
