"""Acceptance A4 of the verifier: SIGKILL at random moments under 200 concurrent verifications. No verdict may be wrong.

    python .ci/verifier_kills.py [--seed N] [--rounds N] [--isolation bubblewrap|process]

A round is 200 single-item requests at once, and one to three kills at seeded moments: a sandbox's Postgres server,
one of its backends, or the verifier itself, which is then started again. Items are asked again as the rollout's workers
do. Prints counts a round; exits 1 when a verdict is neither right nor `unscorable`. Both isolations by default.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import stamina

from shared.contracts.verifier import SandboxRequest
from tests.verifier.conftest import VerifierProcess, start_verifier, temporary_folder
from tests.verifier.load import BUNDLE, Tally, verify_all
from tests.verifier.test_isolation import backends, working_below
from tests.verifier.test_kills import servers

CONCURRENT = 200
VICTIMS = ("server", "backend", "verifier")
SANDBOX = SandboxRequest(sandbox_id="load", run_id="kills", bundle=BUNDLE)


class Target:
    """The verifier under load: killed parts of it come back."""

    def __init__(self, folder: Path, isolation: str) -> None:
        self.folder = folder
        self.isolation = isolation
        self.verifier: VerifierProcess = start_verifier(folder, isolation=isolation)
        self.port = self.verifier.url.rsplit(":")[-1]

    def kill(self, victim: str, draw: random.Random) -> str:
        """SIGKILL; answers what was hit (a backend may be gone again before it is)."""
        try:
            if victim == "verifier":
                os.kill(self.verifier.process.pid, signal.SIGKILL)
                self.verifier.process.wait()
                self.verifier = start_verifier(self.folder, isolation=self.isolation, port=self.port)
                return victim
            found = servers(self.verifier)
            wanted = backends(found) if victim == "backend" else found[:1]
            if not wanted:
                return f"no {victim} there"
            draw.choice(wanted).kill()
        except psutil.NoSuchProcess:
            return f"{victim} gone before"
        return victim


async def one_round(target: Target, number: int, draw: random.Random) -> tuple[Tally, Counter[str]]:
    """200 verifications, with one to three kills."""
    tally, hits = Tally(), Counter[str]()
    async with target.verifier.client() as client:
        load = asyncio.create_task(verify_all(client, SANDBOX, CONCURRENT, number * CONCURRENT, tally))
        for victim in draw.choices(VICTIMS, k=draw.randint(1, 3)):
            await asyncio.sleep(draw.uniform(0.1, 1.0))
            if load.done():
                break
            hits[await asyncio.to_thread(target.kill, victim, draw)] += 1
        await load
    return tally, hits


async def run(isolation: str, rounds: int, seed: int, folder: Path) -> bool:
    """Whether every verdict was right or unscorable."""
    draw = random.Random(seed)
    target = Target(folder, isolation)
    total, all_hits, clean = Tally(), Counter[str](), True
    try:
        for number in range(rounds):
            started = time.monotonic()
            tally, hits = await one_round(target, number, draw)
            print(
                f"{isolation} round {number}: killed {dict(hits)}; right {tally.right}, unscorable {tally.unscorable}, "
                f"wrong {len(tally.wrong)}; asked again {tally.unreachable}, sandbox made again {tally.remade}; "
                f"{time.monotonic() - started:.1f} s",
                flush=True,
            )
            for reason, count in tally.reasons.items():
                print(f"  unscorable {count}: {reason}")
            for verdict in tally.wrong:
                print("  WRONG:", verdict)
            clean = clean and not tally.wrong and tally.right + tally.unscorable == CONCURRENT
            total.right += tally.right
            total.unscorable += tally.unscorable
            total.wrong += tally.wrong
            all_hits += hits
    finally:
        target.verifier.stop()
    left = working_below(folder)
    print(
        f"{isolation}: {rounds} rounds, killed {dict(all_hits)}; {total.right} right, {total.unscorable} unscorable, "
        f"{len(total.wrong)} wrong; {len(left)} processes left"
    )
    return clean and not left


def main() -> None:
    """Both isolations, or the one named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--isolation", choices=("bubblewrap", "process"))
    arguments = parser.parse_args()
    stamina.instrumentation.set_on_retry_hooks([])  # a line for every retry of every item
    clean = True
    for isolation in [arguments.isolation] if arguments.isolation else ["bubblewrap", "process"]:
        with temporary_folder() as folder:
            clean = asyncio.run(run(isolation, arguments.rounds, arguments.seed, folder)) and clean
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
