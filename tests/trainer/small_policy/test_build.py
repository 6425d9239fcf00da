"""A whole build on in-memory tasks: what lies in the folder, what does not, and when it is there."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.trainer.small_policy import store
from services.trainer.small_policy.build import Policy, build
from services.trainer.small_policy.tasks import WarmStart, policy_digest
from shared.contracts.policy import PolicyCard, StopReason
from shared.contracts.tasks import PrivilegedTask
from shared.domain import Bundle
from tests.trainer.small_policy.conftest import TINY, text_judge


@pytest.fixture
def policy(bundle: Bundle, warm_start: WarmStart) -> Policy:
    """A build of a few steps."""
    return asyncio.run(build(bundle, warm_start, TINY, 0, text_judge, print))


def test_a_built_folder_is_a_model_its_tokenizer_and_a_card(
    policy: Policy, bundle: Bundle, warm_start: WarmStart, tmp_path: Path
) -> None:
    path = store.save(tmp_path, policy.card, policy.model, policy.tokenizer)
    card = PolicyCard.model_validate_json((path / "policy.json").read_text())
    model, tokenizer = AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    assert path.name == card.digest == policy_digest(warm_start, bundle.digest, TINY, 0)
    assert card.parameters == model.num_parameters()
    assert (card.stopped, card.steps, card.measured.tasks) == (StopReason.TARGET, 2, 6)
    assert card.regime.prompt == "question"
    assert model.config.model_type == "qwen3"
    assert model.config.max_position_embeddings == card.context_tokens == tokenizer.model_max_length
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert all(
        (left == right).all()
        for left, right in zip(model.state_dict().values(), policy.model.state_dict().values(), strict=True)
    )


def test_equal_inputs_give_equal_weights(policy: Policy, bundle: Bundle, warm_start: WarmStart) -> None:
    again = asyncio.run(build(bundle, warm_start, TINY, 0, text_judge, print))
    other = asyncio.run(build(bundle, warm_start, TINY, 1, text_judge, print))
    weight = "model.layers.1.mlp.up_proj.weight"
    assert (policy.model.state_dict()[weight] == again.model.state_dict()[weight]).all()
    assert (policy.model.state_dict()[weight] != other.model.state_dict()[weight]).any()


def test_no_question_and_no_gold_lies_in_any_file(policy: Policy, tasks: list[PrivilegedTask], tmp_path: Path) -> None:
    path = store.save(tmp_path, policy.card, policy.model, policy.tokenizer)
    files = [file.read_bytes().lower() for file in path.iterdir()]
    assert len(files) >= 5
    for task in tasks:
        reference = task.privileged.reference
        assert isinstance(reference, str)
        for text in (task.question, reference):
            spellings = (text.lower().encode(), text.lower().replace(" ", "ġ").encode())  # as a vocabulary spells it
            assert not any(spelling in file for spelling in spellings for file in files)


def test_a_finished_policy_is_found_again(policy: Policy, tmp_path: Path) -> None:
    assert store.find(tmp_path, policy.card.digest) is None
    store.save(tmp_path, policy.card, policy.model, policy.tokenizer)
    assert store.find(tmp_path, policy.card.digest) == policy.card
    (tmp_path / policy.card.digest / "policy.json").write_text('{"digest": 1')
    assert store.find(tmp_path, policy.card.digest) is None


def test_a_policy_that_missed_its_target_says_so(bundle: Bundle, warm_start: WarmStart) -> None:
    lines: list[str] = []
    hard = TINY.model_copy(update={"target": 0.5, "maximum_steps": 3})
    card = asyncio.run(build(bundle, warm_start, hard, 0, text_judge, lines.append)).card
    assert (card.stopped, card.steps) == (StopReason.STEPS, 3)
    assert "WARNING: pass@1 is 0.00 after 3 steps, under the target of 0.50" in lines[-1]


KILLED_WHILE_SAVING = """
import sys, time
from pathlib import Path
from services.trainer.small_policy import store
from shared.contracts.policy import PolicyCard

class Slow:
    def save_pretrained(self, folder):
        (folder / "weights").write_text("half")

class Hangs:
    def save_pretrained(self, folder):
        print("writing", flush=True)
        time.sleep(60)

card = PolicyCard.model_validate_json(sys.stdin.read())
store.save(Path(sys.argv[1]), card, Slow(), Hangs())
"""


def test_a_build_killed_while_it_writes_leaves_nothing_that_looks_finished(policy: Policy, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    with child.stdin, child.stdout:
        child.stdin.write(policy.card.model_dump_json())
        child.stdin.close()
        assert child.stdout.readline() == "writing\n"
        child.kill()
        child.wait(timeout=10)
    assert store.find(tmp_path, policy.card.digest) is None
    assert list(tmp_path.rglob("policy.json")) == []
    path = store.save(tmp_path, policy.card, policy.model, policy.tokenizer)
    assert sorted(tmp_path.iterdir()) == [path]  # the half-written folder is gone too
