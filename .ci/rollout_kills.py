"""Acceptance A1 of issue 5: SIGKILL to each part of a running stack in turn under a sampling of 400 groups.

    python .ci/rollout_kills.py [--seed N] [--rounds 20] [--home FOLDER] [--parts coordinator,worker,…]

A round is one sampling (400 tasks, 4 samples each, small policy) and one kill, at a seeded moment between 10 and 90 %
of its rows: the coordinator, a worker, Ray's proxy, a sandbox's server, the verifier, the gateway, vLLM, the control
Postgres, each with all it started. Nothing is done by hand: Ray and the supervisor start what was killed. Then every
row must be there once, none lost or without a verdict, and each verdict the same when the reply is verified again.
`--home` is a folder in which a stack is made, or one with tasks and a policy that is brought up. Exits 1 when a round
has a fault.
"""

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

import stamina

from cli.follow import patiently
from cli.stack.home import StackHome
from shared.clients.author import AuthorClient
from shared.clients.rollout import RolloutClient
from shared.clients.verifier import VerifierClient
from shared.contracts.rollout import Sampling, SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.tasks import Split
from tests.rollout.killing import VICTIMS, faults_of, kill, victims, wrong_verdicts
from tests.stack import StackHandle

TASKS = 400
K = 4
ROUND_SECONDS = 900.0
POLL_SECONDS = 0.05


class Rounds:
    """A stack, and one client of each service that is asked."""

    def __init__(self, stack: StackHandle, seed: int) -> None:
        self.home = StackHome(stack.home)
        self.draw = random.Random(seed)
        state = self.home.load()
        assert state is not None
        assert state.model is not None
        self.model = state.model
        self.domain = stack.domain
        urls, token = stack.urls, stack.token("admin")
        self.rollout = RolloutClient(urls["rollout"], token, timeout_seconds=60)
        self.author = AuthorClient(urls["author"], token)
        self.verifier = VerifierClient(urls["verifier"], token, timeout_seconds=300)

    async def round(self, name: str, part: str) -> bool:
        """Whether nothing was wrong."""
        share = self.draw.uniform(0.1, 0.9)
        began = time.monotonic()
        await patiently(lambda: self.rollout.start(self.request(name)))

        async def look() -> Sampling:
            return await patiently(lambda: self.rollout.sampling(name))

        found = await look()
        while found.progress.landed < share * found.progress.wanted:
            await asyncio.sleep(POLL_SECONDS)
            found = await look()
        killed = kill(victims(self.home, part, self.draw))
        at = found.progress.landed
        while (found := await look()).state in (SamplingState.RUNNING, SamplingState.PAUSED):
            assert time.monotonic() - began < ROUND_SECONDS, found
            await asyncio.sleep(1.0)
        rows = [row async for row in self.rollout.rows(name)]
        faults = faults_of(rows, TASKS, K)
        if found.state is not SamplingState.DONE or found.progress.lost:
            faults.append(f"{found.state}, lost {found.progress.lost}")
        if not killed:
            faults.append("there was nothing to kill")
        wrong = await wrong_verdicts(rows, self.domain, self.author, self.verifier)
        print(
            f"{part:<12} {killed:2d} processes killed at {at} of {TASKS * K} rows: {found.state}, {len(rows)} rows, "
            f"re-rolled {found.progress.rerolled}, lost {sum(found.progress.lost.values())}, wrong verdicts "
            f"{len(wrong)} of {len(rows)} rechecked; {time.monotonic() - began:.0f} s"
            + "".join(f"\n  FAULT {fault}" for fault in faults + wrong[:5]),
            flush=True,
        )
        return not faults and not wrong

    def request(self, name: str) -> SamplingRequest:
        """400 tasks of the train split, as the stack's own policy is asked."""
        return SamplingRequest(
            sampling_id=name,
            domain=self.domain,
            regime=self.model.regime,
            parameters=SamplingParameters(k=K, temperature=1.0, top_p=1.0, max_tokens=self.model.max_tokens),
            split=Split.TRAIN,
            limit=TASKS,
        )


async def run(stack: StackHandle, seed: int, parts: list[str], rounds: int) -> bool:
    """Every part in turn; whether no round had a fault."""
    at_work = Rounds(stack, seed)
    stamp = int(time.time())
    clean = []
    async with at_work.rollout, at_work.author, at_work.verifier:
        for number in range(rounds):
            part = parts[number % len(parts)]
            clean.append(await at_work.round(f"kills-{stamp}-{number}", part))
    print(f"{rounds} rounds, {clean.count(True)} without a fault")
    return all(clean)


def main() -> None:
    """All rounds on one stack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--home", type=Path, default=Path("/tmp/sqlclimb-rollout-kills"))
    parser.add_argument("--parts", default=",".join(VICTIMS))
    options = parser.parse_args()
    stamina.instrumentation.set_on_retry_hooks([])
    stack = StackHandle(options.home)
    made = StackHome(options.home).load()
    try:
        if made is None or made.model is None:
            stack.start()
        else:
            stack.cli("up")
        clean = asyncio.run(run(stack, options.seed, options.parts.split(","), options.rounds))
    finally:
        stack.stop()
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
