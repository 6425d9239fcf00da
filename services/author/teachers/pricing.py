"""What tokens cost: the table of known models and the arithmetic. Pure.

Standard rates in USD per million tokens, read on 2026-11-29 from the price lists of platform.claude.com (five-minute
cache writes) and developers.openai.com (prompts under 272k tokens). Bedrock sets its own prices: give them, like those
of any model not listed here, by `SQLCLIMB_TEACHER_PRICES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

MILLION = 1_000_000

CHARACTERS_PER_TOKEN = 2.0
"""For an upper estimate before a call: SQL and English run at 3 to 4 characters a token."""


class Price(BaseModel):
    """USD per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0, description="None: as `input`")
    cache_write: float | None = Field(default=None, ge=0, description="None: as `input`")


PRICES: dict[str, Price] = {
    "claude-fable-5-1": Price(input=10, output=50, cache_read=0.25, cache_write=12.5),
    "claude-opus-5-5": Price(input=4, output=20, cache_read=0.2, cache_write=5),
    "claude-opus-5": Price(input=5, output=25, cache_read=0.5, cache_write=6.25),
    "claude-sonnet-5-5": Price(input=2, output=10, cache_read=0.1, cache_write=2.5),
    "claude-sonnet-5": Price(input=2, output=10, cache_read=0.2, cache_write=2.5),
    "claude-sonnet-4-6": Price(input=3, output=15, cache_read=0.3, cache_write=3.75),
    "claude-haiku-5-5": Price(input=0.1, output=0.5, cache_read=0.01, cache_write=0.125),  # prompts up to 100k tokens
    "claude-haiku-4-5": Price(input=1, output=5, cache_read=0.1, cache_write=1.25),
    "gpt-6.1-sol": Price(input=2, output=10, cache_read=0.1),
    "gpt-6-sol": Price(input=2, output=10, cache_read=0.2, cache_write=2.5),
    "gpt-6-luna": Price(input=0.1, output=0.5, cache_read=0.01, cache_write=0.125),
}


@dataclass(frozen=True)
class Usage:
    """Tokens of a call, each counted in one place only."""

    input: int = 0
    """Neither read from nor written to a cache."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    estimated: bool = False
    """From the text's length: the stream ended before the provider said."""


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """The setting's price, else the table's (a dated name falls back to its alias), else None: unknown."""
    if model in own:
        return own[model]
    alias = model.removesuffix("-" + model.rsplit("-", 1)[-1]) if model.rsplit("-", 1)[-1].isdigit() else model
    return PRICES.get(model, PRICES.get(alias))


def cost_of(price: Price, usage: Usage) -> float:
    """USD."""
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    counted = (
        usage.input * price.input + usage.output * price.output + usage.cache_read * read + usage.cache_write * write
    )
    return counted / MILLION


def tokens_of(text: str) -> int:
    """More tokens than the text can have in practice."""
    return round(len(text) / CHARACTERS_PER_TOKEN) + 1


def worst_cost(price: Price, prompt: str, max_tokens: int) -> float:
    """USD that a call can cost at most: no token of the prompt from a cache, the whole reply budget used."""
    dearest = max(price.input, price.cache_write or 0.0)
    return (tokens_of(prompt) * dearest + max_tokens * price.output) / MILLION
