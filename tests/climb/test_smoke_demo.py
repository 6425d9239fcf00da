"""What `demo --smoke` printed and left: the climb's parts are real, connected, and say so."""

import json
import re
import subprocess
import sys
import time

import pytest

from cli.stack.home import HOME_VARIABLE, StackHome
from shared.settings import REPOSITORY
from tests.stack import StackHandle

SECONDS_OF_A_FINISHED_SAMPLING = 10
"""Start of the command and one answer; 240 samples take longer than the rest."""

SIDES = ["--before", "smoke-shop-0-base", "--before", "smoke-shop-0-base-again"]
SIDES += ["--after", "smoke-shop-0-after", "--after", "smoke-shop-0-after-again"]

PUBLIC_COMMANDS = ("up", "author", "policy", "sample", "report", "band", "train", "serve", "delta")


def test_the_demo_prints_each_public_command_before_it_runs(stack: StackHandle) -> None:
    printed = re.findall(r"^\[ *[\d.]+ s\] \$ sqlclimb (\w+)", stack.demo_output, re.MULTILINE)
    assert set(PUBLIC_COMMANDS) <= set(printed)


def test_services_print_the_versions_they_run(stack: StackHandle) -> None:
    for part, version in (("postgres", r"18\.\d"), ("vllm", r"0\.32"), ("ray", r"2\.60")):
        assert re.search(rf"\b{part} {version}", stack.demo_output), part
    for library, version in (("trl", r"1\.16"), ("peft", r"0\.21"), ("torch", r"2\.13")):
        assert re.search(rf"\b{library} {version}", stack.demo_output), library


def test_every_step_has_a_line_and_the_last_adapter_is_served(stack: StackHandle) -> None:
    line = r"step +(\d+)/2 +reward [\d.]+ +zero-variance [\d.]+ +refilled \d+ +gap ([\d.e+-]+)"
    steps = re.findall(line, stack.demo_output)
    assert [number for number, _ in steps] == ["1", "2"] * 2  # once as they land, once by `runs show`
    assert all(float(gap) < 1e-3 for _, gap in steps)
    assert "smoke-shop-0-run@2 is ready as smoke-shop-0-run-s2-" in stack.demo_output


def test_the_canary_shows_the_trained_adapter_and_not_the_base(stack: StackHandle) -> None:
    found = re.search(r"canary: .*\(share ([\d.]+)\)", stack.demo_output)
    assert found is not None
    assert float(found[1]) <= 0.1


def test_it_ends_with_a_verdict_a_curve_and_where_to_look(stack: StackHandle) -> None:
    assert "verdict: " in stack.demo_output.split("$ sqlclimb delta")[-1]
    curve = stack.home / "results" / "smoke-shop-0-run.png"
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert "Where to look" in stack.demo_output


def test_the_delta_is_the_same_from_the_ledgers_rows_alone(stack: StackHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(stack.home))
    claimed = stack.home / "results" / "smoke-shop-0-run.delta.json"
    script = REPOSITORY / "scripts" / "recompute_delta.py"
    argv = [sys.executable, str(script), *SIDES, "--json", str(claimed)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "they agree" in done.stdout


def test_the_same_commands_again_repeat_no_finished_work(stack: StackHandle) -> None:
    before = json.loads((stack.home / "results" / "smoke-shop-0-run.delta.json").read_text())
    started = time.monotonic()
    found = re.search(r"\$ sqlclimb (sample .*--id smoke-shop-0-base)$", stack.demo_output, re.MULTILINE)
    assert found is not None
    assert "240/240 landed" in stack.cli(*found[1].split()).stdout
    assert time.monotonic() - started < SECONDS_OF_A_FINISHED_SAMPLING
    again = stack.home / "again.json"
    stack.cli("delta", *SIDES, "--json", str(again))
    assert json.loads(again.read_text()) == before


def test_ports_and_secrets_are_kept_for_a_second_up(stack: StackHandle) -> None:
    state = StackHome(stack.home).load()
    stack.cli("up")
    assert StackHome(stack.home).load() == state
