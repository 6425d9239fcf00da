"""Tasks on the shop, written by hand: bad ones with the reason each must get, and clean ones that must pass.

Some bad ones are bad beside a clean one only (a paraphrase across the line): they are judged together.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from services.author.gates import Reason
from services.author.importing import proposal_of
from services.author.teachers.base import Proposal
from shared.contracts.tasks import ImportedTask


@dataclass(frozen=True)
class Planted:
    """One task and what must become of it."""

    proposal: Proposal
    reason: Reason | None


def planted() -> list[Planted]:
    """Clean ones first, each at its position."""
    rows = [
        json.loads(line)
        for name in ("clean", "bad")
        for line in (Path(__file__).parent / f"{name}.jsonl").read_text().splitlines()
    ]
    return [
        Planted(
            proposal_of(ImportedTask.model_validate({name: row[name] for name in row if name != "reason"}), position),
            Reason(row["reason"]) if "reason" in row else None,
        )
        for position, row in enumerate(rows)
    ]
