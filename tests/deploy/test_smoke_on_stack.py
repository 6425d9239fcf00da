"""`helm test`: what its Pod runs, with the variables that the chart gives it, against a real stack."""

import os
import subprocess
import sys

from cli.stack.home import StackHome
from tests.deploy.helm import CHART, render
from tests.deploy.manifests import of_kind
from tests.stack import StackHandle


def smoke(stack: StackHandle, **changed: str) -> "subprocess.CompletedProcess[str]":
    (pod,) = of_kind(render("cpu-trial"), "Pod")
    given = {f"SQLCLIMB_{name.upper()}_URL": url for name, url in stack.urls.items()}
    state = StackHome(stack.home).load()
    assert state is not None and state.model is not None
    given |= {"TOKEN": stack.token("admin"), "SERVED_NAME": state.model.served_name} | changed
    written = {variable["name"] for variable in pod["spec"]["containers"][0]["env"]} - {"HOME", "PYTHONUNBUFFERED"}
    environment = {"PATH": os.environ["PATH"], **{name: given[name] for name in written}}
    argv = [sys.executable, str(CHART / "files/smoke.py")]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_it_finds_a_whole_stack_ready_verifies_a_query_and_generates_a_reply(stack: StackHandle) -> None:
    done = smoke(stack)
    assert done.returncode == 0, done.stderr
    for line in ("verifier: ready", "author: ready", "inference: ready", "rollout: ready", "trainer: ready"):
        assert line in done.stdout
    assert "verifier: a right query matches" in done.stdout
    assert "inference: generated" in done.stdout and "generated 0 tokens" not in done.stdout


def test_it_fails_with_a_sentence(stack: StackHandle) -> None:
    done = smoke(stack, TOKEN="x" * 43)
    assert done.returncode == 1 and "verifier: POST /v1/sandboxes answered 401" in done.stderr
    done = smoke(stack, SQLCLIMB_ROLLOUT_URL="http://127.0.0.1:9")
    assert done.returncode == 1 and "rollout: http://127.0.0.1:9 gave no answer (ConnectError)" in done.stderr
    done = smoke(stack, SERVED_NAME="nobody")
    assert done.returncode == 1 and "inference: POST /v1/chat/completions answered 404" in done.stderr
