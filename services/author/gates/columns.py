"""Whether a gold returns the columns that its question asks for. Pure.

With a teacher's list of columns the count decides. Without one, what a question surely does not ask for is found: a key
beside the name of the same row where no id is asked for, a column none of whose words occur, a second column where one
figure is asked for. Too many is what public golds get wrong; a missing column is left to the second opinion.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from services.author.gates.knowledge import Knowledge
from services.author.gates.ordering import TIES_BROKEN
from services.author.gates.reasons import Reason
from services.author.gates.said import Said
from services.author.statement import Statement

_IDENTIFIES = re.compile(r"\b(?:ids?|identifiers?|keys?|codes?)\b|\b(?:numbers?|no\.)(?!\s+of\b)", re.IGNORECASE)
_FIGURE = re.compile(
    r"^\s*(?:(?:so|please|hi|hello|hey|ok)[,:]?\s+)?(?:how many|how much|what(?:'s| is| was| were| are) the "
    r"(?:total|overall|average|mean|number|count|sum|median|share|percentage|ratio|highest|lowest|maximum|minimum))\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\b(?:each|every|per|by|for all|respective\w*|along|and|or|list|show|give|return|both|broken|split|grouped|versus"
    r"|vs|their"
    r"|which|who|whose|across|among the|different|differ|compare[ds]?|change[ds]?|month\w*|dai?ly|year\w*|week\w*"
    r"|quarter\w*|top|bottom|\d+)\b|,",
    re.IGNORECASE,
)
_ORDERING = re.compile(
    r"[,;]?\s*\b(?:(?:results? |rows? |them )?(?:order(?:ed)?|sort(?:ed)?|rank(?:ed)?|arranged?)"
    r"(?: (?:the )?(?:results?|rows?|list|output|them))? by)\b[^.;?]*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Output:
    """One output column of the outermost SELECT."""

    name: str
    """The column's own name; empty where it is computed."""
    qualifier: str
    """The table or alias it is written with; empty without."""
    used: bool
    """Whether the statement names the column anywhere else."""


def outputs_of(statement: Statement) -> tuple[Output, ...]:
    """Of the first branch of a set operation."""
    select = statement.outermost
    while select.HasField("larg"):
        select = select.larg
    named = Counter(reference.fields[-1].string.sval for reference in statement.of_type("ColumnRef"))
    return tuple(_output(target.res_target.val, named) for target in select.target_list)


def _output(value: Any, named: Counter[str]) -> Output:
    if not value.HasField("column_ref"):
        return Output("", "", True)
    fields = [field.string.sval for field in value.column_ref.fields]
    return Output(fields[-1], fields[-2] if len(fields) > 1 else "", named[fields[-1]] > 1)


def count_gate(asked: int, returned: int) -> Reason | None:
    """As many columns as the teacher says that the question asks for; 0 where it does not say."""
    return Reason.COLUMNS if asked and asked != returned else None


def columns_gate(outputs: tuple[Output, ...], question: Said, knowledge: Knowledge) -> Reason | None:
    """No output that the question surely does not ask for."""
    if len(outputs) < 2:
        return None
    if _FIGURE.match(question.text) and not _SEVERAL.search(_FIGURE.sub("", question.text)):
        return Reason.EXTRA_COLUMN
    named = [output for output in outputs if output.name]
    asked = Said(TIES_BROKEN.sub(" ", _ORDERING.sub(" ", question.text))) if named else question
    labels = [output for output in named if knowledge.is_label(output.name)]
    for output in named:
        if output in labels:
            continue
        if output.name in knowledge.keys:
            beside = any(label.qualifier == output.qualifier for label in labels)
            if beside and not _names_key(output.name, asked):
                return Reason.EXTRA_COLUMN
        elif not output.used and output.name in knowledge.facts and not _names_fact(output.name, asked, knowledge):
            return Reason.EXTRA_COLUMN
    return None


def _names_key(name: str, asked: Said) -> bool:
    """Whether an id is asked for, in whatever words."""
    return _IDENTIFIES.search(asked.text) is not None or name.lower() in asked.text.lower()


def _names_fact(name: str, asked: Said, knowledge: Knowledge) -> bool:
    """Whether a word of the column's name, or of its comment in the schema, stands in the question in some form."""
    words = [*name.split("_"), *(word for word in Said(knowledge.comments.get(name, "")).words if len(word) >= 4)]
    return any(asked.knows_word(word) for word in words) or any(word in name for word in asked.words if len(word) >= 4)
