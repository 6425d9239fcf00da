"""`adapters` and `promote` on a running stack: what a user does with the adapter that the demo trained."""

import json
import re
from pathlib import Path

import pytest

from shared.contracts.inference import Layout
from tests.stack import StackHandle

POLICY = "smoke-shop-0-run@2"


def name_of(stack: StackHandle) -> str:
    """The served name of the demo's last adapter."""
    found = re.search(r"^(smoke-shop-0-run-s2-[0-9a-f]{8}) +ready ", stack.cli("adapters", "list").stdout, re.MULTILINE)
    assert found is not None
    return found[1]


def test_it_is_listed_shown_and_pinned(stack: StackHandle) -> None:
    name = name_of(stack)
    assert "is pinned" in stack.cli("adapters", "pin", POLICY).stdout
    shown = stack.cli("adapters", "show", name).stdout
    for line in (
        rf"policy +{POLICY}",
        r"state +ready",
        r"placed +\d+ tensors",
        r"pinned +yes",
        r"probe +canary: .*share 0\.0",
    ):
        assert re.search(line, shown), line
    refused = stack.cli("adapters", "rm", name, check=False)
    assert refused.returncode == 2
    assert "unpin it" in refused.stderr
    assert "no longer pinned" in stack.cli("adapters", "pin", POLICY, "--off").stdout
    unknown = stack.cli("adapters", "show", "nobody@7", check=False)
    assert unknown.returncode == 2
    assert "no adapter nobody@7 was published" in unknown.stderr


def test_it_earns_on_prompts_it_trained_on_what_the_trainer_saw(stack: StackHandle) -> None:
    found = stack.cli("adapters", "verify", POLICY, "--prompts", "12").stdout
    assert re.search(r"on \d+ prompts it trained on: reward [\d.]+ served, [\d.]+ in training, gap [+-][\d.]+", found)
    listed = stack.cli("report", "--format", "json").stdout
    assert "verify-" not in listed  # no evaluation of the policy: no delta takes it for one


def test_it_is_exported_with_a_card_that_carries_its_delta(stack: StackHandle, tmp_path: Path) -> None:
    for layout in Layout:
        folder = tmp_path / layout
        stack.cli("adapters", "export", POLICY, "--layout", layout, "--out", str(folder))
        assert sorted(path.name for path in folder.iterdir()) == [
            "README.md",
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        assert json.loads((folder / "adapter_config.json").read_text())["peft_type"] == "LORA"
        card = (folder / "README.md").read_text()
        assert "| run, step | `smoke-shop-0-run`, 2 |" in card
        assert "| all | pass@1 |" in card
    again = stack.cli("adapters", "export", POLICY, "--out", str(tmp_path / Layout.PEFT), check=False)
    assert again.returncode == 2
    assert "is not empty" in again.stderr


@pytest.mark.slow
def test_what_has_not_moved_is_not_promoted(stack: StackHandle) -> None:
    refused = stack.cli("promote", POLICY, "--alias", "analyst", check=False)
    assert "delta base" in refused.stdout  # it is shown first
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert f"{POLICY} has not moved against base" in refused.stderr
    assert "alias analyst" not in stack.cli("adapters", "list").stdout
    gone = stack.cli("promote", "--alias", "analyst", "--rollback", check=False)
    assert gone.returncode == 2
    assert "there is no alias 'analyst'" in gone.stderr
    assert stack.cli("promote", POLICY, check=False).returncode == 2
    assert stack.cli("serve", check=False).returncode == 2
    assert stack.cli("serve", "--base", "other", check=False).returncode == 2
    name = stack.cli("serve", "base").stdout.split("model: ")[1].split()[0]
    assert f"model: {name}" in stack.cli("serve", "--base", name).stdout
