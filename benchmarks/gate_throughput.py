"""Proposals per second through the author's gates (A5 of issue 4), and how the near-duplicate index grows. Domain shop.

A proposal is a gold with its three questions; the teacher's own time is left out (proposals are made beforehand). Ours:
every gate, golds twice on all three seeds, once more on reversed rows where order may matter, ties probed, then the
gates that see all tasks. The rival: the published recipe's gates (main seed only, run twice, 1 to 50 rows, not all
NULL, no `SELECT *`, question length, word Jaccard of at most 0.75 to every kept question, compared one by one), through
the same verifier. In turn, raw series printed. The ratio is ours over the rival's; the target is 100 a second.

Then the gates that see all tasks at once, alone, at 5,000, 10,000 and 20,000 questions: CPU seconds, and the exponent
between them (2 would be quadratic), beside the recipe's comparison one by one.
"""

import argparse
import asyncio
import itertools
import json
import math
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from support.grpo_mix import shop
from support.running_verifier import RunningVerifier, running_verifier, temporary_folder

from services.author.assembly import Origin, assemble
from services.author.catalogue import read_catalogue
from services.author.duplicates import jaccard, words_of
from services.author.grounds import open_grounds
from services.author.judged import Judged
from services.author.judging import judge
from services.author.run import BATCH_GOLDS
from services.author.teachers.base import Assignment, Proposal
from services.author.teachers.grammar import GrammarTeacher
from shared.contracts.verifier import BundleSource, ExecuteRequest, SandboxRequest
from shared.domain import Bundle

TARGET_PER_SECOND = 100.0
RECIPE_JACCARD = 0.75
RIVAL_SANDBOX = "recipe"
INDEXED = (5_000, 10_000, 20_000)
ORIGIN = Origin("grammar", "benchmark", "shop", "0" * 64)


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--golds", type=int, default=640)
    arguments = parser.parse_args()
    bundle = shop()
    proposals = asyncio.run(proposed(bundle, max(arguments.golds, INDEXED[-1] // 3 + 1)))
    with temporary_folder() as folder, running_verifier(folder) as verifier:
        ours, rival = asyncio.run(measure(verifier, bundle, proposals[: arguments.golds], arguments.alternations))
    grow(proposals)
    mean_ours, mean_rival = statistics.median(ours), statistics.median(rival)
    result = {
        "name": "gate_throughput",
        "ours": round(mean_ours, 1),
        "rival": round(mean_rival, 1),
        "ratio": round(mean_ours / mean_rival, 2),
        "target": TARGET_PER_SECOND,
        "unit": "proposals/s",
    }
    print(json.dumps(result))


async def proposed(bundle: Bundle, golds: int) -> list[Proposal]:
    """The grammar's proposals."""
    catalogue = read_catalogue(bundle.schema_sql, bundle.seed_sql)
    teacher = GrammarTeacher()
    return [one async for one in teacher.propose(Assignment(catalogue, 0, golds, 3)) if isinstance(one, Proposal)]


async def measure(
    verifier: RunningVerifier, bundle: Bundle, proposals: Sequence[Proposal], alternations: int
) -> tuple[list[float], list[float]]:
    """Proposals per second of both sides, in turn; one round of each first that does not count."""
    ours: list[float] = []
    rival: list[float] = []
    main_only = replace(bundle, variants={})
    source = BundleSource(name="shop", schema_sql=main_only.schema_sql, seed_sql=main_only.seed_sql)
    async with verifier.client() as client, open_grounds(client, bundle, "ours") as grounds:
        await client.create_sandbox(SandboxRequest(sandbox_id=RIVAL_SANDBOX, run_id=RIVAL_SANDBOX, bundle=source))
        for alternation in range(alternations + 1):
            began = time.perf_counter()
            judged = []
            for start in range(0, len(proposals), BATCH_GOLDS):
                batch = await judge(grounds, proposals[start : start + BATCH_GOLDS])
                judged += [replace(entry, position=start + entry.position) for entry in batch]
            kept = len(assemble(judged, ORIGIN).tasks)
            mine = len(proposals) / (time.perf_counter() - began)

            began = time.perf_counter()
            theirs_kept: list[frozenset[str]] = []
            for start in range(0, len(proposals), BATCH_GOLDS):
                part = proposals[start : start + BATCH_GOLDS]
                request = ExecuteRequest(statements=[one.gold for one in part], repeat=2)
                results = (await client.execute(RIVAL_SANDBOX, request)).results
                for one, result in zip(part, results, strict=True):
                    run = result.executions[0] if result.executions else None
                    if run and not run.error and run.stable and not run.all_null and 1 <= (run.rows or 0) <= 50:
                        recipe_keeps(one, theirs_kept)
            theirs = len(proposals) / (time.perf_counter() - began)
            note = "  (not counted)" if alternation == 0 else ""
            print(
                f"ours {mine:7.1f}/s, {kept} tasks kept; recipe {theirs:7.1f}/s, {len(theirs_kept)} kept{note}",
                flush=True,
            )
            if alternation:
                ours.append(mine)
                rival.append(theirs)
    print("ours ", [round(value, 1) for value in ours])
    print("rival", [round(value, 1) for value in rival])
    return ours, rival


def recipe_keeps(proposal: Proposal, kept: list[frozenset[str]]) -> None:
    """The recipe's rules on text, each question against every kept one."""
    if re.search(r"select\s+\*", proposal.gold, re.IGNORECASE):
        return
    for phrasing in proposal.phrasings:
        words = words_of(phrasing.question)
        if 20 <= len(phrasing.question) <= 700 and all(jaccard(words, other) <= RECIPE_JACCARD for other in kept):
            kept.append(words)


def grow(proposals: Sequence[Proposal]) -> None:
    """CPU seconds to assemble so many questions; for the smaller counts also to compare them as the recipe does."""
    ours: list[float] = []
    rival: list[float] = []
    for count in INDEXED:
        judged = [Judged(position, one, None) for position, one in enumerate(proposals[: count // 3])]
        began = time.process_time()
        kept = len(assemble(judged, ORIGIN).tasks)
        ours.append(time.process_time() - began)
        print(f"{count:6d} questions: ours {ours[-1]:5.2f} s of CPU, {kept} kept", flush=True)
    for count in INDEXED[:-1]:
        theirs: list[frozenset[str]] = []
        began = time.process_time()
        for one in proposals[: count // 3]:
            recipe_keeps(one, theirs)
        rival.append(time.process_time() - began)
        print(f"{count:6d} questions: recipe {rival[-1]:5.2f} s of CPU, {len(theirs)} kept", flush=True)
    print(f"exponents: ours {exponents(ours)}, recipe {exponents(rival)} (2 is quadratic)")


def exponents(seconds: Sequence[float]) -> list[float]:
    """Between neighbours, the count doubling."""
    return [round(math.log2(later / earlier), 2) for earlier, later in itertools.pairwise(seconds)]


if __name__ == "__main__":
    main()
