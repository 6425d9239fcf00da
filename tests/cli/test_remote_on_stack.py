"""A person's command line: a home of its own with nothing in it, an installation's addresses, a token."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.context import Connection
from cli.stack.stack import remote_status
from tests.stack import StackHandle

SERVICES = ("author", "rollout", "trainer", "inference")


def remotely(stack: StackHandle, home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    addresses = {f"SQLCLIMB_{service.upper()}_URL": stack.urls[service] for service in SERVICES}
    environment = os.environ | addresses | {"SQLCLIMB_HOME": str(home), "SQLCLIMB_TOKEN": stack.token("admin")}
    argv = [sys.executable, "-m", "cli.main", *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_it_samples_and_plans_with_what_the_gateway_serves(stack: StackHandle, tmp_path: Path) -> None:
    asked = ("--prompt", "question", "--max-tokens", "64")
    few = ("--purpose", "band", "--split", "train", "--limit", "2", "-k", "2")  # an evaluation would be the newest one
    sampled = remotely(stack, tmp_path, "sample", "shop", *few, *asked, "--id", "remote")
    assert "sampling remote: done, done: 4/4 landed" in sampled.stdout, sampled.stdout + sampled.stderr
    learnt = ("--run", "remote-run", "--band", "smoke-shop-0-band")
    plan = remotely(stack, tmp_path, "train", "shop", *learnt, *asked, "--plan")
    assert "a step" in plan.stdout, plan.stdout + plan.stderr
    assert not list(tmp_path.iterdir())


async def test_status_asks_the_services_and_says_which_give_no_answer(
    stack: StackHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLCLIMB_TRAINER_URL", stack.urls["trainer"])
    monkeypatch.setenv("SQLCLIMB_AUTHOR_URL", "http://127.0.0.1:9")
    told = await remote_status(Connection().remote_urls())
    assert {name: part.state for name, part in told.items()} == {"author": "gives no answer", "trainer": "ready"}
    assert told["trainer"].url == stack.urls["trainer"] and told["trainer"].versions["trl"]
