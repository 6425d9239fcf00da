"""Measuring as a user types it, on a coordinator without a stack: `sample`, `control`, `report`, `delta`, `rows`."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.main import main
from shared.auth import read_token
from tests.rollout.conftest import TASKS, Coordinator
from tests.rollout.providers import KEY, Providers, providers_app
from tests.rollout.scripted import GOLD
from tests.serving import served

K = 4


@dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def providers() -> Iterator[tuple[Providers, str]]:
    script = Providers()
    with served(providers_app(script)) as url:
        yield script, f"{url}/v1"


@pytest.fixture
def sqlclimb(
    coordinator: Coordinator,
    tokens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """The command, in a folder of its own, with a token that may see golds."""
    monkeypatch.setenv("SQLCLIMB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SQLCLIMB_ROLLOUT_URL", coordinator.url)
    monkeypatch.setenv("SQLCLIMB_TOKEN", read_token(tokens, "admin"))
    monkeypatch.setenv("PROVIDER_KEY", KEY)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["sqlclimb", *words])
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        told = capsys.readouterr()
        return Ended(code, told.out, told.err)

    return run


def sample(sqlclimb: Command, url: str, name: str, *more: str) -> Ended:
    there = ("--endpoint", url, "--model", "big", "--api-key-env", "PROVIDER_KEY")
    return sqlclimb("sample", "shop", *there, "--id", name, "-k", str(K), "--max-tokens", "64", *more)


def test_a_model_elsewhere_is_sampled_reported_controlled_and_exported(
    sqlclimb: Command, providers: tuple[Providers, str]
) -> None:
    sampled = sample(sqlclimb, providers[1], "big")
    assert (sampled.code, f"{TASKS * K}/{TASKS * K} landed" in sampled.out) == (0, True), sampled
    report = sqlclimb("report", "big", "--format", "json", "--png", "chart.png")
    line = json.loads(report.out)["lines"][0]
    assert (line["slice"], line["asked"], line["tasks"], line["short_tasks"]) == ("all", TASKS, TASKS, 0)
    assert Path("chart.png").read_bytes().startswith(b"\x89PNG")
    providers[0].replies.clear()  # each question's next replies are its first again
    control = sqlclimb("control", "big", "--api-key-env", "PROVIDER_KEY")
    assert control.code == 0, control
    assert "no_change_detected" in control.out
    exported = sqlclimb("rows", "export", "big")
    assert "holdout tasks" in exported.err
    text = Path("big.jsonl").read_text()
    assert len(text.splitlines()) == TASKS * K
    assert GOLD not in text
    assert KEY not in "".join((text, sampled.out, sampled.err, control.out, exported.out))


def test_a_control_that_moves_says_so_and_exits_1(sqlclimb: Command, providers: tuple[Providers, str]) -> None:
    sample(sqlclimb, providers[1], "big")
    control = sqlclimb("control", "big", "--api-key-env", "PROVIDER_KEY")  # the stand-in has no right replies left
    assert control.code == 1
    assert "the control reads moved_the_wrong_way" in control.err


def test_flipped_tasks_are_listed_and_explained(sqlclimb: Command, providers: tuple[Providers, str]) -> None:
    sample(sqlclimb, providers[1], "before")
    sample(sqlclimb, providers[1], "after", "--seed", "1")
    found = sqlclimb("delta", "--before", "before", "--after", "after", "--explain", "1", "--json", "delta.json")
    flips = json.loads(Path("delta.json").read_text())["flips"]
    assert {flip["after"] for flip in flips} == {0.0}
    assert re.search(r"flipped: 0 gained, \d+ lost", found.out), found
    assert found.out.count("difference: scripted for SELECT") == 1


def test_no_band_is_cut_on_a_model_elsewhere(sqlclimb: Command, providers: tuple[Providers, str]) -> None:
    sampled = sample(sqlclimb, providers[1], "big", "--split", "train")
    band = sqlclimb("band", "big", "--low", "0.2", "--high", "0.8")
    assert (sampled.code, band.code) == (0, 2)
    assert "cannot be trained here" in band.err


def test_bad_input_is_named_and_exits_2(sqlclimb: Command) -> None:
    elsewhere = ("--endpoint", "http://x/v1", "--model", "big")
    cases: list[tuple[tuple[str, ...], str]] = [
        (("--endpoint", "http://x/v1"), "--endpoint needs --model"),
        (("--model", "big"), "give its URL by --endpoint"),
        ((*elsewhere, "--policy", "base"), "give one of them"),
        ((*elsewhere, "--api-key-env", "NOT_SET"), "NOT_SET: that variable"),
        (("--endpoint", "http://me:pass@x/v1", "--model", "big"), "url: String should match"),
        ((*elsewhere, "-k", "0"), "k: Input should be greater than"),
        ((), "this stack serves no model yet"),
    ]
    for words, said in cases:
        found = sqlclimb("sample", "shop", *words)
        assert (found.code, said in found.err, "pass@x" in found.err) == (2, True, False), found


def test_rows_are_not_exported_where_they_cannot_be_or_must_not(
    sqlclimb: Command, providers: tuple[Providers, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(sqlclimb, providers[1], "big", "--limit", "2")
    assert sqlclimb("rows", "export", "other").code == 2
    nowhere = sqlclimb("rows", "export", "big", "--out", "missing/rows.jsonl")
    assert (nowhere.code, "no file was left" in nowhere.err) == (2, True), nowhere
    monkeypatch.delenv("WHILEAI_API_KEY", raising=False)
    assert "set WHILEAI_API_KEY" in sqlclimb("rows", "export", "big", "--push", "whileai").err
    sqlclimb("void", "big", "--reason", "a test")
    assert "was withdrawn: a test" in sqlclimb("rows", "export", "big").err
