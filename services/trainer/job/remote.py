"""The job's calls to rollout and inference: patient with outages, plain about refusals."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import httpx
import stamina

from services.trainer.failures import RunFailed
from services.trainer.settings import JobSettings
from services.trainer.supervised.golds import GoldReader
from services.trainer.supervised.intake import find_lessons
from services.trainer.supervised.lessons import Found
from shared.auth import read_token
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.inference import Adapter, AdapterRequest, AdapterState
from shared.contracts.measuring import Band, Report
from shared.contracts.rollout import BatchEnd, BatchGroup, BatchRequest, SamplingRequest
from shared.contracts.run_config import RunConfig
from shared.errors import ServiceError
from shared.ids import parse_policy

Result = TypeVar("Result")

OUTAGE_SECONDS = 600.0
"""How long a job waits for rollout or inference to come back before its run fails."""

LONGEST_WAIT_SECONDS = 10.0
"""Between two tries."""

PUBLISH_TIMEOUT_SECONDS = 600.0
"""An adapter is answered once every replica serves it and its probe has run."""

TEMPORARY_STATUSES = frozenset({429, 500, 502, 503, 504})


class StreamCut(Exception):
    """A batch's stream ended without its end line; the same call again continues it."""


@dataclass(frozen=True)
class Batch:
    """One step's groups, complete."""

    groups: dict[str, BatchGroup]
    end: BatchEnd
    seconds: float
    """Wall time from the first call to the last line."""


class Remote:
    """Synchronous calls for the training loop; every one may be repeated, ids make it idempotent."""

    def __init__(self, settings: JobSettings, outage_seconds: float = OUTAGE_SECONDS) -> None:
        self._settings = settings
        self._outage_seconds = outage_seconds

    def band(self, band_id: str) -> Band:
        """The prompts to train on."""

        async def call() -> Band:
            async with RolloutClient(self._settings.rollout_url, self._token()) as rollout:
                return await rollout.band(band_id)

        return self._patiently("rollout", call)

    def base_name(self) -> str:
        """Served name of the base model."""

        async def call() -> str:
            async with InferenceClient(self._settings.inference_url, self._token()) as inference:
                return (await inference.adapters()).base

        return self._patiently("inference", call)

    def batch(self, request: BatchRequest, serve: Callable[[], None]) -> Batch:
        """A step's samples. A cut stream is asked for again: rows that landed are replayed, none is drawn twice.

        `serve`: makes sure that the policy is served, before every try but the first: another run's may have taken its
        slot, which is a conflict or cuts the stream. Raises RunFailed.
        """
        started = time.monotonic()
        tries = 0

        def passing(error: Exception) -> bool:
            conflict = isinstance(error, ServiceProblem) and error.problem.status == HTTPStatus.CONFLICT
            return _is_temporary(error) or (conflict and tries == 1)

        async def call() -> Batch:
            nonlocal tries
            tries += 1
            if tries > 1:
                await asyncio.to_thread(serve)
            groups: dict[str, BatchGroup] = {}
            end: BatchEnd | None = None
            async with RolloutClient(self._settings.rollout_url, self._token()) as rollout:
                async for line in rollout.batch(request):
                    if isinstance(line, BatchEnd):
                        end = line
                    else:
                        groups[line.task_id] = line
            if end is None:
                raise StreamCut(f"the batch of step {request.step} ended after {len(groups)} groups")
            return Batch(groups, end, time.monotonic() - started)

        return self._patiently("rollout", call, passing)

    def lessons(self, config: RunConfig) -> Found:
        """What a supervised run learns from. Raises RunFailed, also for data that it cannot learn from."""

        async def call() -> Found:
            async with RolloutClient(self._settings.rollout_url, self._token()) as rollout:
                return await find_lessons(config, rollout, GoldReader(self._settings, self._settings.tokens_file))

        try:
            return self._patiently("the source of its examples", call)
        except ServiceError as error:
            raise RunFailed(error.detail) from error

    def report(self, sampling_id: str) -> Report:
        """The table of a sampling."""

        async def call() -> Report:
            async with RolloutClient(self._settings.rollout_url, self._token()) as rollout:
                return await rollout.report(sampling_id)

        return self._patiently("rollout", call)

    def measure(self, request: SamplingRequest) -> None:
        """Start a sampling, or go on with it; does not wait for it."""

        async def call() -> None:
            async with RolloutClient(self._settings.rollout_url, self._token()) as rollout:
                await rollout.start(request)

        self._patiently("rollout", call)

    def adapter(self, policy: str) -> Adapter:
        """The newest adapter of `<run>@<step>`. Raises RunFailed."""
        wanted = parse_policy(policy)

        async def call() -> list[Adapter]:
            async with InferenceClient(self._settings.inference_url, self._token()) as inference:
                return (await inference.adapters()).adapters

        found = [
            adapter
            for adapter in self._patiently("inference", call)
            if wanted is not None and (adapter.run_id, adapter.step) == (wanted.run_id, wanted.step)
        ]
        if not found:
            raise RunFailed(f"`start_from`: {policy} was never published. Nothing was trained")
        return found[0]

    def publish(self, name: str, request: AdapterRequest) -> Adapter:
        """Serve an adapter. Raises RunFailed unless it is ready."""

        async def call() -> Adapter:
            url = self._settings.inference_url
            async with InferenceClient(url, self._token(), PUBLISH_TIMEOUT_SECONDS) as inference:
                return await inference.publish(name, request)

        adapter = self._patiently("inference", call)
        if adapter.state is not AdapterState.READY:
            raise RunFailed(f"adapter {name} is {adapter.state}, not served: {adapter.reason}. Its checkpoint is kept")
        return adapter

    def _token(self) -> str:
        return read_token(self._settings.tokens_file, self._settings.token_name)

    def _patiently(
        self, service: str, call: Callable[[], Awaitable[Result]], passing: Callable[[Exception], bool] | None = None
    ) -> Result:
        async def repeat() -> Result:
            async for attempt in stamina.retry_context(
                on=passing or _is_temporary, attempts=None, timeout=self._outage_seconds, wait_max=LONGEST_WAIT_SECONDS
            ):
                with attempt:
                    return await call()
            raise AssertionError("a retry context ends by return or raise")

        try:
            return asyncio.run(repeat())
        except ServiceProblem as error:
            raise RunFailed(f"{service} refused: {error}. Steps before this one are kept") from error
        except (httpx.TransportError, ServiceUnreachable, StreamCut) as error:
            raise RunFailed(
                f"{service} gave no answer for {self._outage_seconds:.0f} s ({error or type(error).__name__}). "
                "Steps before this one are kept; start the run again once it is up"
            ) from error


def _is_temporary(error: Exception) -> bool:
    if isinstance(error, ServiceProblem):
        return error.problem.status in TEMPORARY_STATUSES
    return isinstance(error, httpx.TransportError | ServiceUnreachable | StreamCut)
