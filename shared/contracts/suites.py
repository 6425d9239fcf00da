"""The verifier's suites: further seeds for a bundle that tell its golds apart from queries one edit away.

Everything here may hold golds or what is one edit away from them: for the `gold` scope only.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.base import Contract, Problem
from shared.contracts.verifier import BundleSource


class MutationKind(StrEnum):
    """What one edit of a gold changes."""

    AGGREGATE = "aggregate"  # sum ↔ avg, min ↔ max, …
    ARITHMETIC = "arithmetic"  # + ↔ -, * ↔ /
    CASE = "case"  # a WHEN or the ELSE dropped
    CAST = "cast"  # dropped: integer division
    COLUMN = "column"  # another column of the same type and table
    COMPARISON = "comparison"  # <, <=, =, <>, >, >=, BETWEEN half open
    CONNECTIVE = "connective"  # AND ↔ OR
    COUNT = "count"  # COUNT(*) ↔ COUNT(column)
    DATE_UNIT = "date_unit"  # of date_trunc and extract
    DISTINCT = "distinct"  # added or dropped, in SELECT and in aggregates
    FUNCTION = "function"  # lower, upper, abs, … dropped
    GROUPING = "grouping"  # a GROUP BY key dropped
    HAVING = "having"  # dropped
    INTERVAL = "interval"  # its amount
    JOIN_COLUMN = "join_column"  # another column in a join condition
    JOIN_TYPE = "join_type"  # inner, left, right, full
    LIKE = "like"  # LIKE ↔ ILIKE, a wildcard dropped
    LIMIT = "limit"  # one more, one less, dropped; OFFSET too
    LITERAL = "literal"  # off by one, another value of that column
    NEGATION = "negation"  # NOT added or dropped: EXISTS, IN, LIKE, BETWEEN, a boolean
    NULL_HANDLING = "null_handling"  # COALESCE or NULLIF dropped, IS NULL ↔ IS NOT NULL
    PREDICATE = "predicate"  # one conjunct, the WHERE or a FILTER dropped
    SET_OPERATION = "set_operation"  # UNION, UNION ALL, INTERSECT, EXCEPT
    SORT = "sort"  # direction, NULLS, a key dropped
    WINDOW = "window"  # partition, order, frame dropped; rank ↔ dense_rank ↔ row_number


class SuiteRequest(Contract):
    """`POST /v1/suites`."""

    bundle: BundleSource = Field(description="its `variants` count as part of the suite already")
    golds: list[str] = Field(min_length=1, max_length=20_000, description="the gold queries whose mutants must die")
    variants: int = Field(default=4, ge=1, le=16, description="seeds to make at most; fewer where one more kills none")
    pool: int = Field(default=64, ge=1, le=1000, description="candidate seeds to choose from")
    seed: int = Field(default=0, ge=0, description="of all random draws")
    golds_at_most: int = Field(default=200, ge=1, le=2000, description="golds used: a sample, drawn by `seed`")
    mutants_per_gold: int = Field(
        default=60, ge=1, le=500, description="mutants of one gold: a sample, as even by kind"
    )


class SuiteStage(StrEnum):
    """What a suite is being made of, in this order."""

    MUTANTS = "mutants"  # parsing the golds; units: golds
    SUITE = "suite"  # mutants on the seeds there are; units: seeds
    POOL = "pool"  # what they leave alive, on the candidate seeds; units: seeds
    CHECK = "check"  # the chosen seeds, loaded as verification will; units: seeds


class SuiteProgress(Contract):
    """A line every few seconds while a suite is made."""

    kind: Literal["progress"] = "progress"
    stage: SuiteStage
    done: int
    total: int
    mutants: int = Field(default=0, description="valid mutants of all golds")
    alive: int = Field(default=0, description="of those, not yet killed by any seed")


class Tally(Contract):
    """Mutants of one kind. Those that are equivalent to their gold are among the survivors."""

    mutants: int
    main: int = Field(description="survive the main seed alone")
    before: int = Field(description="survive the seeds the bundle had: main and its variants")
    after: int = Field(description="survive those and the new ones")


class Unkilled(Contract):
    """A mutant that no seed tells apart from its gold: equivalent, or a gap. Privileged."""

    gold: str
    mutation: MutationKind
    sql: str


class SkippedGold(Contract):
    """A gold that was not used. Privileged."""

    gold: str
    reason: str


class NewVariant(Contract):
    """One chosen seed."""

    name: str
    sql: str
    kills: int = Field(description="mutants it kills that nothing before it does")
    rows: int
    golds: int = Field(description="golds that return at least one row on it")


class SuiteResult(Contract):
    """The last line: the seeds and what they do. Privileged."""

    kind: Literal["result"] = "result"
    variants: list[NewVariant]
    golds: int = Field(description="used")
    skipped: list[SkippedGold]
    mutants: int
    invalid: int = Field(description="mutants left out: Postgres refuses them whatever the rows")
    by_mutation: dict[MutationKind, Tally]
    unkilled: list[Unkilled]


class SuiteFailure(Contract):
    """The last line when it failed midway."""

    kind: Literal["failure"] = "failure"
    problem: Problem


SuiteLine = Annotated[SuiteProgress | SuiteResult | SuiteFailure, Field(discriminator="kind")]
"""One line of the NDJSON answer."""
