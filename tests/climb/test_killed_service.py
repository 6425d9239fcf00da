"""A service killed under a sampling: it is said, and every row lands all the same, with a right verdict."""

import json
import os
import subprocess
import sys
import time

import httpx
import psutil

from cli.stack.home import HOME_VARIABLE, STACK_VARIABLE, StackHome
from cli.stack.supervisor import Supervisor
from cli.stack.watch import watched
from tests.stack import StackHandle

WAIT_SECONDS = 120


def process_of(stack: StackHandle, module: str) -> psutil.Process:
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[-2:] == ["-m", module] and process.environ().get(STACK_VARIABLE) == str(stack.home):
            return process
    raise AssertionError(f"{module} does not run")


def landed(stack: StackHandle, url: str, sampling: str) -> int:
    headers = {"authorization": f"Bearer {stack.token('admin')}"}
    answer = httpx.get(f"{url}/v1/samplings/{sampling}", headers=headers)
    return int(answer.json()["progress"]["landed"]) if answer.status_code == 200 else 0


def test_a_verifier_killed_mid_sampling_is_said_and_costs_no_row(stack: StackHandle) -> None:
    url = stack.urls["rollout"]
    words = ["sample", "shop", "--id", "killed-verifier", "--limit", "60", "-k", "4"]
    sampling = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {HOME_VARIABLE: str(stack.home)},
    )
    deadline = time.monotonic() + WAIT_SECONDS
    while landed(stack, url, "killed-verifier") == 0:
        assert time.monotonic() < deadline, "no row landed"
        assert sampling.poll() is None
    victim = process_of(stack, "services.verifier")
    said: list[str] = []
    with watched(Supervisor(StackHome(stack.home)), said.append):
        victim.kill()
        output, _ = sampling.communicate(timeout=WAIT_SECONDS)
    assert any(f"verifier (process {victim.pid}) ended" in line for line in said), said
    assert sampling.returncode == 0, output
    assert "240/240 landed" in output.splitlines()[-1]
    assert "lost none" in output.splitlines()[-1]
    report = stack.cli("report", "killed-verifier", "--format", "json").stdout
    overall = json.loads(report.splitlines()[0])["lines"][0]
    assert (overall["rows"], overall["unscorable"]) == (240, 0)
