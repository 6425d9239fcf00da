"""Presets, and plans of runs: shapes from the model's folder, lengths and band from what was sampled."""

import json
import tomllib
from functools import cache
from pathlib import Path

import psutil
from pydantic import ValidationError

from services.trainer.planning.plan import GIB, PROMPT_TOKENS, Lengths, make_plan
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.rollout import RolloutClient
from shared.contracts.base import FieldError
from shared.contracts.measuring import Band
from shared.contracts.planning import Hardware, ModelShape, Plan, PlanRequest, Preset
from shared.contracts.run_config import Method, RunConfig
from shared.errors import Invalid, Unavailable

FOLDER = Path(__file__).parent / "presets"


@cache
def presets() -> dict[str, Preset]:
    """The shipped presets by name. Raises pydantic.ValidationError for a faulty file."""
    return {
        path.stem: Preset(name=path.stem, **tomllib.loads(path.read_text())) for path in sorted(FOLDER.glob("*.toml"))
    }


def this_machine() -> Hardware:
    """A machine without a GPU, as it is: what is free now beside its other services."""
    return Hardware(memory_gib=psutil.virtual_memory().available / GIB, bandwidth_gb_per_second=20.0, tflops=0.1)


def read_shape(folder: Path) -> ModelShape | None:
    """The shape in a model folder's `config.json`; None without one, or for a layout not known here."""
    try:
        content = json.loads((folder / "config.json").read_text())
    except OSError:
        return None
    content = content.get("text_config", content)
    heads = content.get("num_attention_heads")
    kinds = content.get("layer_types") or []
    linear = sum(kind == "linear_attention" for kind in kinds)
    try:
        return ModelShape(
            layers=content["num_hidden_layers"],
            hidden=content["hidden_size"],
            mlp=content["intermediate_size"],
            heads=heads,
            kv_heads=content.get("num_key_value_heads") or heads,
            head_dim=content.get("head_dim") or content["hidden_size"] // heads,
            vocabulary=content["vocab_size"],
            tied=content.get("tie_word_embeddings", True),
            full_attention_layers=len(kinds) - linear if linear else None,
        )
    except (KeyError, TypeError, ValidationError):
        return None


class Planner:
    """Plans runs; starts nothing."""

    def __init__(self, rollout: RolloutClient) -> None:
        self._rollout = rollout

    async def plan(self, request: PlanRequest) -> Plan:
        """Raises Invalid for an unknown preset or model shape, Unavailable when rollout gives no answer."""
        config = request.config
        if config.method is Method.SFT:
            raise _invalid("method", "a plan is of a GRPO run; `--dry-run` counts what method sft learns from")
        preset = None
        if request.preset is not None:
            if request.preset not in presets():
                raise _invalid("preset", f"no preset {request.preset!r}; there are {', '.join(presets())}")
            preset = presets()[request.preset]
        shape = read_shape(Path(config.model)) or (preset.shape if preset else None)
        if shape is None:
            raise _invalid(
                "model",
                f"the shape of {config.model!r} is not known here: give its folder, or a preset that holds it",
            )
        band, lengths = await self._band(config, preset)
        hardware = preset.hardware if preset else this_machine()
        plan = make_plan(config, shape, hardware, lengths, len(set(band.task_ids)))
        warning = cut_on_another(band, config)
        return plan.model_copy(update={"warnings": [*plan.warnings, warning]}) if warning else plan

    async def _band(self, config: RunConfig, preset: Preset | None) -> tuple[Band, Lengths]:
        """The band, and the lengths that the policy's own replies had when it was cut."""
        try:
            band = await self._rollout.band(config.band)
            reply = (await self._rollout.report(band.sampling_id)).lines[0].median_tokens
        except ServiceUnreachable as error:
            raise Unavailable(f"{error}. Nothing was planned") from error
        except ServiceProblem as error:
            if error.problem.status != 404:
                raise Unavailable(f"rollout: {error}. Nothing was planned") from error
            raise _invalid("band_id", f"no band {config.band_id!r}; cut one with `sqlclimb band`") from error
        prompt = float(preset.prompt_tokens) if preset else PROMPT_TOKENS
        return band, Lengths(prompt=prompt, reply=reply or (preset.reply_tokens if preset else 1))


def cut_on_another(band: Band, config: RunConfig) -> str:
    """A warning when the band was cut on another policy than the run starts from; empty otherwise."""
    if band.policy == config.start_from:
        return ""
    return (
        f"band {band.band_id} was cut on {band.policy}, the run starts from {config.start_from}: other prompts are "
        "neither too easy nor too hard for it. Sample the train split with it and cut a band of its own"
    )


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"`{field}`: {message}. Nothing was planned", [FieldError(field=field, message=message)])
