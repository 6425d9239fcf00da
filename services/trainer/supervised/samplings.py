"""Right replies of a finished sampling. Holdout tasks are refused whole: what measures may not train."""

from collections import Counter

from services.trainer.supervised.lessons import Found, Lesson
from services.trainer.supervised.refusal import unusable
from shared.clients.base import ServiceProblem
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import Row, Sampling, SamplingState
from shared.contracts.run_config import RunConfig
from shared.contracts.supervision import DropReason
from shared.contracts.tasks import Split
from shared.contracts.verifier import FinishReason, Status


async def verified_replies(rollout: RolloutClient, config: RunConfig, sampling_id: str) -> Found:
    """The first right reply a task of a sampling. Raises Invalid, and as the client does."""
    sampling = await find_sampling(rollout, config, sampling_id)
    scored: set[str] = set()
    right: dict[str, Row] = {}
    async for row in rollout.rows(sampling_id):
        if row.split is not Split.TRAIN:
            raise unusable(
                "sft.sampling_id",
                f"sampling {sampling_id!r} asked tasks of the {row.split or 'unknown'} split: what is trained on them "
                "could not be measured any more. Sample the train split",
            )
        if row.status is not Status.UNSCORABLE:
            scored.add(row.task_id)
        if is_lesson(row) and (row.task_id not in right or row.sample_index < right[row.task_id].sample_index):
            right[row.task_id] = row
    tasks = sampling.progress.wanted // sampling.request.parameters.k
    return Found(
        [
            Lesson(row.task_id, row.messages, row.reply, row.prompt_token_ids, row.token_ids)
            for _, row in sorted(right.items())
        ],
        tasks,
        Counter({DropReason.NO_RIGHT_REPLY: len(scored) - len(right), DropReason.UNSCORED: tasks - len(scored)}),
    )


async def find_sampling(rollout: RolloutClient, config: RunConfig, sampling_id: str) -> Sampling:
    """The sampling, when a run may learn from it. Raises Invalid, and as the client does."""
    try:
        sampling = await rollout.sampling(sampling_id)
    except ServiceProblem as error:
        if error.problem.status != 404:
            raise
        raise unusable("sft.sampling_id", f"no sampling {sampling_id!r}; `sqlclimb sample` makes one") from error
    if reason := unfit(sampling, config):
        raise unusable("sft.sampling_id", f"sampling {sampling_id!r} {reason}")
    return sampling


def unfit(sampling: Sampling, config: RunConfig) -> str:
    """Why a run cannot learn from a sampling, as far as its own record tells; empty when it can. Pure."""
    request = sampling.request
    if sampling.void_reason is not None:
        return f"was withdrawn: {sampling.void_reason}"
    if sampling.state is not SamplingState.DONE:
        return f"is {sampling.state}: wait for its end, the same `sqlclimb sample` follows it"
    if request.domain != config.domain:
        return f"is of domain {request.domain!r}, the run of {config.domain!r}"
    if request.task_ids is None and request.split is not Split.TRAIN:  # named tasks are looked at one by one
        return f"asked the {request.split} split: sample the train split, what measures may not train"
    if request.regime != config.regime:
        return f"asked under another regime ({request.regime!r}) than the run has ({config.regime!r})"
    return ""


def is_lesson(row: Row) -> bool:
    """Whether a row's reply is right and was ended by its policy."""
    return row.status is Status.MATCH and row.finish_reason is FinishReason.STOP
