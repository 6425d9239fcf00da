"""Examples are the engine's own ids, loss stands where TRL's own mask puts it, what is too long is left out."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.trainer.small_policy.examples import IGNORED
from services.trainer.supervised.encoding import Encoder, open_encoder, refuse_too_few
from services.trainer.supervised.learner import build_learner, dataset
from services.trainer.supervised.lessons import Found, Lesson
from shared.contracts.rollout import Message
from shared.contracts.supervision import DropReason
from shared.errors import Invalid
from tests.trainer.supervised.conftest import sft_config
from tests.trainer.supervised.sources import Sources, question

MESSAGES = [Message(role="system", content="total price"), Message(role="user", content=question(1))]
REPLY = "select count from orders"


@pytest.fixture(scope="module")
def encoder(model: Path) -> Encoder:
    return open_encoder(sft_config(model))


def lesson(reply: str = REPLY, **changes: Any) -> Lesson:
    return replace(Lesson("t1", MESSAGES, reply, [], []), **changes)


def lessons(*replies: str) -> Found:
    return Found([replace(lesson(reply), task_id=f"t{i}") for i, reply in enumerate(replies)], len(replies), Counter())


@pytest.mark.parametrize("conversational", [False, True])
def test_the_loss_mask_is_trls_own(model: Path, encoder: Encoder, tmp_path: Path, conversational: bool) -> None:
    """TRL tokenizes the same prompt and completion by itself; a conversation's template may add text after its end."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    example = encoder.encode(lesson())
    (ours,) = dataset([[example]]).to_list()
    prompt = [message.model_dump() for message in MESSAGES]
    if conversational:
        columns: dict[str, list[Any]] = {
            "prompt": [prompt],
            "completion": [[{"role": "assistant", "content": REPLY}]],
        }
    else:
        text = encoder.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        columns = {"prompt": [text], "completion": [REPLY]}
    arguments = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", max_length=None)
    trl = SFTTrainer(model=str(model), args=arguments, train_dataset=Dataset.from_dict(columns))
    (theirs,) = trl.train_dataset.select_columns(["input_ids", "labels"]).to_list()
    length = len(ours["input_ids"])
    assert {name: values[:length] for name, values in theirs.items()} == ours
    after = encoder.tokenizer.decode(theirs["input_ids"][length:])
    assert after == ("\n" if conversational else ""), "which no engine generates: the turn has ended"


def test_a_step_trains_the_reply_and_nothing_else_as_one_mean_over_its_tokens(
    model: Path, encoder: Encoder, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    examples = [encoder.encode(lesson(REPLY + " where" * extra)) for extra in (0, 0, 7, 30)]
    config = sft_config(model, steps=1, learning_rate=1e-9)
    learner = build_learner(config, tmp_path, [examples], [])
    learner.args.per_device_train_batch_size, learner.args.gradient_accumulation_steps = 1, 4
    learner.train()
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    losses = []
    for example in examples:
        ids = torch.tensor([example.prompt + example.reply])
        logprobs = base(input_ids=ids).logits[0, :-1].log_softmax(-1)
        own = logprobs.gather(-1, ids[0, 1:, None]).squeeze(-1)
        losses += own[len(example.prompt) - 1 :].tolist()
    assert len(losses) == sum(len(example.reply) for example in examples)
    assert learner.state.log_history[0]["loss"] == pytest.approx(-sum(losses) / len(losses), rel=1e-4)


def test_an_engines_own_ids_are_learnt_as_it_drew_them(sources: Sources, encoder: Encoder) -> None:
    row = sources.rows[0]
    drawn = [*row.token_ids[:-2], 7, *row.token_ids[-1:]]  # not how a tokenizer would write the same text
    example = encoder.encode(Lesson("t0", row.messages, row.reply, row.prompt_token_ids, drawn))
    assert (example.prompt, example.reply) == (row.prompt_token_ids, drawn)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_ids": [1, 2, 3]}, r"`sft.sampling_id`: task t1 was asked in 3 tokens, .* of another base model"),
        ({"reply_ids": [5, 6]}, r"ends in token 6, the end-of-turn ids of .* a policy that learns it would not stop"),
    ],
)
def test_what_this_models_engine_would_have_seen_or_ended_otherwise_is_refused(
    encoder: Encoder, changes: dict[str, list[int]], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        encoder.encode(lesson(**changes))


def test_what_is_too_long_is_left_out_and_counted(encoder: Encoder, model: Path) -> None:
    found = lessons(REPLY, REPLY + " where" * 90, REPLY)
    found.dropped[DropReason.NO_RIGHT_REPLY] = 0
    examples = encoder.examples(found, max_tokens=40)
    assert (list(examples.kept), examples.dropped) == (["t0", "t2"], {DropReason.OVER_BUDGET: 1})
    tight = replace(encoder, window=examples.longest - 1)
    assert tight.examples(lessons(REPLY), max_tokens=40).dropped == {DropReason.OVER_WINDOW: 1}
    assert replace(encoder, window=examples.longest).examples(lessons(REPLY), max_tokens=40).dropped == {}

    counts = examples.counts(sft_config(model))
    example = examples.kept["t0"]
    assert (counts.tasks, counts.kept, counts.passes) == (3, 2, 3 * 4 / 2)
    assert (counts.prompt_tokens, counts.reply_tokens) == (2 * len(example.prompt), 2 * len(example.reply))
    assert (counts.longest, counts.window) == (example.tokens, 2048)
    with pytest.raises(
        Invalid, match=r"`prompts_per_step`: 2 of 3 tasks give an example \(over_budget 1\), .* takes 4"
    ):
        refuse_too_few(examples, sft_config(model))


def test_examples_are_known_again_by_their_ids(encoder: Encoder) -> None:
    digests = {encoder.examples(lessons(REPLY, other), 64).digest for other in ("select", "select", "where")}
    assert len(digests) == 2


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(Invalid, match="`model`: no tokenizer or config of '/nowhere' can be read here"):
        open_encoder(sft_config(Path("/nowhere")))


def test_labels_hold_the_reply_only(encoder: Encoder) -> None:
    example = encoder.encode(lesson())
    (found,) = dataset([[example]])["labels"]
    assert found == [IGNORED] * len(example.prompt) + example.reply
