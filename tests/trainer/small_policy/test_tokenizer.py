"""Token ids: what is trained on is what an engine sees, and no piece is longer than a word."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from services.trainer.small_policy.build import REGIME, prepare
from services.trainer.small_policy.examples import prompt_ids
from services.trainer.small_policy.tasks import WarmStart
from services.trainer.small_policy.tokenizer import train_tokenizer
from shared.contracts.rollout import Message
from shared.domain import Bundle, messages
from tests.trainer.small_policy.conftest import TINY

TOKENIZER = train_tokenizer(["SELECT ship_id FROM ships WHERE tons > 20"] * 20, 400)


@given(st.text())
@settings(deadline=None)
def test_any_text_comes_back_from_its_ids(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    special = set(TOKENIZER.all_special_tokens)
    if not any(token in text for token in special):
        assert TOKENIZER.decode(ids) == text


def test_prompt_ids_equal_the_saved_chat_templates(bundle: Bundle, warm_start: WarmStart, tmp_path: Path) -> None:
    material = prepare(bundle, warm_start, TINY)
    material.tokenizer.save_pretrained(tmp_path)
    engine = AutoTokenizer.from_pretrained(tmp_path)
    for task, one in zip(warm_start.measure, material.slice, strict=True):
        sent = [message.model_dump() for message in messages(bundle, REGIME, task.question)]
        text = engine.apply_chat_template(sent, tokenize=False, add_generation_prompt=True)
        assert text == f"<|user|>{task.question}<|assistant|>"
        assert engine.encode(text, add_special_tokens=False) == one.prompt
    for example in material.epoch(Random(0)):
        assert engine.decode(example.prompt).endswith(".<|assistant|>")
        assert engine.decode(example.reply).endswith("<|end|>")
        assert engine.decode(example.reply, skip_special_tokens=True).startswith("SELECT ")


def test_an_assistant_turn_ends_with_the_end_token() -> None:
    turns = [Message(role="user", content="q"), Message(role="assistant", content="a")]
    text = TOKENIZER.apply_chat_template([turn.model_dump() for turn in turns], tokenize=False)
    assert text == "<|user|>q<|assistant|>a<|end|>"
    assert prompt_ids(TOKENIZER, turns[:1]) == TOKENIZER.encode("<|user|>q<|assistant|>")


@pytest.mark.parametrize("text", ["SELECT ship_id FROM ships", "How many ships are there?"])
def test_a_text_repeated_often_is_still_no_single_entry(text: str) -> None:
    tokenizer = train_tokenizer([text] * 500, 1024)
    assert len(tokenizer.encode(text)) >= len(text.split())
