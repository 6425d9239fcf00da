"""What the API finds out of a supervised run's data: whether a run may learn from it, and how much there is."""

import asyncio

import httpx

from services.trainer.supervised.golds import GoldReader
from services.trainer.supervised.lessons import Found
from services.trainer.supervised.samplings import find_sampling, verified_replies
from shared.auth import Scope
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.contracts.planning import DryRun
from shared.contracts.run_config import RunConfig
from shared.errors import Forbidden, Invalid, Unavailable


async def find_lessons(config: RunConfig, rollout: RolloutClient, golds: GoldReader) -> Found:
    """The lessons of a supervised run. Raises Invalid, Forbidden, and as the clients do."""
    assert config.sft is not None, "the method's validator saw to it"
    if config.sft.sampling_id is not None:
        return await verified_replies(rollout, config, config.sft.sampling_id)
    return await golds.lessons(config)


def refuse_without_gold(config: RunConfig, scopes: frozenset[Scope]) -> None:
    """Raises Forbidden when a caller who may not see golds would have a policy learn, and so tell, them."""
    if config.sft is not None and config.sft.golds and not scopes & {Scope.GOLD, Scope.ADMIN}:
        raise Forbidden(
            "`sft.golds`: a policy that learnt golds can tell them, so the caller's token needs the `gold` scope. "
            "Learn from a sampling's verified replies (`sft.sampling_id`), or use such a token. Nothing was started"
        )


class Intake:
    """Looks at data; starts nothing."""

    def __init__(self, rollout: RolloutClient, golds: GoldReader) -> None:
        self._rollout = rollout
        self._golds = golds

    async def check(self, config: RunConfig) -> None:
        """What is known before any reply is read. Raises Invalid, Forbidden, Unavailable."""
        if config.sft is None:
            return
        if config.sft.sampling_id is None:
            self._golds.token()
            return
        try:
            await find_sampling(self._rollout, config, config.sft.sampling_id)
        except (ServiceProblem, ServiceUnreachable) as error:
            raise Unavailable(f"{error}. Nothing was started") from error

    async def dry_run(self, config: RunConfig) -> DryRun:
        """Counts of what the run would learn from. Raises Invalid, Forbidden, Unavailable."""
        if config.sft is None:
            raise Invalid("a dry run counts what method sft learns from; `POST /v1/plans` plans a GRPO run")
        try:
            found = await find_lessons(config, self._rollout, self._golds)
        except (ServiceProblem, ServiceUnreachable, httpx.TransportError) as error:
            raise Unavailable(f"{error or type(error).__name__}. Nothing was started") from error
        return await asyncio.to_thread(_count, config, found)


def _count(config: RunConfig, found: Found) -> DryRun:
    from services.trainer.supervised.encoding import open_encoder  # PyTorch comes with it

    return open_encoder(config).examples(found, config.max_tokens).counts(config)
