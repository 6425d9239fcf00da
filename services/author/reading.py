"""A proposal read before anything runs: its golds parsed, an ORDER BY that nobody asks for removed, its questions
weighed. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from services.author.gates import (
    Output,
    Reason,
    Value,
    asks_for_order,
    columns_gate,
    date_gate,
    length_gate,
    outputs_of,
    sql_gate,
    statement_gate,
    values_gate,
    values_of,
    without_order,
)
from services.author.gates.knowledge import Knowledge
from services.author.gates.said import Said
from services.author.statement import Statement, depends_on_order, read, tables_of, tie_probe
from services.author.teachers.base import Proposal
from shared.ids import sha256_hex
from shared.sql import SqlSyntaxError

ORDER_REMOVED = "order_by_removed"
"""In a task's provenance: the gold had an ORDER BY that the question does not ask for."""


@dataclass(frozen=True)
class ReadGold:
    """One acceptable gold."""

    sql: str
    probe: str | None
    """The same with ties kept; None where ties cannot matter."""
    depends_on_order: bool
    ordered: bool
    outputs: tuple[Output, ...]
    values: tuple[Value, ...]
    tables_digest: str
    values_digest: str
    """See `judged.Result`."""


@dataclass(frozen=True)
class Reading:
    """A proposal and what can be said of it before its golds run."""

    proposal: Proposal
    reason: Reason | None
    golds: tuple[ReadGold, ...] = ()
    phrasing_reasons: tuple[Reason | None, ...] = ()
    edits: tuple[str, ...] = ()


def read_proposal(proposal: Proposal, knowledge: Knowledge) -> Reading:
    """Everything that needs no database. The first gold that fails decides for all."""
    questions = [Said(phrasing.question) for phrasing in proposal.phrasings]
    asked = [asks_for_order(question) for question in questions]
    golds, edits = [], dict[str, None]()
    for sql in (proposal.gold, *proposal.alternatives):
        try:
            statement = read(sql)
        except SqlSyntaxError:
            return Reading(proposal, Reason.NOT_SQL)
        reason = statement_gate(statement)
        if reason is not None:
            return Reading(proposal, reason)
        if not any(asked) and (unordered := without_order(statement)) is not None:
            edits[ORDER_REMOVED] = None
            sql, statement = unordered, read(unordered)
        golds.append(_read_gold(sql, statement, knowledge))
    passed = replace(
        proposal,
        gold=golds[0].sql,
        alternatives=tuple(dict.fromkeys(gold.sql for gold in golds[1:] if gold.sql != golds[0].sql)),
        order_matters=any(asked) and (proposal.order_matters or golds[0].ordered),
    )
    distinct = {gold.sql: gold for gold in golds}
    reasons = tuple(
        _question_reason(
            question,
            tuple(distinct.values()),
            knowledge,
            order_is_unasked=passed.order_matters and not asks,
            columns_are_given=bool(proposal.columns),
        )
        for question, asks in zip(questions, asked, strict=True)
    )
    return Reading(passed, None, tuple(distinct.values()), reasons, tuple(edits))


def _read_gold(sql: str, statement: Statement, knowledge: Knowledge) -> ReadGold:
    values = values_of(statement, knowledge.keys)
    return ReadGold(
        sql=sql,
        depends_on_order=depends_on_order(statement),
        ordered=bool(statement.outermost.sort_clause),
        outputs=outputs_of(statement),
        values=values,
        tables_digest=sha256_hex(str(sorted(tables_of(statement)))),
        values_digest=sha256_hex(str(sorted((value.kind, value.text) for value in values))),
        probe=tie_probe(statement),  # last: it changes the tree
    )


def _question_reason(
    question: Said,
    golds: tuple[ReadGold, ...],
    knowledge: Knowledge,
    order_is_unasked: bool,
    columns_are_given: bool,
) -> Reason | None:
    """Of several acceptable golds, one that fits the question is enough."""
    alone = length_gate(question) or sql_gate(question) or date_gate(question, knowledge.all_notes)
    if alone is not None:
        return alone
    if order_is_unasked:
        return Reason.ORDER_NOT_ASKED
    unknown = _unless_any_passes(values_gate(gold.values, question, knowledge) for gold in golds)
    if unknown is not None or columns_are_given:
        return unknown
    return _unless_any_passes(columns_gate(gold.outputs, question, knowledge) for gold in golds)


def _unless_any_passes(reasons: Iterable[Reason | None]) -> Reason | None:
    first: Reason | None = None
    for reason in reasons:
        if reason is None:
            return None
        first = first or reason
    return first
