"""What a run will need and cost, said before anything starts; and the presets it may begin from."""

from typing import Any

from pydantic import Field

from shared.contracts.base import Contract
from shared.contracts.run_config import RunConfig
from shared.contracts.supervision import DropReason


class ModelShape(Contract):
    """Sizes of a decoder as its `config.json` gives them."""

    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    mlp: int = Field(ge=1, description="intermediate size")
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    tied: bool = Field(default=True, description="output head shares the embedding")
    full_attention_layers: int | None = Field(
        default=None, description="layers with a KV cache that grows; None: all. The others are linear attention"
    )


class Hardware(Contract):
    """What the run gets. Without a GPU: the machine's memory and cores."""

    gpu: str = Field(default="", description="empty: CPU")
    gpus: int = Field(default=0, ge=0)
    memory_gib: float = Field(gt=0, description="of one GPU, or of the machine")
    bandwidth_gb_per_second: float = Field(gt=0, description="memory bandwidth of one device, 1e9 bytes")
    tflops: float = Field(gt=0, description="dense peak of one device in the training dtype")
    engine_share: float | None = Field(
        default=None, gt=0, lt=1, description="engine and trainer share each device, this share is the engine's"
    )
    trainer_gpus: int = Field(default=1, ge=1, description="of `gpus`, where they are not shared; the rest serve")
    price_per_gpu_hour: float = Field(default=0.0, ge=0, description="US dollars; yours may differ")


class Preset(Contract):
    """A run known to fit: merge `config` under what the user says."""

    name: str
    title: str
    source: str = Field(description="where its numbers come from: measured, computed, or published")
    shape: ModelShape | None = Field(default=None, description="None: taken from the served model")
    hardware: Hardware
    prompt_tokens: int = Field(ge=1, description="typical prompt")
    reply_tokens: int = Field(ge=1, description="typical reply")
    config: dict[str, Any] = Field(description="fields of RunConfig")


class PresetList(Contract):
    """`GET /v1/presets`."""

    presets: list[Preset]


class PlanRequest(Contract):
    """`POST /v1/plans`: starts nothing."""

    config: RunConfig
    preset: str | None = Field(default=None, description="its hardware, shape and lengths are planned with")


class MemoryLine(Contract):
    """One consumer of memory on one device."""

    device: str = Field(description="`trainer`, `engine`, or `shared`")
    part: str
    gib: float


class Plan(Contract):
    """An estimate. Formulas are in `services/trainer/planning/plan.py`; a run has its own steps."""

    parameters: int
    lora_parameters: int
    hardware: Hardware
    memory: list[MemoryLine]
    needed_gib: float = Field(description="of the tightest device")
    available_gib: float
    fits: bool
    samples_per_step: int
    tokens_per_step: float = Field(description="prompts counted once a group, and replies")
    prompt_tokens: float
    reply_tokens: float
    band_prompts: int
    passes: float = Field(description="over the band, without refills")
    generation_seconds: float = Field(description="a step's")
    learning_seconds: float = Field(description="a step's")
    learning_flops: float = Field(default=0.0, description="a step's floating-point operations, all workers together")
    step_seconds: float
    hours: float
    gpu_hours: float
    dollars: float
    warnings: list[str]


class DryRunRequest(Contract):
    """`POST /v1/dry-runs`: starts nothing. Golds are refused as they are to a run."""

    config: RunConfig


class DryRun(Contract):
    """What a supervised run would learn from, counted. Holds no text."""

    tasks: int = Field(description="train tasks of its source")
    kept: int = Field(description="tasks that give an example")
    dropped: dict[DropReason, int] = Field(description="reason to count of tasks that give none")
    prompt_tokens: int = Field(description="of all that is kept")
    reply_tokens: int = Field(description="the same; these carry the loss")
    longest: int = Field(description="tokens of the longest example")
    window: int = Field(description="tokens the model takes")
    passes: float = Field(description="over what is kept, in the run's steps; 0 when nothing is")
