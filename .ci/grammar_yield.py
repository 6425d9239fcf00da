"""Acceptance A1 of issue 4: the grammar teacher on the shop and on six databases of others, through the real services.

    python .ci/grammar_yield.py [--home FOLDER] [--sample FILE [--seed N]] [DOMAIN …]

Each database becomes a bundle (`domain init --from-sql`), is authored through the author and verifier of a local stack
of its own, and must keep enough tasks; no gold that errs is kept, and hardly any may be
proposed. Prints kept tasks, golds, archetype by difficulty, what the
schema does not allow, and rejections by reason. `--sample` writes 50 questions with their golds, spread over all seven,
for a person to read. Minutes on 2 cores.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cli.context import Connection
from cli.follow import follow
from cli.stack.home import HOME_VARIABLE
from shared.clients.author import AuthorClient
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState
from shared.contracts.tasks import Archetype, Difficulty, PrivilegedTask

DATA = Path(__file__).parents[2] / "shared" / "data" / "defog"
SHOP = "shop"
OTHERS = ("academic", "broker", "car_dealership", "derm_treatment", "geography", "scholar")
GOLDS = {SHOP: 6400} | dict.fromkeys(OTHERS, 600)
LEAST_TASKS, LEAST_GOLDS = 6000, 150
SAMPLE = 50
NOT_ALLOWED = {name: frozenset({Archetype.DATE_BUCKETS}) for name in ("academic", "geography", "scholar")}
"""They have no date and no timestamp at all."""
ERRORS = ("error", "timeout", "refused", "not_sql", "not_one_select", "not_read_only", "select_star", "clock_or_random")
"""Reasons that say the gold itself is broken; the others say that it makes no good task on these rows.

The gates run every gold twice on every seed, so no kept one errs. What errs is a share of nothing on a variant, rarely.
"""
MOST_ERRORS = 0.001


def command(*words: str) -> None:
    """Run a `sqlclimb` command on this script's stack; its output is shown when it fails."""
    done = subprocess.run([sys.executable, "-m", "cli.main", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"sqlclimb {' '.join(words)}: {done.stdout}{done.stderr}")


async def authored(client: AuthorClient, domain: str) -> Authoring:
    """The finished authoring of a domain."""
    name = f"yield-{domain}"
    await client.start(AuthoringRequest(authoring_id=name, domain=domain, golds=GOLDS[domain]))
    found = await follow(
        lambda: client.authoring(name), lambda one: one.state is not AuthoringState.RUNNING, lambda one: str(one.kept)
    )
    if found.state is AuthoringState.FAILED:
        raise SystemExit(f"authoring of {domain} failed: {found.error}")
    return found


def report(domain: str, done: Authoring, seconds: float) -> list[str]:
    """Print the yield; what falls short."""
    result = done.result
    if result is None:
        return [f"{domain}: {done.error}"]
    print(
        f"\n{domain}: kept {result.kept} tasks over {result.golds} golds of {result.proposed} proposed "
        f"in {seconds:.0f} s"
        f"; holdout {result.holdout_tasks} over {result.holdout_golds}"
    )
    for archetype in Archetype:
        levels = result.matrix.get(archetype, {})
        print(f"  {archetype:<15} " + "  ".join(f"{level} {levels.get(level, 0):>4}" for level in Difficulty))
    print("  rejected: " + ", ".join(f"{reason} {count}" for reason, count in sorted(result.rejected.items())))
    for kind, needed in result.absent.items():
        print(f"  no {kind}: takes {needed}")
    faults = [
        f"{domain}: {count} proposals with {reason}"
        for reason in ERRORS
        if (count := result.rejected.get(reason, 0)) > MOST_ERRORS * result.proposed
    ]
    enough = result.kept >= LEAST_TASKS if domain == SHOP else result.golds >= LEAST_GOLDS
    if not enough:
        faults.append(f"{domain}: {result.kept} tasks over {result.golds} golds are too few")
    absent = NOT_ALLOWED.get(domain, frozenset())
    faults += [f"{domain}: no {kind} task" for kind in Archetype if kind not in result.matrix and kind not in absent]
    reached = {level for row in result.matrix.values() for level in row}
    return faults + [f"{domain}: no {level} task" for level in Difficulty if level not in reached]


def sample_of(tasks: dict[str, list[PrivilegedTask]], seed: int) -> str:
    """`SAMPLE` tasks as a Markdown table, the same for the same tasks and seed."""
    dice = random.Random(seed)
    lines = ["| # | domain | archetype | question | gold |", "|---|---|---|---|---|"]
    for number in range(SAMPLE):
        domain = list(tasks)[number % len(tasks)]
        task = dice.choice(tasks[domain])
        cells = [str(number + 1), domain, task.archetype, task.question, f"`{task.privileged.reference}`"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


async def run(domains: list[str]) -> tuple[list[str], dict[str, list[PrivilegedTask]]]:
    """Author all; what falls short, and the tasks by domain."""
    faults: list[str] = []
    tasks: dict[str, list[PrivilegedTask]] = {}
    async with Connection().author() as client:
        for domain in domains:
            started = time.monotonic()
            done = await authored(client, domain)
            faults += report(domain, done, time.monotonic() - started)
            found = (await client.tasks(domain, privileged=True)).tasks
            tasks[domain] = [task for task in found if isinstance(task, PrivilegedTask)]
    return faults, tasks


def main() -> None:
    """Parse, run, exit 1 where something fell short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("domains", nargs="*", default=[SHOP, *OTHERS])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--sample", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="yield-") as scratch:
        os.environ[HOME_VARIABLE] = str(options.home or scratch)
        try:
            command("up", "author")
            for domain in options.domains:
                if domain != SHOP:
                    command("domain", "init", domain, "--from-sql", str(DATA / domain / f"{domain}.sql"))
            faults, tasks = asyncio.run(run(options.domains))
            if options.sample:
                options.sample.write_text(sample_of(tasks, options.seed), encoding="utf-8")
        finally:
            command("down")
    print("\n" + ("\n".join(faults) or "all as it should be"))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
