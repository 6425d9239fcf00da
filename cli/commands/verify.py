"""`verify`: verdicts for one reply, for a JSONL file of them, or for standard input."""

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from cli.context import BAD_INPUT, FAILED, Connection, UsageError, command, say
from cli.verify_lines import Fault, NumberedItem, calls, read_lines
from cli.verify_view import explanation_view, summary, verdict_table
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import (
    BundleSource,
    ExplainRequest,
    Explanation,
    Profile,
    SandboxRequest,
    Status,
    Verdict,
    VerifyItem,
    VerifyRequest,
)
from shared.domain import load_bundle

PROGRESS_SECONDS = 10.0


@command
async def verify(
    file: Annotated[
        str | None, typer.Argument(help="JSON lines {reply|sql, gold, item_id?, …}; `-`: standard input")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="domain to run on, by name")] = None,
    bundle: Annotated[Path | None, typer.Option(help="bundle folder to run on, in place of --domain")] = None,
    reply: Annotated[str | None, typer.Option(help="one model's reply, in place of FILE")] = None,
    sql: Annotated[str | None, typer.Option(help="one bare statement, in place of FILE")] = None,
    gold: Annotated[
        list[str] | None, typer.Option(help="its gold query; again for each further acceptable one")
    ] = None,
    profile: Annotated[Profile, typer.Option(help="the comparison rule")] = Profile.STANDARD,
    explain: Annotated[bool, typer.Option(help="for what does not match: both results and the difference")] = False,
    check: Annotated[bool, typer.Option(help="exit 1 unless all match")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="a JSON object a line, with its line number")] = False,
) -> None:
    """Compare replies with golds in a sandbox of their own.

    A line that is no item is named on standard error (FILE:LINE: field: what) and costs no other line its verdict.

    Exit 0: every line has a verdict. 1: some are unscorable, or the verifier is away, or --check and some do not
    match. 2: bad input.
    """
    lines = _single(reply, sql, gold) if file is None else _lines(file, reply, sql, gold)
    wanted = _sandbox(domain, bundle)
    async with Connection().verifier() as client:
        sandbox = await client.create_sandbox(wanted)
        run = _Run(
            client, sandbox.sandbox_id, profile, explain, as_json, "standard input" if file == "-" else str(file)
        )
        try:
            await run.all(lines)
        finally:
            await client.delete_sandbox(sandbox.sandbox_id)
    raise typer.Exit(run.finish(check))


def _sandbox(domain: str | None, bundle: Path | None) -> SandboxRequest:
    run_id = f"cli-{uuid.uuid4().hex[:8]}"
    if (domain is None) == (bundle is None):
        raise UsageError("give exactly one of --domain NAME and --bundle FOLDER")
    if bundle is None:
        return SandboxRequest(run_id=run_id, domain=domain)
    loaded = load_bundle(bundle)
    source = BundleSource(
        name=loaded.name,
        schema_sql=loaded.schema_sql,
        seed_sql=loaded.seed_sql,
        variants=loaded.variants,
        statement_timeout_seconds=loaded.settings.statement_timeout_seconds,
    )
    return SandboxRequest(run_id=run_id, bundle=source)


def _single(reply: str | None, sql: str | None, gold: list[str] | None) -> Iterable[NumberedItem | Fault]:
    if not gold or (reply is None) == (sql is None):
        raise UsageError("give FILE (or `-`), or --gold and one of --reply and --sql")
    return [NumberedItem(1, VerifyItem(reply=reply, sql=sql, gold=gold))]


def _lines(file: str, reply: str | None, sql: str | None, gold: list[str] | None) -> Iterable[NumberedItem | Fault]:
    if reply is not None or sql is not None or gold:
        raise UsageError("FILE holds replies and golds: leave out --reply, --sql and --gold")
    if file == "-":
        return read_lines(sys.stdin.buffer)
    if not Path(file).is_file():
        raise UsageError(f"{file} is no file (a domain is named by --domain)")
    return read_lines(_lines_of(Path(file)))


def _lines_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


@dataclass
class _Run:
    """One command's verdicts, counted and shown."""

    client: VerifierClient
    sandbox_id: str
    profile: Profile
    explain: bool
    as_json: bool
    source: str
    """What a fault's place is called."""
    statuses: Counter[Status] = field(default_factory=Counter)
    faults: int = 0
    rows: list[tuple[NumberedItem, Verdict]] = field(default_factory=list)
    """What the table will hold; JSON goes out at once."""
    explanations: list[Explanation | None] = field(default_factory=list)
    """One a row."""
    told_at: float = field(default_factory=time.monotonic)

    async def all(self, lines: Iterable[NumberedItem | Fault]) -> None:
        """Verify the items call by call; name the faults as they are met."""
        for call in calls(self._items(lines)):
            request = VerifyRequest(profile=self.profile, items=[numbered.item for numbered in call])
            answer = await self.client.verify(self.sandbox_id, request)
            for numbered, verdict in zip(call, answer.verdicts, strict=True):
                self.statuses[verdict.status] += 1
                self._take(numbered, verdict, await self._explanation(numbered.item, verdict))
            if time.monotonic() - self.told_at > PROGRESS_SECONDS:
                self.told_at = time.monotonic()
                self._tell(f"{self.statuses.total()} verified, to line {call[-1].line}")

    def _items(self, lines: Iterable[NumberedItem | Fault]) -> Iterator[NumberedItem]:
        for line in lines:
            if isinstance(line, NumberedItem):
                yield line
            else:
                self.faults += 1
                self._tell(f"{self.source}:{line.line}: {line.what}")

    def _tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def _explanation(self, item: VerifyItem, verdict: Verdict) -> Explanation | None:
        if not self.explain or verdict.sql is None or verdict.status is Status.MATCH:
            return None
        asked = ExplainRequest(profile=self.profile, gold=item.gold, sql=verdict.sql, order_matters=item.order_matters)
        return await self.client.explain(self.sandbox_id, asked)

    def _take(self, numbered: NumberedItem, verdict: Verdict, explanation: Explanation | None) -> None:
        if not self.as_json:
            self.rows.append((numbered, verdict))
            self.explanations.append(explanation)
            return
        shown = {"line": numbered.line} | verdict.model_dump(mode="json")
        if explanation is not None:
            shown["explanation"] = explanation.model_dump(mode="json")
        say(json.dumps(shown))

    def finish(self, check: bool) -> int:
        """Show the table, the explanations and the counts; answer the exit code."""
        if self.as_json:
            self._tell(summary(self.statuses, self.faults))
        else:
            verdict_table(self.rows)
            for (numbered, verdict), explanation in zip(self.rows, self.explanations, strict=True):
                if explanation is not None:
                    explanation_view(numbered, verdict, explanation)
            say(summary(self.statuses, self.faults))
        if self.faults:
            return BAD_INPUT
        unmatched = self.statuses.total() - self.statuses[Status.MATCH]
        return FAILED if self.statuses[Status.UNSCORABLE] or (check and unmatched) else 0
