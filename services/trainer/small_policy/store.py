"""Finished policies on disk: a folder a digest, complete from the moment it appears."""

import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.contracts.policy import PolicyCard

CARD = "policy.json"


def find(out: Path, digest: str) -> PolicyCard | None:
    """The card of a finished policy, None when there is none (or its card does not read)."""
    try:
        return PolicyCard.model_validate_json((out / digest / CARD).read_text())
    except (OSError, ValidationError):
        return None


def save(out: Path, card: PolicyCard, model: Any, tokenizer: Any) -> Path:
    """Write `out/<digest>`: weights, configuration, tokenizer and last the card. The folder appears by rename, so a
    killed build leaves only a `.partial` folder, which the next one removes."""
    final, partial = out / card.digest, out / f"{card.digest}.partial"
    for stale in (partial, final):  # `final` without a card that reads is no policy
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir(parents=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    (partial / CARD).write_text(card.model_dump_json(indent=1))
    for path in partial.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    partial.rename(final)
    return final
