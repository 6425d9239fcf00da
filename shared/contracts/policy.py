"""The card of a small policy: what `policy.json` beside its weights says. Holds no question and no gold."""

from enum import StrEnum

from pydantic import Field

from shared.contracts.base import Contract, Identifier, Sha256
from shared.contracts.measuring import Estimate
from shared.contracts.rollout import Regime


class StopReason(StrEnum):
    """Why the supervised start ended."""

    TARGET = "target"  # measured pass@1 reached the target
    STEPS = "steps"  # the step limit came first; the policy is usable but weaker than asked for


class SliceMeasure(Contract):
    """Pass rates on a slice of train tasks whose golds the policy never saw, with the verifier's verdicts."""

    step: int = Field(description="optimizer steps done when it was taken")
    tasks: int
    k: int = Field(description="samples per task")
    temperature: float
    top_p: float
    pass_1: Estimate
    pass_k: Estimate
    by_archetype: dict[str, float] = Field(description="archetype to pass@1")


class PolicyCard(Contract):
    """`policy.json`: its presence says that the folder is complete."""

    digest: Sha256 = Field(description="of what made it: tasks, domain, settings, seed, code version; names the folder")
    domain: Identifier
    domain_digest: Sha256
    warm_start_digest: Sha256 = Field(description="over the sorted ids and golds of the tasks it was trained on")
    warm_start_tasks: int
    seed: int
    regime: Regime = Field(description="how it has to be asked; part of its identity")
    max_tokens: int = Field(description="reply budget in tokens: the longest gold it learned and a margin")
    context_tokens: int = Field(description="prompt and reply together; the engine's maximum model length")
    vocabulary: int
    parameters: int
    steps: int
    seconds: float = Field(description="wall time of the build")
    stopped: StopReason
    target: float = Field(description="pass@1 it was to reach on the slice")
    measured: SliceMeasure
    versions: dict[str, str] = Field(description="libraries that made it")
