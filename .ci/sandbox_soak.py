"""Acceptance A4 of the verifier: sandboxes created and deleted leave no process, file, mount, segment or descriptor.

    PYTHONPATH=. python .ci/sandbox_soak.py [--count 1000] [--isolation bubblewrap|process] [--at-once 2]

Each sandbox of a real verifier answers one verification, then it is deleted. Prints what the verifier holds as it goes;
exits 1 when it holds more at the end than after the first tenth, or its memory grew by more than 20 MB.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import Status
from tests.verifier.conftest import VerifierProcess, start_verifier, temporary_folder
from tests.verifier.store import GOLD, sandbox_request, verify_sql
from tests.verifier.test_isolation import ALL_PROCESSES, segments_of, working_below

GROWTH_BYTES = 20 * 1024**2
"""Memory that the verifier may gain between the first tenth and the end: its own caches, not a sandbox's remains."""


@dataclass(frozen=True)
class Held:
    """What one verifier holds while it has no sandbox."""

    descriptors: int
    processes: int
    files: int
    mounts: int
    segments: int


def held(verifier: VerifierProcess, servers: set[int], earlier: set[str]) -> Held:
    """Now. `servers` are the process ids that its sandboxes had; `earlier` segments were not made by them."""
    process = psutil.Process(verifier.process.pid)
    return Held(
        descriptors=process.num_fds(),
        processes=len(process.children(recursive=True)) + len(working_below(verifier.folder / "sandboxes")),
        files=sum(1 for _ in (verifier.folder / "sandboxes").rglob("*")),
        mounts=len(Path(f"/proc/{process.pid}/mounts").read_text().splitlines()),
        segments=len(segments_of({pid for pid in servers if not psutil.pid_exists(pid)}) - earlier),  # ids come again
    )


async def one(client: VerifierClient, verifier: VerifierProcess, number: int, servers: set[int]) -> None:
    """A sandbox comes, answers and goes."""
    name = f"soak-{number}"
    await client.create_sandbox(sandbox_request(name))
    servers |= {int(file.read_text()) for file in (verifier.folder / "sandboxes" / "clusters").glob("*/pid")}
    answer = await client.verify(name, verify_sql(GOLD, GOLD))
    assert answer.verdicts[0].status is Status.MATCH, answer.verdicts[0]
    await client.delete_sandbox(name)


async def soak(verifier: VerifierProcess, count: int, at_once: int) -> bool:
    """Whether nothing was left."""
    servers: set[int] = set()
    earlier = segments_of(ALL_PROCESSES)
    process = psutil.Process(verifier.process.pid)
    readings: list[tuple[Held, int]] = []
    started, step = time.monotonic(), max(at_once, count // 10)
    async with verifier.client() as client:
        for first in range(0, count, step):
            for batch in range(first, min(first + step, count), at_once):
                together = range(batch, min(batch + at_once, count))
                await asyncio.gather(*(one(client, verifier, number, servers) for number in together))
            readings.append((held(verifier, servers, earlier), process.memory_info().rss))
            print(
                f"{min(first + step, count)} in {time.monotonic() - started:.0f} s: {asdict(readings[-1][0])}, "
                f"memory {readings[-1][1] / 1024**2:.0f} MB",
                flush=True,
            )
    (early, early_bytes), (late, late_bytes) = readings[0], readings[-1]
    return late == early and late_bytes - early_bytes <= GROWTH_BYTES


def main() -> None:
    """One verifier, one soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--isolation", choices=("bubblewrap", "process"), default="bubblewrap")
    arguments = parser.parse_args()
    with temporary_folder() as folder:
        verifier = start_verifier(folder, isolation=arguments.isolation)
        try:
            clean = asyncio.run(soak(verifier, arguments.count, arguments.at_once))
        finally:
            verifier.stop()
        left = working_below(folder)
    print(f"{arguments.isolation}: {'nothing was left' if clean and not left else 'SOMETHING WAS LEFT'}")
    sys.exit(0 if clean and not left else 1)


if __name__ == "__main__":
    main()
