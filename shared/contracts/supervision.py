"""What a supervised run learns from, and what its steps say of it."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from shared.contracts.base import Contract, Identifier


class SftConfig(Contract):
    """What a supervised run learns from: one of the two."""

    sampling_id: Identifier | None = Field(
        default=None, description="the first right reply a task of this finished sampling of train tasks"
    )
    golds: bool = Field(
        default=False, description="the golds of the domain's train tasks; caller and trainer need the `gold` scope"
    )

    @property
    def source(self) -> str:
        """In a word."""
        return self.sampling_id or "golds"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.sampling_id is None) == (not self.golds):
            raise ValueError("set one of `sampling_id` (verified replies) and `golds`")
        return self


class DropReason(StrEnum):
    """Why a task gives no supervised example."""

    NO_RIGHT_REPLY = "no_right_reply"  # none of its scored samples has verdict `match` and ended by itself
    UNSCORED = "unscored"  # every sample was lost or is unscorable: nothing is known of it
    OVER_BUDGET = "over_budget"  # its reply is longer than `max_tokens`: serving would cut it
    OVER_WINDOW = "over_window"  # prompt and reply are longer than the model's window


class SupervisedFigures(Contract):
    """What only a supervised step has. Means are over the tokens that carry loss: the replies' own."""

    token_accuracy: float = Field(description="share of reply tokens that the policy ranks first")
    entropy: float = Field(description="of the policy at reply tokens, nats")
    reply_tokens: int = Field(description="in the step's examples")
    prompt_tokens: int
    passes: float = Field(description="over the examples, this step included")
