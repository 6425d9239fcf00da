"""Settings of a small policy's build. Every field is `SQLCLIMB_<FIELD>` and `--<field>`."""

from pathlib import Path

from pydantic import Field

from shared.contracts.base import Contract, Identifier
from shared.settings import DomainSettings, ServiceSettings


class Architecture(Contract):
    """Qwen3's sizes. The defaults make about two million parameters."""

    hidden: int = Field(default=192, ge=16)
    mlp: int = Field(default=512, ge=16)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    key_value_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=48, ge=8)
    vocabulary: int = Field(default=1024, ge=300, description="entries of the tokenizer, at most")


class Recipe(Contract):
    """Everything besides the tasks that decides the weights; part of the policy's digest."""

    architecture: Architecture = Architecture()
    batch: int = Field(default=32, ge=1, description="examples a step")
    matrix_learning_rate: float = Field(default=0.02, gt=0, description="Muon, for the layers' matrices")
    learning_rate: float = Field(default=3e-3, gt=0, description="AdamW, for embeddings and norms")
    weight_decay: float = Field(default=0.01, ge=0)
    averaging: float = Field(
        default=0.97, ge=0, lt=1, description="decay of the running average of the weights, a step"
    )
    warmup_steps: int = Field(default=20, ge=1)
    slips: float = Field(
        default=0.4, ge=0, le=1, description="share of golds learnt with one slip: what reward can unlearn"
    )
    maximum_steps: int = Field(default=800, ge=1, description="stop here when the target was not reached")
    target: float = Field(default=0.40, ge=0, le=1, description="stop at this pass@1 on the slice: a middle level")
    measure_from: int = Field(
        default=200,
        ge=1,
        description="first measurement at this step; before it replies run to the budget, which is slow",
    )
    measure_every: int = Field(default=25, ge=1, description="steps between two measurements")
    slice_tasks: int = Field(default=100, ge=1, description="train tasks of fold 1 that are measured")
    k: int = Field(default=4, ge=1, description="samples per measured task")
    temperature: float = Field(default=0.7, gt=0)
    top_p: float = Field(default=0.95, gt=0, le=1)


class PolicySettings(DomainSettings, Recipe):
    """What `python -m services.trainer.small_policy` reads."""

    model_config = ServiceSettings.model_config

    domain: Identifier = Field(description="the domain whose tasks it learns")
    out: Path = Field(description="folder of policies; each lies in a folder named by its digest")
    seed: int = Field(default=0, ge=0)
    author_url: str = Field(description="the author service")
    verifier_url: str = Field(description="the verifier service")
    tokens_file: Path = Field(description="JSON file of bearer tokens and their scopes")
    token_name: str = Field(default="service", description="a token of the file with the `gold` scope")
    threads: int = Field(default=2, ge=1, description="CPU threads of the learner")

    @property
    def recipe(self) -> Recipe:
        """The part that decides the weights."""
        return Recipe(**{name: getattr(self, name) for name in Recipe.model_fields})
