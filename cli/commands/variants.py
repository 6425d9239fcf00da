"""`domain variants`: further seeds for a bundle, chosen so that queries one edit from a gold are found out."""

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from cli.context import Connection, UsageError, command, say
from cli.render import console, plain_table
from shared.clients.base import ServiceUnreachable
from shared.contracts.suites import SuiteProgress, SuiteRequest, SuiteResult
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import BundleSource
from shared.domain import Bundle, bundle_folder, load_bundle

LINE_SECONDS = 5.0
"""Between progress lines."""

GENERATED = "suite-*"
"""Names of the variants that this command makes, and replaces."""


@command
async def variants(
    name: Annotated[str, typer.Argument(help="domain to make seeds for")],
    golds: Annotated[
        Path | None, typer.Option(help="JSON lines with `gold` (text or list) or tasks with golds; else its tasks")
    ] = None,
    count: Annotated[int, typer.Option("--variants", help="seeds to make at most")] = 4,
    pool: Annotated[int, typer.Option(help="candidate seeds to choose from")] = 64,
    seed: Annotated[int, typer.Option(help="the same seed makes the same variants")] = 0,
    golds_at_most: Annotated[int, typer.Option(help="golds used: of more, a sample")] = 200,
    mutants_per_gold: Annotated[int, typer.Option(help="mutants of one gold: of more, a sample")] = 60,
    out: Annotated[Path | None, typer.Option(help="folder for the seeds; else the bundle's `variants`")] = None,
    report: Annotated[Path | None, typer.Option(help="file for the whole report; else in the results folder")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the whole report as JSON, and no table")] = False,
) -> None:
    """Make further seeds so that wrong queries which return the right rows by chance no longer do.

    Queries one edit away from the golds (mutants) are run on candidate seeds; the seeds that tell most of them apart
    are kept, as `variants/suite-<n>.sql`. Verification then compares on them too. The report lists the mutants that no
    seed tells apart: equivalent to their gold, or a gap to look at. It holds golds: keep it from who may not see them.
    """
    connection = Connection()
    folder = bundle_folder(name, connection.domain_folders())
    bundle = load_bundle(folder)
    kept = {other: sql for other, sql in bundle.variants.items() if not Path(other).match(GENERATED)}
    request = SuiteRequest(
        bundle=BundleSource(name=name, schema_sql=bundle.schema_sql, seed_sql=bundle.seed_sql, variants=kept),
        golds=_golds(golds) if golds is not None else await _task_golds(connection, name),
        variants=count,
        pool=pool,
        seed=seed,
        golds_at_most=golds_at_most,
        mutants_per_gold=mutants_per_gold,
    )
    result = await _make(connection, request, quiet=as_json)
    target = out or folder / "variants"
    _write_seeds(target, result)
    report = report or connection.home.folder / "results" / f"variants-{name}.json"
    _write_private(report, result.model_dump_json(indent=1))
    if as_json:
        say(result.model_dump_json(indent=1))
    else:
        _show(result, request, target, report, load_bundle(folder))


def _golds(file: Path) -> list[str]:
    """Raises UsageError naming the line."""
    if not file.is_file():
        raise UsageError(f"--golds: {file} is no file")
    found: list[str] = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            gold = row["gold"] if "gold" in row else row["privileged"]["reference"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise UsageError(
                f"--golds line {number}: give a JSON object with `gold`, or a task with `privileged.reference`"
            ) from error
        found += [gold] if isinstance(gold, str) else gold
    if not found:
        raise UsageError(f"--golds: {file} holds no gold")
    return found


async def _task_golds(connection: Connection, domain: str) -> list[str]:
    """Golds of the domain's tasks. Raises UsageError when it has none."""
    async with connection.author() as author:
        tasks = (await author.tasks(domain, privileged=True)).tasks
    found: list[str] = []
    for task in tasks:
        if isinstance(task, PrivilegedTask):
            reference = task.privileged.reference
            found += [reference] if isinstance(reference, str) else reference
    if not found:
        raise UsageError(f"{domain} has no tasks whose golds this token may see: give --golds FILE")
    return list(dict.fromkeys(found))


async def _make(connection: Connection, request: SuiteRequest, quiet: bool) -> SuiteResult:
    told = 0.0
    async with connection.verifier() as verifier:
        async for line in verifier.suite(request):
            if isinstance(line, SuiteResult):
                return line
            if not quiet and time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                say(f"  {_progress(line)}")
    raise ServiceUnreachable("the verifier's answer ended without a result: nothing was written; try again")


def _progress(line: SuiteProgress) -> str:
    alive = f", {line.alive} of {line.mutants} mutants alive" if line.mutants else ""
    return f"{line.stage}: {line.done} of {line.total}{alive}"


def _write_seeds(folder: Path, result: SuiteResult) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(f"{GENERATED}.sql"):
        stale.unlink()
    for variant in result.variants:
        (folder / f"{variant.name}.sql").write_text(variant.sql, encoding="utf-8")


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _show(result: SuiteResult, request: SuiteRequest, target: Path, report: Path, bundle: Bundle) -> None:
    table = plain_table("mutation", "mutants", "survive main", "survive suite before", "survive suite now")
    tallies = result.by_mutation
    for kind, tally in tallies.items():
        table.add_row(kind, *(str(number) for number in (tally.mutants, tally.main, tally.before, tally.after)))
    totals = [sum(getattr(tally, of) for tally in tallies.values()) for of in ("mutants", "main", "before", "after")]
    share = ["", *(f" ({number / max(1, totals[0]):.1%})" for number in totals[1:])]
    table.add_row("all", *(f"{number}{part}" for number, part in zip(totals, share, strict=True)))
    console().print(table)
    say(f"{result.golds} of {len(set(request.golds))} golds used (at most {request.golds_at_most})")
    for skipped in result.skipped:
        say(f"  left out: {skipped.reason}")
    for variant in result.variants:
        say(
            f"  {target / variant.name}.sql: {variant.rows} rows, {variant.golds} golds have a result, "
            f"kills {variant.kills} mutants that nothing before it does"
        )
    if len(result.variants) < request.variants:
        say(f"  no further seed of {request.pool} tells another mutant apart: {len(result.variants)} are enough")
    say(f"{len(result.unkilled)} mutants are equivalent to their gold or unkilled; look at them in {report}")
    say(f"bundle digest {bundle.digest[:12]}, seeds main, {', '.join(sorted(bundle.variants))}")
