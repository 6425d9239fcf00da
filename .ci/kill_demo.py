"""Acceptance A3 of the first issue: `kill -9` of a demo's every process at three seeded moments, then the same command.

    python .ci/kill_demo.py [--seed N] [--home FOLDER] [--smoke]

Moments: the base's ledger 10-90 % full with requests in flight; mid-training; between training and the delta. After
each kill nothing of the stack is left alive, and the same `sqlclimb demo` continues. At the end: every sampling has
each row once, every step is there once, no finished work was repeated. Twice a full demo, about.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from cli.climb import FULL, SMOKE
from cli.stack.home import HOME_VARIABLE, StackHome

POLL_SECONDS = 0.2


class Demo:
    """One demo command in a home of its own, killed and run again."""

    def __init__(self, home: Path, seed: int, smoke: bool) -> None:
        self.home = StackHome(home)
        self.size = SMOKE if smoke else FULL
        self.seed = seed
        self.words = ["demo", "--seed", str(seed), "--keep", *(["--smoke"] if smoke else [])]
        self.logs: list[Path] = []

    def id(self, what: str) -> str:
        """An id as the demo derives it."""
        return f"{self.size.name}-shop-{self.seed}-{what}"

    def start(self) -> "subprocess.Popen[bytes]":
        """Run the command, in a process group of its own."""
        self.home.folder.mkdir(parents=True, exist_ok=True)
        log = self.home.folder / f"demo-{len(self.logs)}.log"
        self.logs.append(log)
        return subprocess.Popen(
            [sys.executable, "-m", "cli.main", *self.words],
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {HOME_VARIABLE: str(self.home.folder)},
        )

    def command(self, *words: str) -> None:
        """Run another `sqlclimb` command on its stack."""
        environment = os.environ | {HOME_VARIABLE: str(self.home.folder)}
        subprocess.run([sys.executable, "-m", "cli.main", *words], env=environment, check=True)

    def get(self, service: str, path: str) -> dict[str, Any] | None:
        """A GET as the admin; None while there is no answer."""
        state = self.home.load()
        if state is None or not self.home.token_file.exists():
            return None
        request = urllib.request.Request(
            self.home.url(state, service) + path,
            headers={"authorization": f"Bearer {self.home.token_file.read_text()}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def kill(self, demo: "subprocess.Popen[bytes]") -> int:
        """SIGKILL to every process of the demo and of its stack: engine, Ray, Postgres, supervisor."""
        killed = 0
        while victims := self.processes():
            for victim in victims:
                try:
                    victim.send_signal(signal.SIGKILL)
                    killed += 1
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(victims, timeout=5)
            demo.poll()
        return killed

    def processes(self) -> list[psutil.Process]:
        """The demo's tree and its stack: all whose environment names this home."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get(HOME_VARIABLE) == str(self.home.folder)
                if mine and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def wait_for(demo: "subprocess.Popen[bytes]", what: str, reached: Callable[[], bool]) -> None:
    """Poll until `reached`; fails when the demo ends first."""
    while not reached():
        if demo.poll() is not None:
            raise SystemExit(f"the demo ended (exit {demo.returncode}) before the moment {what!r}")
        time.sleep(POLL_SECONDS)


def main() -> None:
    """Three kills, then to the end, then the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--home", type=Path, default=Path("/tmp/sqlclimb-kill"))
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    demo = Demo(arguments.home, arguments.seed, arguments.smoke)
    draw = random.Random(arguments.seed)
    share = draw.uniform(0.1, 0.9)
    step = draw.randint(1, max(1, int(demo.size.steps * 0.9) - 1))
    late = draw.uniform(0.0, 0.9)

    def landed(what: str) -> float:
        found = demo.get("rollout", f"/v1/samplings/{demo.id(what)}")
        return 0.0 if found is None else found["progress"]["landed"] / found["progress"]["wanted"]

    def steps_done() -> int:
        found = demo.get("trainer", f"/v1/runs/{demo.id('run')}")
        return 0 if found is None else int(found["steps_done"])

    moments: list[tuple[str, Callable[[], bool]]] = [
        (f"base ledger {share:.0%} full", lambda: landed("base") >= share),
        (f"training after step {step}", lambda: steps_done() >= step),
        (f"after training, ledger of the last evaluation {late:.0%} full", lambda: landed("after") > late),
    ]
    kept: dict[str, Any] = {}
    for what, reached in moments:
        running = demo.start()
        wait_for(running, what, reached)
        kept[what] = {"base_landed": landed("base"), "steps": steps_done()}
        count = demo.kill(running)
        print(f"killed {count} processes at: {what}; had {kept[what]}", flush=True)
        assert not demo.processes(), "something survived"
    running = demo.start()
    code = running.wait()
    print(demo.logs[-1].read_text()[-3000:])
    assert code == 0, f"the last demo ended with {code}"
    check(demo)
    demo.command("down")


def check(demo: Demo) -> None:
    """Every row once, every step once."""
    for what in ("base", "base-again", "band", "after"):
        found = demo.get("rollout", f"/v1/samplings/{demo.id(what)}")
        assert found is not None
        progress = found["progress"]
        print(f"{what}: {found['state']}, landed {progress['landed']}/{progress['wanted']}, lost {progress['lost']}")
        assert found["state"] == "done"
        assert progress["landed"] + sum(progress["lost"].values()) == progress["wanted"]
    steps = (demo.get("trainer", f"/v1/runs/{demo.id('run')}/steps?after=0") or {"steps": []})["steps"]
    numbers = [step["step"] for step in steps]
    assert numbers == list(range(1, demo.size.steps + 1)), numbers
    attempts = [step["attempt"] for step in steps]
    assert attempts == sorted(attempts), attempts
    print(f"steps 1..{len(steps)} once each, by attempts {sorted(set(attempts))}")


if __name__ == "__main__":
    main()
