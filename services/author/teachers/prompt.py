"""Every word a model teacher is told. Texts first, then the functions that fill them in. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from services.author.catalogue import Catalogue, Kind
from services.author.teachers.cells import Cell
from shared.contracts.tasks import Archetype, Difficulty
from shared.domain import Bundle, description
from shared.ids import sha256_hex

RULES = """\
You write exam questions about one PostgreSQL database, each with the query that answers it. They test whether someone
can turn a question of a colleague into SQL, so a question must have exactly one right answer.

The query
- is one SELECT that only reads, names its columns (no SELECT *), and uses nothing that changes by the day or the call
  (now, current_date, random);
- returns exactly the columns its question asks for, in that order, and between 1 and 50 rows;
- has ORDER BY only where the question asks for an order, or where a LIMIT needs one; an order or a LIMIT must not be
  decided by ties: break them, and say in the question how ("ties by lower id");
- rounds computed numbers that are not whole to {decimals} decimals;
- uses no value that neither its question nor the notes or the schema give, and never an id in place of a rule;
- compares with values that occur in the data, and stays non-empty if other rows of the same kind were loaded.

The question
- is what a person who knows the business but not the tables would ask, in 20 to 700 characters, with no SQL and no
  table or column name in it that is not also plain English;
- says everything the query relies on: which columns, which rows, which period with both ends (dates as
  2024-01-31), how ties are broken, what happens with missing values where it matters. Two careful readers must end with
  the same rows;
- asks for nothing that the query does not return.

Reply with one JSON object and nothing else:
{{"proposals": [{{"questions": [{{"style": "...", "question": "..."}}], "sql": "...", "columns": ["..."],
"order_matters": false, "archetype": "...", "difficulty": "easy|medium|hard"}}]}}
`columns` says in words what each column of the result is. `order_matters` is true only where the question asks for an
order of the rows. `difficulty` is your own opinion.
"""

ARCHETYPES: dict[Archetype, str] = {
    Archetype.FILTER: "rows of one table that meet conditions",
    Archetype.JOIN: "two or more tables joined along their keys",
    Archetype.GROUPING: "figures per group: GROUP BY, perhaps with HAVING",
    Archetype.TOP_N: "the first N by some measure, ties broken",
    Archetype.DATE_BUCKETS: "figures per day, week, month, quarter or year",
    Archetype.ANTI_JOIN: "what has no counterpart: NOT EXISTS or LEFT JOIN … IS NULL",
    Archetype.SELF_JOIN: "a table compared with itself",
    Archetype.DERIVED_METRIC: "a figure computed by one of the notes' formulas, or a ratio of aggregates",
    Archetype.SET_LOGIC: "UNION, INTERSECT, EXCEPT or DISTINCT: membership in several sets",
    Archetype.WINDOW: "window functions: ranks, shares, running totals, differences to the row before",
}

DIFFICULTIES: dict[Difficulty, str] = {
    Difficulty.EASY: "little beyond the bare pattern: one condition, no second step",
    Difficulty.MEDIUM: "two or three constructs together: a join with a condition and an aggregate, say",
    Difficulty.HARD: "four or more constructs: subqueries or CTEs, several joins, conditions on aggregates, CASE",
}

STYLES: dict[str, str] = {
    "terse": "as few words as still say everything, no verb needed",
    "plain": "one ordinary sentence",
    "polite": "a courteous request to a colleague",
    "business": "the words of a report: what is needed and for what scope",
    "curious": "a genuine question with a question mark: who, which, how many",
}

MAXIMUM_EXAMPLES = 40
"""Earlier questions shown to avoid repeats: the newest of the same archetype."""

VALUES_PER_COLUMN = 8
VALUE_CHARACTERS = 40
VALUES_CHARACTERS = 8_000
"""Bounds of the sample values that a model is shown."""


@dataclass(frozen=True)
class Prompt:
    """One call: what every call of an authoring shares (cached by the provider), and what is its own."""

    system: str
    user: str
    structured: bool = False
    """Whether the reply is to be the JSON of `RULES`."""

    @property
    def hash(self) -> str:
        """SHA-256 of both parts."""
        return sha256_hex(json.dumps([self.system, self.user]))


def teacher_system(bundle: Bundle, catalogue: Catalogue, show_values: bool) -> str:
    """What every proposing call begins with: rules, schema, notes and, where allowed, values that occur."""
    rules = RULES.format(decimals=bundle.settings.round_decimals)
    values = f"\n\n# Values that occur\n{sample_values(catalogue)}" if show_values else ""
    return f"{rules}\n{description(bundle)}{values}"


def sample_values(catalogue: Catalogue) -> str:
    """One line a column: some of its distinct values in the main seed, keys left out; bounded."""
    lines: list[str] = []
    for table in catalogue.tables.values():
        for column in table.columns:
            if column.kind is Kind.OTHER or catalogue.is_key(column):
                continue
            found = sorted({str(row[column.name]) for row in table.rows if row.get(column.name) is not None})
            step = max(1, len(found) // VALUES_PER_COLUMN)
            shown = [value[:VALUE_CHARACTERS] for value in found[::step][:VALUES_PER_COLUMN]]
            if shown:
                lines.append(f"{table.name}.{column.name}: {json.dumps(shown, ensure_ascii=False)}")
    text = "\n".join(lines)
    return text if len(text) <= VALUES_CHARACTERS else text[:VALUES_CHARACTERS].rsplit("\n", 1)[0]


def proposing_request(cell: Cell, proposals: int, phrasings: int, styles: Sequence[str], known: Sequence[str]) -> str:
    """What one proposing call asks for. `known` are questions to stay away from; only the newest are shown."""
    told = "; ".join(f"{name} ({STYLES[name]})" for name in styles)
    wording = (
        f"Word each question in {phrasings} ways that all have the same answer, in different styles of these: {told}."
        if phrasings > 1
        else f"Word each question in one of these styles, varied over the proposals: {told}."
    )
    text = (
        f"Write exactly {proposals} proposals.\n"
        f"Kind: {cell.archetype} ({ARCHETYPES[cell.archetype]}).\n"
        f"Difficulty: {cell.difficulty} ({DIFFICULTIES[cell.difficulty]}).\n"
        f"{wording}\n"
        "Vary tables, columns, conditions and shape: no two proposals may differ only in a value."
    )
    if known:
        shown = "\n".join(f"- {question}" for question in known[-MAXIMUM_EXAMPLES:])
        text += f"\nThese exist already; write none that means the same:\n{shown}"
    return text
