"""What is refused before any compute is spent on a run."""

import asyncio
import uuid
from pathlib import Path
from typing import NoReturn

import fsspec

from services.trainer.supervised.intake import Intake
from services.trainer.trackers import missing_trackers
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.base import FieldError
from shared.contracts.inference import AdapterList
from shared.contracts.measuring import Band
from shared.contracts.run_config import Method, RunConfig, SharedPrompt
from shared.errors import Invalid, Unavailable
from shared.ids import parse_policy


class Admission:
    """Checks a run's config against what rollout, inference and author have."""

    def __init__(self, rollout: RolloutClient, inference: InferenceClient, artifacts: str, intake: Intake) -> None:
        self._rollout = rollout
        self._inference = inference
        self._artifacts = artifacts
        self._intake = intake

    async def check(self, config: RunConfig) -> None:
        """Raises Invalid, naming the field and the fix; Forbidden; Unavailable when a service gives no answer."""
        if config.prompts_per_step % config.workers:
            _refuse(
                "workers", f"{config.prompts_per_step} prompts a step cannot be shared out to {config.workers} evenly"
            )
        if config.shards_weights and config.shared_prompt is SharedPrompt.ON:
            _refuse(
                "shared_prompt",
                "on is not possible with `data_parallel` fsdp2, whose workers must forward equally often: set it to "
                "auto or off, or train with ddp",
            )
        if missing := missing_trackers(config.report_to):
            _refuse("report_to", missing)
        _check_folder(config.model)
        await asyncio.to_thread(_check_store, self._artifacts)
        try:
            if config.method is Method.SFT:
                await self._intake.check(config)
            else:
                await self._check_band(config)
            await self._check_base(config)
        except ServiceUnreachable as error:
            raise Unavailable(f"{error}. Nothing was started") from error

    async def _check_band(self, config: RunConfig) -> None:
        try:
            band: Band = await self._rollout.band(config.band)
        except ServiceProblem as error:
            if error.problem.status != 404:
                raise Unavailable(f"rollout: {error}. Nothing was started") from error
            _refuse("band_id", f"no band {config.band_id!r}; cut one with `sqlclimb band`")
        if band.domain != config.domain:
            _refuse("band_id", f"band {band.band_id!r} is of domain {band.domain!r}, not {config.domain!r}")
        if len(set(band.task_ids)) < config.prompts_per_step:
            _refuse(
                "band_id",
                f"band {band.band_id!r} holds {len(set(band.task_ids))} tasks, a step takes {config.prompts_per_step} "
                "distinct ones: widen the band, sample more tasks for it, or lower `prompts_per_step`",
            )

    async def _check_base(self, config: RunConfig) -> None:
        try:
            served = await self._inference.adapters()
        except ServiceProblem as error:
            raise Unavailable(f"inference: {error}. Nothing was started") from error
        if served.model and not _is_same_model(config.model, served.model):
            _refuse("model", f"{config.model!r} is not what inference serves: {served.model!r} as {served.base!r}")
        if served.max_lora_rank is not None and config.lora.rank > served.max_lora_rank:
            _refuse(
                "lora.rank", f"rank {config.lora.rank} is above the largest inference serves: {served.max_lora_rank}"
            )
        _check_start(config, served)


def _check_folder(model: str) -> None:
    """A path must hold a model; a hub name has at most one slash and is inference's to know."""
    path = Path(model)
    if (path.is_absolute() or path.exists() or model.count("/") > 1) and not (path / "config.json").exists():
        _refuse("model", f"{model!r} is no Hugging Face model folder: {path / 'config.json'} is missing")


def _check_start(config: RunConfig, served: AdapterList) -> None:
    try:
        start = parse_policy(config.start_from)
    except ValueError as error:
        _refuse("start_from", str(error))
    if start and (start.run_id, start.step) not in {(adapter.run_id, adapter.step) for adapter in served.adapters}:
        _refuse("start_from", f"{config.start_from} was never published: see `sqlclimb adapters list`")


def _check_store(artifacts: str) -> None:
    """Adapters must be storable: better known now than after the first step."""
    try:
        filesystem, root = fsspec.core.url_to_fs(artifacts)
        filesystem.makedirs(root, exist_ok=True)
        trial = f"{root.rstrip('/')}/.writable-{uuid.uuid4().hex}"
        filesystem.pipe_file(trial, b"")
        filesystem.rm_file(trial)
    except (OSError, ValueError, ImportError) as error:
        raise Unavailable(
            f"the artifact store {artifacts} cannot be written ({error}): no adapter could be kept. Make it writable, "
            "then start the run again. Nothing was started"
        ) from error


def _is_same_model(wanted: str, served: str) -> bool:
    return wanted == served or Path(wanted).resolve() == Path(served).resolve()


def _refuse(field: str, message: str) -> NoReturn:
    raise Invalid(f"`{field}`: {message}. Nothing was started", [FieldError(field=f"config.{field}", message=message)])
