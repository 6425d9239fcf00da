"""What decides a training run, and the words that it is said in."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from shared.contracts.base import Contract, Identifier
from shared.contracts.rollout import Regime
from shared.contracts.supervision import SftConfig
from shared.contracts.verifier import Profile


class LoraConfig(Contract):
    """PEFT LoRA on all linear layers, never lm_head."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)


class Method(StrEnum):
    """How a run learns."""

    GRPO = "grpo"  # from rewards of its own samples
    SFT = "sft"  # from replies known to be right: the usual warm start, or the control beside GRPO


class RewardSource(StrEnum):
    """Which rewards the learner sees."""

    VERIFIER = "verifier"
    SHUFFLED = "shuffled"  # control: the batch's rewards in a random order; must show no gain


class Schedule(StrEnum):
    """How the learning rate goes over a run."""

    CONSTANT = "constant"
    LINEAR = "linear"  # falls to 0 at the last step: the noise of single batches averages out of the last adapter


class AdvantageScale(StrEnum):
    """By which standard deviation rewards less their group's mean are divided."""

    GROUP = "group"  # the group's own: every group counts alike, also one that only tells 0.1 from 0
    BATCH = "batch"  # the whole batch's: a group counts by how much its rewards differ


class Loss(StrEnum):
    """The policy loss, as TRL computes it."""

    DAPO = "dapo"  # every token of the batch counts alike
    GRPO = "grpo"  # every reply counts alike, its tokens share its weight: short replies' tokens weigh more
    BNPO = "bnpo"  # as dapo, but within one forward: depends on how the batch is cut
    DR_GRPO = "dr_grpo"  # tokens over the fixed reply budget: no bias by length
    CISPO = "cispo"  # the capped ratio weighs the log-probability: no token is dropped by clipping
    SAPO = "sapo"  # a soft gate in place of the clip
    GSPO = "gspo"  # grpo with one importance ratio a reply


class SharedPrompt(StrEnum):
    """Whether a group's prompt is forwarded once."""

    AUTO = "auto"  # where the model's cache allows it; else the run says why not
    ON = "on"  # refused where it does not
    OFF = "off"


class DataParallel(StrEnum):
    """How several workers share a run; each learns from its part of every step's samples."""

    DDP = "ddp"  # each holds all weights
    FSDP2 = "fsdp2"  # each holds its share of the frozen weights and gathers a layer when it needs it


class Tracker(StrEnum):
    """Where a run's figures can be followed besides `runs show`, by the callbacks of transformers."""

    TENSORBOARD = "tensorboard"
    TRACKIO = "trackio"
    MLFLOW = "mlflow"
    WANDB = "wandb"


class GuardName(StrEnum):
    """What watches over a run; each is a lesson that cost somebody a night."""

    HEADROOM = "headroom"  # pass@k - pass@1 of the policy: what RL can amplify
    ZERO_VARIANCE = "zero_variance"  # share of groups that teach nothing
    SYNC = "sync"  # the policy sampled is the policy trained
    SERVED = "served"  # what is served scores as it did in training
    TRUNCATION = "truncation"  # share of replies that the budget cuts
    BUDGET = "budget"  # share of samples lost to their deadline
    FIRST_REPLY = "first_reply"  # one assistant turn a row
    UNSCORABLE = "unscorable"  # share of samples the infrastructure lost
    STALLED = "stalled"  # reward and KL no longer move
    GENERALIZATION = "generalization"  # training reward rises, the holdout does not
    SATURATED = "saturated"  # two checkpoints alike
    MEMORY = "memory"  # estimate against what the machine has
    NO_SQL = "no_sql"  # share of replies without a statement


class GuardAction(StrEnum):
    """What a guard that fires does."""

    STOP = "stop"  # the run ends after the step; `unscorable` pauses first, `memory` and `headroom` refuse the start
    WARN = "warn"  # an event; the run goes on
    OFF = "off"


SUPERVISED_GUARDS = frozenset({GuardName.MEMORY, GuardName.SATURATED})
"""What can be judged of a run that draws no samples."""


class EvaluationPlan(Contract):
    """Which checkpoints are measured on the holdout as the run goes, and how."""

    every: int = Field(default=0, ge=0, description="steps between two measured checkpoints; 0: none")
    limit: int | None = Field(default=None, ge=1, description="at most this many tasks, a seeded draw")
    k: int = Field(default=4, ge=1, le=64)
    temperature: float = Field(default=0.7, ge=0, le=2)
    top_p: float = Field(default=0.95, gt=0, le=1)
    max_tokens: int = Field(default=4096, ge=1)


SFT_LEARNING_RATE = 2e-4
"""Ten times GRPO's: a LoRA wants a rate about ten times full fine-tuning's, for which 2e-5 is usual in SFT
(https://thinkingmachines.ai/blog/lora)."""

GRPO_FIELDS = (
    "band_id",
    "k",
    "advantages",
    "loss",
    "shared_prompt",
    "beta",
    "epsilon_high",
    "importance_cap",
    "temperature",
    "run_ahead",
    "refills",
    "rewards",
)
"""Fields of RunConfig that mean nothing to a run without samples and rewards."""


class RunConfig(Contract):
    """Everything that decides a run."""

    method: Method = Method.GRPO
    domain: Identifier
    model: str = Field(description="Hugging Face folder or name: what inference serves as base")
    band_id: Identifier | None = Field(default=None, description="prompts of GRPO, which needs one")
    sft: SftConfig | None = Field(default=None, description="only with method `sft`, which needs it")
    regime: Regime = Regime()
    steps: int = Field(default=40, ge=1)
    prompts_per_step: int = Field(default=32, ge=1, description="under sft: examples")
    k: int = Field(default=16, ge=2, description="samples per prompt")
    learning_rate: float = Field(default=2e-5, gt=0, description="under sft the default is 2e-4")
    schedule: Schedule = Field(default=Schedule.CONSTANT, description="of the learning rate over the run's steps")
    advantages: AdvantageScale = Field(
        default=AdvantageScale.GROUP, description="what a group's rewards are divided by"
    )
    loss: Loss = Loss.DAPO
    shared_prompt: SharedPrompt = SharedPrompt.AUTO
    lora: LoraConfig = LoraConfig()
    beta: float = Field(default=0.0, ge=0)
    epsilon_high: float = Field(default=0.28, gt=0)
    importance_cap: float = Field(default=2.0, gt=1)
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=4096, ge=1, description="reply budget; under sft longer replies are left out")
    start_from: str = Field(default="base", description="`base` or `<run>@<step>`: the adapter whose LoRA goes on")
    run_ahead: int = Field(
        default=1, ge=0, le=1, description="steps by which generation runs ahead of learning; 0: on-policy"
    )
    refills: int = Field(
        default=4, ge=0, le=16, description="rounds a step in which groups that teach nothing give way to other prompts"
    )
    evaluation: EvaluationPlan = EvaluationPlan()
    guards: dict[GuardName, GuardAction] = Field(
        default_factory=dict, description="other than the guards' own actions; may change when a run is resumed"
    )
    kernels: list[str] = Field(
        default_factory=list, description="Python modules that the model's layers need; a missing one fails the start"
    )
    micro_batch: int | None = Field(
        default=None,
        ge=1,
        description="replies in one forward at most, where prompts are not shared; None: what `max_tokens` allows. "
        "1 for layers that cannot skip padding (linear attention)",
    )
    workers: int = Field(default=1, ge=1, description="Ray Train workers; may change when a run is resumed")
    data_parallel: DataParallel = Field(
        default=DataParallel.DDP,
        description="how several workers hold the weights, one holds all; may change when a run is resumed",
    )
    report_to: list[Tracker] = Field(
        default_factory=list, description="trackers that get every step's figures; may change when a run is resumed"
    )
    restarts: int = Field(
        default=3,
        ge=0,
        description="attempts that may follow by themselves on one that died (killed, out of memory, its node lost) "
        "without a step done in between; may change when a run is resumed",
    )
    seed: int = 0
    profile: Profile = Field(default=Profile.STANDARD, description="comparison rule of the reward")
    rewards: RewardSource = RewardSource.VERIFIER

    @property
    def band(self) -> str:
        """The band of a GRPO run."""
        assert self.band_id is not None, "the validator saw to it"
        return self.band_id

    @property
    def shards_weights(self) -> bool:
        """Whether each worker holds only its share of the frozen weights."""
        return self.workers > 1 and self.data_parallel is DataParallel.FSDP2

    @property
    def source(self) -> str:
        """What it learns from: a band's, a sampling's id, or `golds`."""
        return self.sft.source if self.sft else self.band

    @model_validator(mode="before")
    @classmethod
    def _learning_rate_of_its_method(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("method") == Method.SFT:
            return {"learning_rate": SFT_LEARNING_RATE, **data}
        return data

    @model_validator(mode="after")
    def _fits_its_method(self) -> Self:
        if self.method is Method.GRPO:
            if self.band_id is None:
                raise ValueError("`band_id` is missing: GRPO takes its prompts from a band, `sqlclimb band` cuts one")
            if self.sft is not None:
                raise ValueError("`sft` means nothing under method grpo: leave it out, or set `method` to sft")
            return self
        if self.sft is None:
            raise ValueError("`sft` is missing: say what to learn from, `sft.sampling_id` or `sft.golds`")
        fields = type(self).model_fields  # a recorded config holds every field: those at their default say nothing
        idle = [name for name in GRPO_FIELDS if getattr(self, name) != fields[name].get_default()]
        idle += [f"guards.{name}" for name in self.guards if name not in SUPERVISED_GUARDS]
        if idle:
            raise ValueError(f"{', '.join(f'`{name}`' for name in idle)} mean nothing under method sft: leave them out")
        if self.data_parallel is not DataParallel.DDP:
            raise ValueError("`data_parallel`: method sft shares its work by ddp only; leave it out")
        if self.sft.golds and self.regime.thinking:
            raise ValueError(
                "`sft.golds` would unlearn the thinking that `regime.thinking` asks for: learn from a sampling's "
                "replies, which hold it, or switch thinking off"
            )
        return self
