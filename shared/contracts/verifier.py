"""The verifier's bodies: sandboxes, verdicts, explanations."""

from enum import StrEnum

from pydantic import Field, model_validator

from shared.contracts.base import Contract, Identifier


class Status(StrEnum):
    """What became of one reply."""

    MATCH = "match"  # the result equals a gold's on every seed where that gold is non-empty
    MISMATCH = "mismatch"  # ran, wrong result
    SQL_ERROR = "sql_error"  # Postgres refused it
    TIMEOUT = "timeout"
    NO_SQL = "no_sql"  # the reply holds no statement
    REFUSED = "refused"  # not one read-only SELECT, or touches what it may not
    UNSCORABLE = "unscorable"  # the infrastructure failed; reward is null and the sample leaves the baseline


class Profile(StrEnum):
    """The comparison rule."""

    STANDARD = "standard"  # the answer counts: any column order, half a cent, row order where it is asked for
    STRICT = "strict"  # the gold's table: column order, case and exact numbers count, and the gold's ORDER BY always
    RECIPE = "recipe"  # the published recipe's rule with its faults and rewards, to compare figures with it


class FinishReason(StrEnum):
    """Why the engine stopped writing a reply."""

    STOP = "stop"
    LENGTH = "length"  # cut by the token budget
    ABORT = "abort"


class BundleSource(Contract):
    """A domain bundle sent inline instead of by name."""

    name: Identifier
    schema_sql: str
    seed_sql: str = ""
    variants: dict[str, str] = Field(default_factory=dict, description="variant name to seed SQL")
    statement_timeout_seconds: float = Field(default=5.0, gt=0, le=60)


class SandboxRequest(Contract):
    """`POST /v1/sandboxes`. Give exactly one of `domain` (a name the verifier knows) and `bundle`."""

    sandbox_id: Identifier | None = Field(default=None, description="repeat a call under the same id: same sandbox")
    run_id: Identifier = Field(description="the run or sampling that owns the sandbox")
    domain: Identifier | None = None
    bundle: BundleSource | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "SandboxRequest":
        if (self.domain is None) == (self.bundle is None):
            raise ValueError("give exactly one of `domain` and `bundle`")
        return self


class Sandbox(Contract):
    """A run's own Postgres cluster."""

    sandbox_id: str
    run_id: str
    domain: str
    digest: str = Field(description="the bundle's digest")
    postgres: str = Field(description="server version, as the server reports it")
    isolation: str = Field(
        description="`bubblewrap` or `process`; ` without seccomp` behind it where system calls are not filtered"
    )
    seeds: list[str] = Field(description="`main` and the variants, in the order they are compared")
    ready_ms: float = Field(description="from request to first query answered, milliseconds")


class VerifyItem(Contract):
    """One reply (or bare SQL) to compare with its gold."""

    item_id: str | None = None
    reply: str | None = Field(default=None, description="the raw first assistant turn")
    sql: str | None = Field(default=None, description="a statement to run as it stands, in place of `reply`")
    finish_reason: FinishReason | None = None
    gold: str | list[str] = Field(description="gold query, or several acceptable ones")
    order_matters: bool | None = Field(
        default=None,
        description="None: the gold's outermost ORDER BY decides. Profile `recipe` ignores it; `strict` adds to it",
    )

    @model_validator(mode="after")
    def _one_text(self) -> "VerifyItem":
        if (self.reply is None) == (self.sql is None):
            raise ValueError("give exactly one of `reply` and `sql`")
        if isinstance(self.gold, list) and not self.gold:
            raise ValueError("`gold` is an empty list: give at least one acceptable query")
        return self


class VerifyRequest(Contract):
    """`POST /v1/sandboxes/{id}/verify`."""

    profile: Profile = Profile.STANDARD
    items: list[VerifyItem] = Field(min_length=1, max_length=4096)

    @model_validator(mode="after")
    def _distinct_ids(self) -> "VerifyRequest":
        places: dict[str, int] = {}
        for place, item in enumerate(self.items):
            if item.item_id is not None and (first := places.setdefault(item.item_id, place)) != place:
                raise ValueError(f"items {first} and {place} have the same item_id {item.item_id!r}")
        return self


class SeedResult(Contract):
    """How one seed came out."""

    seed: str
    status: Status
    rows: int | None = None
    gold_rows: int | None = None


class Verdict(Contract):
    """What the verifier says of one item. Holds no gold text."""

    item_id: str | None
    status: Status
    reward: float | None = Field(description="1.0, 0.1 or 0.0; None when unscorable")
    sql: str | None = Field(description="the statement that was extracted")
    reason: str = Field(description="one sentence")
    sqlstate: str | None = Field(
        default=None, description="Postgres' five-character code of an `sql_error`; its first two are the class"
    )
    rows: int | None = Field(default=None, description="rows the candidate returned on the main seed")
    gold_rows: int | None = None
    exec_ms: float | None = Field(default=None, description="candidate execution on the main seed, milliseconds")
    seeds: list[SeedResult] = Field(default_factory=list)


class VerifyResponse(Contract):
    """Verdicts in the order of the items."""

    verdicts: list[Verdict]


class ExplainRequest(Contract):
    """`POST /v1/sandboxes/{id}/explain`: for people, never for models."""

    profile: Profile = Profile.STANDARD
    gold: str | list[str] = Field(description="gold query, or several acceptable ones", min_length=1)
    sql: str
    order_matters: bool | None = None


class ResultPreview(Contract):
    """Column names and the first rows of a result, as text."""

    columns: list[str]
    rows: list[list[str | None]]
    row_count: int
    error: str | None = None


class Explanation(Contract):
    """Both results side by side and the first difference."""

    status: Status
    difference: str
    gold_index: int = Field(description="which acceptable gold is shown: the one that matched, or the closest")
    seed: str = Field(description="whose results are shown: the first where they differ, else `main`")
    gold: ResultPreview
    candidate: ResultPreview


class ExecuteRequest(Contract):
    """`POST /v1/sandboxes/{id}/execute`: run statements on every seed, nothing cached. For the author's gates."""

    statements: list[str] = Field(min_length=1, max_length=4096)
    repeat: int = Field(default=1, ge=1, le=3, description="runs per statement and seed; results must be equal")


class Execution(Contract):
    """One statement on one seed."""

    seed: str
    rows: int | None = Field(description="None when it failed")
    columns: list[str]
    signature: str = Field(description="digest of the rows as a multiset; equal results have equal signatures")
    stable: bool = Field(description="every repeat gave the same multiset")
    all_null: bool
    error: str | None = Field(
        description="None, or what failed and why: `sql_error: …`, `timeout: …`, `oversized: …`, `infrastructure: …`"
    )


class ExecutedStatement(Contract):
    """One statement on all seeds, `main` first. `refused` holds the parser's reason when it was not run."""

    executions: list[Execution]
    refused: str | None = None


class ExecuteResponse(Contract):
    """In the order of the statements."""

    results: list[ExecutedStatement]
