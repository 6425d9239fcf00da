"""Which replies of a sampling become examples, and which samplings are refused."""

from pathlib import Path
from typing import Any

import pytest

from services.trainer.supervised.lessons import Found
from services.trainer.supervised.samplings import unfit, verified_replies
from shared.auth import read_token
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import Regime, SamplingRequest, SamplingState
from shared.contracts.run_config import RunConfig
from shared.contracts.supervision import DropReason
from shared.contracts.tasks import Split
from shared.contracts.verifier import FinishReason, Status
from shared.errors import Invalid
from tests.trainer.supervised.conftest import sft_config
from tests.trainer.supervised.sources import QUESTION_ONLY, SAMPLING, TASKS, Sources, row, sampling


async def found(sources: Sources, tokens: Path, config: RunConfig, sampling_id: str = SAMPLING) -> Found:
    async with RolloutClient(sources.url, read_token(tokens, "trainer")) as rollout:
        return await verified_replies(rollout, config, sampling_id)


async def test_the_first_right_reply_a_task_that_its_policy_ended_is_taken(
    sources: Sources, tokens: Path, model: Path
) -> None:
    tokenizer = sources.tokenizer
    sources.rows = [
        row(tokenizer, 0, 1),  # landed before the first one
        row(tokenizer, 0, 0),
        row(tokenizer, 1, 0, Status.MISMATCH),
        row(tokenizer, 1, 1),
        row(tokenizer, 2, 0, Status.UNSCORABLE),
        row(tokenizer, 2, 1, Status.SQL_ERROR),
        row(tokenizer, 3, 0, finish_reason=FinishReason.LENGTH),
        row(tokenizer, 4, 0, Status.UNSCORABLE),
    ]
    result = await found(sources, tokens, sft_config(model))
    assert [(lesson.task_id, lesson.reply) for lesson in result.lessons] == [
        ("t0", "select 0 from t0"),
        ("t1", "select 1 from t1"),
    ]
    assert result.tasks == TASKS
    assert result.dropped == {DropReason.NO_RIGHT_REPLY: 2, DropReason.UNSCORED: 6}


async def test_one_holdout_task_refuses_the_whole_sampling(sources: Sources, tokens: Path, model: Path) -> None:
    sources.rows[-1] = row(sources.tokenizer, 9, 1, Status.MISMATCH, split=Split.HOLDOUT)
    named = SamplingRequest(sampling_id=SAMPLING, domain="shop", regime=QUESTION_ONLY, task_ids=["t1", "t9"])
    sources.sampling = sampling(named)  # its own record cannot tell
    with pytest.raises(Invalid, match=r"`sft.sampling_id`: .* asked tasks of the holdout split"):
        await found(sources, tokens, sft_config(model))


def asked(**changes: Any) -> SamplingRequest:
    fields = {"sampling_id": SAMPLING, "domain": "shop", "regime": QUESTION_ONLY, "split": Split.TRAIN}
    return SamplingRequest(**fields | changes)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (sampling(state=SamplingState.RUNNING), "is running: wait for its end"),
        (sampling(state=SamplingState.FAILED), "is failed"),
        (sampling(void_reason="wrong seed"), "was withdrawn: wrong seed"),
        (sampling(asked(domain="other")), "is of domain 'other', the run of 'shop'"),
        (sampling(asked(split=Split.HOLDOUT)), "asked the holdout split"),
        (sampling(asked(regime=Regime())), "asked under another regime"),
    ],
)
def test_a_sampling_that_a_run_cannot_learn_from_is_refused_by_its_record(record: Any, words: str) -> None:
    assert words in unfit(record, sft_config(Path("x")))
    assert unfit(sampling(), sft_config(Path("x"))) == ""


async def test_an_unknown_or_unfit_sampling_is_named(sources: Sources, tokens: Path, model: Path) -> None:
    with pytest.raises(Invalid, match="no sampling 'nowhere'; `sqlclimb sample` makes one"):
        await found(sources, tokens, sft_config(model), "nowhere")
    sources.sampling = sampling(void_reason="wrong seed")
    with pytest.raises(Invalid, match="sampling 'base-train' was withdrawn: wrong seed"):
        await found(sources, tokens, sft_config(model))
