"""What is refused before any compute is spent on a run."""

from pathlib import Path

from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.base import FieldError
from shared.contracts.measuring import Band
from shared.contracts.trainer import RunConfig
from shared.errors import Invalid, Unavailable


class Admission:
    """Checks a run's config against what rollout and inference have."""

    def __init__(self, rollout: RolloutClient, inference: InferenceClient) -> None:
        self._rollout = rollout
        self._inference = inference

    async def check(self, config: RunConfig) -> None:
        """Raises Invalid, naming the field and the fix; Unavailable when a service gives no answer."""
        if config.workers > 1:
            _refuse("workers", f"{config.workers} workers: this version trains with 1")
        _check_folder(config.model)
        try:
            await self._check_band(config)
            await self._check_base(config)
        except ServiceUnreachable as error:
            raise Unavailable(f"{error}. Nothing was started") from error

    async def _check_band(self, config: RunConfig) -> None:
        try:
            band: Band = await self._rollout.band(config.band_id)
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


def _check_folder(model: str) -> None:
    """A path must hold a model; a hub name has at most one slash and is inference's to know."""
    path = Path(model)
    if (path.is_absolute() or path.exists() or model.count("/") > 1) and not (path / "config.json").exists():
        _refuse("model", f"{model!r} is no Hugging Face model folder: {path / 'config.json'} is missing")


def _is_same_model(wanted: str, served: str) -> bool:
    return wanted == served or Path(wanted).resolve() == Path(served).resolve()


def _refuse(field: str, message: str) -> None:
    raise Invalid(f"`{field}`: {message}. Nothing was started", [FieldError(field=f"config.{field}", message=message)])
