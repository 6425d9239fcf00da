"""Reads what a model replied to a proposing call: JSON, fenced, within prose, malformed or cut. Pure."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from services.author.teachers.base import Phrasing
from shared.contracts.tasks import Archetype, Difficulty

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_ITEM_START = re.compile(r'\{\s*"(?:questions?|sql|columns|order_matters|archetype|difficulty)"\s*:')
_DECODER = json.JSONDecoder(strict=False)  # a raw line break inside a string is the commonest fault


class _Asked(BaseModel):
    style: str = ""
    question: str = Field(min_length=1)


class _Item(BaseModel):
    """One proposal as a model writes it. Lenient in form: the gates judge the content."""

    model_config = ConfigDict(extra="ignore")

    questions: list[_Asked] = Field(min_length=1)
    sql: str = Field(min_length=1)
    columns: list[str] = Field(default_factory=list)
    order_matters: bool = False
    archetype: Archetype | None = None
    difficulty: Difficulty | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_question(cls, data: Any) -> Any:
        """`question: "…"` and a list of bare texts mean the same as `questions: [{…}]`."""
        if not isinstance(data, dict):
            return data
        asked = data.get("questions", data.get("question"))
        listed = asked if isinstance(asked, list) else [asked]
        style = data.get("style", "")
        return {
            **data,
            "questions": [{"style": style, "question": one} if isinstance(one, str) else one for one in listed],
        }

    @field_validator("archetype", mode="before")
    @classmethod
    def _known_archetype(cls, value: Any) -> Any:
        return value if value in list(Archetype) else None

    @field_validator("difficulty", mode="before")
    @classmethod
    def _known_difficulty(cls, value: Any) -> Any:
        return value if value in list(Difficulty) else None


@dataclass(frozen=True)
class ReadItem:
    """One readable item of a reply."""

    phrasings: tuple[Phrasing, ...]
    sql: str
    columns: tuple[str, ...]
    order_matters: bool
    archetype: Archetype | None
    difficulty: Difficulty | None


def read_reply(text: str) -> list[ReadItem | None]:
    """The items of a reply in order, None for each that cannot be read: its neighbours are kept.

    An item that the end of the text cuts off is None too. A reply that holds nothing like an item gives an empty list.
    """
    return [_read_item(found) for found in _objects(_THOUGHT.sub("", text))]


def _objects(text: str) -> Iterator[dict[str, Any] | None]:
    """Every object that looks like an item; None where one begins that is not JSON."""
    place = text.find("{")
    while place != -1:
        try:
            found, end = _DECODER.raw_decode(text, place)
        except json.JSONDecodeError:
            if _ITEM_START.match(text, place):
                yield None
                following = _ITEM_START.search(text, place + 1)
                place = following.start() if following else -1
            else:
                place = text.find("{", place + 1)
            continue
        proposals = found.get("proposals")
        if isinstance(proposals, list):
            yield from (entry if isinstance(entry, dict) else None for entry in proposals)
        elif found.keys() & {"sql", "questions"}:
            yield found
        place = text.find("{", end)


def _read_item(found: dict[str, Any] | None) -> ReadItem | None:
    if found is None:
        return None
    try:
        item = _Item.model_validate(found)
        item.model_dump_json()  # a lone surrogate, written as an escape, can be neither stored nor sent
    except (ValidationError, ValueError):
        return None
    if "\x00" in item.sql or any("\x00" in asked.question for asked in item.questions):
        return None
    return ReadItem(
        tuple(Phrasing(asked.style or "plain", asked.question.strip()) for asked in item.questions),
        item.sql.strip().removesuffix(";").rstrip(),
        tuple(item.columns),
        item.order_matters,
        item.archetype,
        item.difficulty,
    )
