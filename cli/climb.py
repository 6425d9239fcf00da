"""The demo's commands, in order, and their execution. Every id is derived from the seed: run again, it continues."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cli.context import say
from cli.stack.home import StackHome
from cli.stack.stack import StackError
from cli.stack.supervisor import Supervisor
from cli.stack.watch import watched


@dataclass(frozen=True)
class ClimbSize:
    """How much of everything."""

    name: str
    golds: int
    phrasings: int
    policy_steps: int | None
    holdout: int
    """Tasks of an evaluation."""

    band_tasks: int
    band_k: int
    band_limits: tuple[float, float]
    steps: int
    prompts: int
    k: int
    learning_rate: float


FULL = ClimbSize(
    name="demo",
    golds=6400,
    phrasings=3,
    policy_steps=None,
    holdout=1000,
    band_tasks=2000,  # about 1,000 prompts in the band: 40 steps pass over it once, a second pass only memorises
    band_k=4,
    band_limits=(0.1, 0.9),
    steps=40,
    prompts=24,
    k=8,
    learning_rate=3e-3,  # with the falling schedule: 2e-3 gave two thirds of the gain
)

SMOKE = ClimbSize(
    name="smoke",
    golds=500,
    phrasings=2,
    policy_steps=100,
    holdout=60,
    band_tasks=24,
    band_k=4,
    band_limits=(0.0, 1.0),
    steps=2,
    prompts=4,
    k=4,
    learning_rate=1e-3,
)


class Climb:
    """One demo."""

    def __init__(self, domain: str, seed: int, size: ClimbSize) -> None:
        self._domain = domain
        self._seed = seed
        self._size = size
        self._home = StackHome.from_environment()
        self._supervisor = Supervisor(self._home)
        self._started = time.monotonic()

    def run(self, keep: bool) -> None:
        """Every command in turn. Raises StackError at the first that fails; the stack stays up for a look then."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        size, domain, run = self._size, self._domain, self._id("run")
        after = f"{run}@{size.steps}"
        # measured as it is trained: at 0.7 a policy this small is almost greedy, and most of what RL sharpens is hidden
        evaluate = ["sample", domain, "--limit", str(size.holdout), "-k", "4", "--temperature", "1", "--top-p", "1"]
        try:
            self._call("up", "verifier", "author")
            self._call(
                *("author", domain, "--id", f"{size.name}-{domain}", "--golds", str(size.golds)),
                *("--phrasings", str(size.phrasings)),
            )
            self._call("up", "--model", self._build_policy())
            self._call("status")
            self._call(*evaluate, "--id", self._id("base"))
            self._call(*evaluate, "--id", self._id("base-again"), "--seed", "1")
            self._call("report", self._id("base"))
            say("\n# control: base against base must read no change")
            self._call("delta", "--before", self._id("base"), "--after", self._id("base-again"))
            self._call(
                *("sample", domain, "--id", self._id("band"), "--purpose", "band", "--split", "train", "--fold", "1"),
                *("--limit", str(size.band_tasks), "-k", str(size.band_k), "--temperature", "1", "--top-p", "1"),
            )
            low, high = size.band_limits
            self._call("band", self._id("band"), "--id", self._id("band"), "--low", str(low), "--high", str(high))
            self._call(
                *("train", domain, "--run", run, "--band", self._id("band"), "--steps", str(size.steps)),
                *("--prompts", str(size.prompts), "-k", str(size.k), "--learning-rate", str(size.learning_rate)),
                # by batch: a group whose rewards only tell a failing query from a wrong one should not count like one
                # that tells right from wrong; falling: single batches are noisy
                *("--schedule", "linear", "--advantages", "batch", "--seed", str(self._seed)),
                # in turn: engine and learner share the cores; no refills: the band lasts for one pass of these steps
                *("--run-ahead", "0", "--refills", "0"),
            )
            self._call("serve", after)
            self._call(*evaluate, "--id", self._id("after"), "--policy", after)
            self._call(*evaluate, "--id", self._id("after-again"), "--policy", after, "--seed", "1")
            self._call("report", self._id("base"), self._id("after"))
            results = self._home.folder / "results"
            results.mkdir(exist_ok=True)
            curve = results / f"{run}.png"
            self._call("runs", "show", run, "--png", str(curve))
            measured = results / f"{run}.delta.json"
            self._call(
                *("delta", "--before", self._id("base"), "--before", self._id("base-again")),
                *("--after", self._id("after"), "--after", self._id("after-again"), "--json", str(measured)),
            )
            self._where_to_look(curve, measured)
        except KeyboardInterrupt:
            keep = False
            say("\ninterrupted: what had landed is kept, the same command continues")
            raise
        finally:
            if not keep:
                self._call("down")

    def _id(self, what: str) -> str:
        return f"{self._size.name}-{self._domain}-{self._seed}-{what}"

    def _build_policy(self) -> str:
        steps = [] if self._size.policy_steps is None else ["--maximum-steps", str(self._size.policy_steps)]
        printed = self._call("policy", "build", self._domain, "--seed", str(self._seed), *steps)
        path: str = json.loads(printed[-1])["path"]
        return path

    def _call(self, *words: str) -> list[str]:
        """Print and run one `sqlclimb` command; its lines pass through and are returned."""
        say(f"\n[{time.monotonic() - self._started:6.1f} s] $ sqlclimb {shlex.join(words)}")
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *words],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        lines = []
        assert process.stdout is not None
        # `up` and `down` start and stop parts themselves, and say so
        watching = contextlib.nullcontext() if words[0] in ("up", "down") else watched(self._supervisor, say)
        try:
            with watching:
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    say(lines[-1])
        finally:
            code = process.wait()
        if code != 0:
            raise StackError(
                f"`sqlclimb {shlex.join(words)}` ended with exit code {code}. What had landed is kept: the same demo "
                f"command continues. Logs: {self._home.logs}"
            )
        return lines

    def _where_to_look(self, curve: Path, measured: Path) -> None:
        say(f"\nDone in {time.monotonic() - self._started:.0f} s. Where to look:")
        say(f"  the curve          {curve}")
        say(f"  the delta          {measured}")
        say(f"  logs               {self._home.logs}")
        say(f"  adapters           {self._home.artifacts}")
        say("  rows               `sqlclimb up`, then GET /v1/samplings/{id}/rows of the rollout service")
