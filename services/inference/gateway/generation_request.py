"""An OpenAI generation request, read as far as the gateway must: model, group, how many sequences, streamed or not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.inference.gateway.routing import affinity_key
from shared.contracts.base import FieldError
from shared.contracts.inference import GROUP_HEADER
from shared.errors import Invalid


@dataclass(frozen=True)
class GenerationRequest:
    """What decides where it goes. The body itself is passed on untouched, unless its model is an alias."""

    model: str
    key: str
    """Requests of one prompt share it (`routing.affinity_key`)."""
    sequences: int
    """Replies it asks for: prompts times `n`."""
    stream: bool


def renamed(body: bytes, model: str) -> bytes:
    """The body with another model: what an alias stands for."""
    return json.dumps(json.loads(body) | {"model": model}).encode()


def read_generation(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Raises Invalid, also without a `model`: vLLM would take a missing one for the base."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the body is no JSON: {error}. Nothing was generated") from error
    if not isinstance(fields, dict):
        raise Invalid("the body is no JSON object. Nothing was generated")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        fault = FieldError(field="model", message="name a served model; GET /v1/models lists them")
        raise Invalid("`model` is missing. Nothing was generated", [fault])
    key = affinity_key(fields, headers.get(GROUP_HEADER))
    return GenerationRequest(
        model, key, _prompts(fields.get("prompt")) * _replies(fields.get("n")), bool(fields.get("stream"))
    )


def _replies(n: Any) -> int:
    return n if isinstance(n, int) and n > 0 else 1  # a faulty one is the engine's to refuse


def _prompts(prompt: Any) -> int:
    """OpenAI's `prompt` is one text, one list of token ids, or a list of either."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1
