"""Acceptance A2 of the first issue: each part of the stack is killed in turn under one smoke demo, which must say so.

    python .ci/kill_services.py [--seed N] [--home FOLDER]

Each part dies (SIGKILL to its process) while the demo runs a command that uses it. The demo must name it and end as an
unkilled one: exit 0, every row once. Minutes on 2 cores.
"""

import argparse
import os
import re
import signal
import time
from pathlib import Path

from kill_demo import Demo, check, wait_for

from cli.stack.supervisor import Supervisor

KILLS = [
    ("author", "verifier"),
    ("policy", "author"),
    ("sample .*-base$", "inference"),
    ("sample .*-base-again", "engine"),
    ("sample .*-band", "rollout"),
    ("train", "trainer"),
    ("train", "postgres"),
    ("sample .*-after", "ray"),
]
"""A command of the demo, and the part that dies under it."""


def main() -> None:
    """One demo, eight kills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--home", type=Path, default=Path("/tmp/sqlclimb-kill-services"))
    arguments = parser.parse_args()
    demo = Demo(arguments.home, arguments.seed, smoke=True)
    supervisor = Supervisor(demo.home)
    running = demo.start()
    log = demo.logs[0]
    killed = []
    for command, part in KILLS:
        wait_for(running, command, lambda command=command: begun(log.read_text(), command))
        time.sleep(1.0)  # into the command's work, so that requests are in flight
        pid = supervisor.processes()[part].pid
        os.kill(pid, signal.SIGKILL)
        killed.append((part, pid))
        print(f"killed {part} (process {pid}) under `{command}`", flush=True)
    code = running.wait()
    text = log.read_text()
    silent = [f"{part} {pid}" for part, pid in killed if f"{part} (process {pid}) ended" not in text]
    print("\n".join(line for line in text.splitlines() if line.startswith("  ! ") or "waiting for it" in line))
    assert not silent, f"the demo did not say that these ended: {silent}"
    assert code == 0, f"the demo ended with {code}: see {log}"
    check(demo)
    demo.command("down")


def begun(text: str, command: str) -> bool:
    """Whether the demo has printed this command."""
    return re.search(rf"^\[ *[\d.]+ s\] \$ sqlclimb {command}", text, re.MULTILINE) is not None


if __name__ == "__main__":
    main()
