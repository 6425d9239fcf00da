"""Values in a gold that nothing tells: `status = 'delivered'` where the question does not say so. Pure.

Read from the parse tree are the constants that a condition compares with a column, and LIMIT and OFFSET. Each must be
given by the question or the notes: words in any form, numbers in digits or words (a bound may be off by one, as "more
than 4" is "at least 5"), dates in any format. A value that the schema merely lists is not given by it, unless it is a
code ('DE') that stands for what the question says in words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import postgast

from services.author.gates.knowledge import Knowledge
from services.author.gates.reasons import Reason
from services.author.gates.said import Said
from services.author.statement import Statement

TRIVIAL = frozenset(Decimal(number) for number in (0, 1, 2, 100))
"""None, one, both, percent: words that no question spells as numbers."""
CODE_LETTERS = 2
"""A value up to so long, or without lower-case letters, is a code: its meaning may be said in other words."""
TELLING_LETTERS = 4
"""Shorter words of a longer value need not be said."""

_pb = postgast.pg_query_pb2
_COMPARING = frozenset({"=", "<>", "!=", "<", ">", "<=", ">=", "~~", "~~*", "!~~", "!~~*", "~", "~*"})
_TRANSPARENT = frozenset({"lower", "upper", "trim", "btrim", "to_date", "to_timestamp", "date", "make_date", "concat"})
_DATE = re.compile(r"^\s*(\d{4})-(\d{1,2})(?:-(\d{1,2}))?(?:[ T].*)?$")
_DATE_MASK = re.compile(r"^[YMDHQ24SITWU:/.\- ]+$", re.IGNORECASE)


class Kind(StrEnum):
    """How a value is looked for."""

    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    KEY = "key"  # compared with a row's key: only its own number will do
    LIMIT = "limit"


@dataclass(frozen=True)
class Value:
    """One constant of a gold."""

    kind: Kind
    text: str


def values_of(statement: Statement, keys: frozenset[str]) -> tuple[Value, ...]:
    """The constants that decide which rows a gold returns. `keys`: names of key columns."""
    found: dict[Value, None] = {}
    for expression in statement.of_type("A_Expr"):
        name = expression.name[0].string.sval if expression.name else ""
        between = expression.kind in (_pb.AEXPR_BETWEEN, _pb.AEXPR_NOT_BETWEEN)
        if name not in _COMPARING and not between:
            continue
        sides = (expression.lexpr, expression.rexpr)
        columns = {column for side in sides for column in _columns(side)}
        if not columns and not any(_computed(side) for side in sides):
            continue
        is_key = len(columns) == 1 and columns <= keys and any(side.HasField("column_ref") for side in sides)
        for side in sides:
            found |= dict.fromkeys(_read(constant, is_key) for constant in _constants(side))
    for select in statement.of_type("SelectStmt"):
        for node in (select.limit_count, select.limit_offset):
            if node.HasField("a_const") and node.a_const.HasField("ival"):
                found[Value(Kind.LIMIT, str(node.a_const.ival.ival))] = None
    return tuple(value for value in found if value.text)


def values_gate(values: tuple[Value, ...], question: Said, knowledge: Knowledge) -> Reason | None:
    """Every value is given by the question or by the notes that it draws on."""
    unknown = [value for value in values if not _is_known(value, question, question, knowledge)]
    if unknown:
        told = knowledge.told(question)
        unknown = [value for value in unknown if not _is_known(value, question, told, knowledge)]
    if not unknown:
        return None
    return Reason.LITERAL_KEY if any(value.kind is Kind.KEY for value in unknown) else Reason.UNKNOWN_VALUE


def _is_known(value: Value, question: Said, told: Said, knowledge: Knowledge) -> bool:
    """`told`: the question, with its notes or without."""
    if value.kind is Kind.KEY:
        return Decimal(value.text) in question.numbers
    if any(question.knows_word(word) for word in knowledge.meanings.get(value.text.lower(), ())):
        return True
    if value.kind is Kind.DATE:
        day = _day(value.text)
        return day is None or told.knows_date(day)
    if value.kind in (Kind.NUMBER, Kind.LIMIT):
        number = Decimal(value.text)
        near = {number, number - 1, number + 1} if number == number.to_integral_value() else {number}
        return number in TRIVIAL or bool(near & told.numbers)
    return _knows_text(value.text, told, knowledge)


def _knows_text(text: str, told: Said, knowledge: Knowledge) -> bool:
    words = re.findall(r"[^\W_]+", text.lower())
    telling = [word for word in words if len(word) >= TELLING_LETTERS] or words  # gmail.com is given by "Gmail"
    if all(told.knows_word(word) for word in telling) or "".join(words) in told.run_on:
        return True
    code = len(text) <= CODE_LETTERS or not any(letter.islower() for letter in text)
    spelled = text.lower()
    return code and (
        text in knowledge.listed or spelled in told.initials or any(word.startswith(spelled) for word in told.words)
    )


def _columns(node: Any) -> Iterator[str]:
    """Names of the columns in an expression, sub-selects left out."""
    for field, value in node.ListFields():
        if field.name in ("sub_link", "select_stmt"):
            continue
        if field.name == "column_ref":
            last = value.fields[-1]
            if last.HasField("string"):
                yield last.string.sval
        elif hasattr(value, "ListFields"):
            yield from _columns(value)
        elif field.message_type is not None:
            for element in value:
                yield from _columns(element)


def _computed(node: Any) -> bool:
    """An expression over rows that names no column: `count(*)`, a sub-select."""
    return bool(node.HasField("func_call") or node.HasField("sub_link"))


def _constants(node: Any) -> Iterator[Any]:
    """Constants that are compared: not those that only shape a value, such as the 'month' of date_trunc."""
    if node.HasField("a_const"):
        yield node.a_const
    elif node.HasField("type_cast"):
        yield from _constants(node.type_cast.arg)
    elif node.HasField("list"):
        for element in node.list.items:
            yield from _constants(element)
    elif node.HasField("a_array_expr"):
        for element in node.a_array_expr.elements:
            yield from _constants(element)
    elif node.HasField("a_expr") and node.a_expr.name[0].string.sval in ("+", "-"):
        yield from _constants(node.a_expr.lexpr)
        yield from _constants(node.a_expr.rexpr)
    elif node.HasField("func_call") and node.func_call.funcname[-1].string.sval in _TRANSPARENT:
        for argument in node.func_call.args:
            yield from _constants(argument)


def _read(constant: Any, is_key: bool) -> Value:
    if constant.HasField("ival"):
        return Value(Kind.KEY if is_key else Kind.NUMBER, str(constant.ival.ival))
    if constant.HasField("fval"):
        return Value(Kind.NUMBER, constant.fval.fval)
    if not constant.HasField("sval"):
        return Value(Kind.TEXT, "")
    text = constant.sval.sval.strip().strip("%_").strip()
    if _DATE.match(text):
        return Value(Kind.DATE, text)
    if _DATE_MASK.match(text) and not any(letter.isdigit() for letter in text):
        return Value(Kind.TEXT, "")
    try:
        return Value(Kind.KEY if is_key and text.isdigit() else Kind.NUMBER, str(Decimal(text)))
    except InvalidOperation:
        pass
    interval = re.match(r"^(\d+)\s*(?:days?|weeks?|months?|years?|hours?|minutes?)$", text, re.IGNORECASE)
    return Value(Kind.NUMBER, interval[1]) if interval else Value(Kind.TEXT, text)


def _day(text: str) -> date | None:
    found = _DATE.match(text)
    if found is None:
        return None
    year, month, day = found.groups()
    try:
        return date(int(year), int(month), int(day or 1))
    except ValueError:
        return None
