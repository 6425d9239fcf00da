"""The attack list: one file a class, each statement with the harm it does when nothing stops it.

Keys of an attack: `sql` (or `parts`: texts and how often each is repeated), exactly one harm (see `Attack`), and where
needed `before` (a careless session, walls off only), `planted` (by an administrator, everywhere), `wrapped` (how a
careless caller embeds the text, walls off only). `walls` names the walls that stop it alone, by default both; `why`
says why one does not. `inert` says why a statement does no harm even without walls: counted apart.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.verifier import reference

FOLDER = Path(__file__).parent

GIVEN = "given"
"""The class of statements that lie outside the project; absent where they are."""

HARMS = ("changes", "remains", "shows", "varies", "succeeds", "listens", "notifies", "breaks", "runs_s", "memory_mb",
         "temp_mb", "stops_parser")  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """A hostile statement."""

    kind: str
    """Its class: the file's name."""
    name: str
    sql: str
    walls: frozenset[str]
    """Those of `parser` and `grants` (with the session settings and limits) that stop it alone."""
    why: str = ""
    inert: str = ""
    before: str = ""
    planted: str = ""
    wrapped: str = "{}"

    changes: str = ""
    """What an onlooker's query returns."""
    remains: str = ""
    """What the next statement of the session returns."""
    shows: str = ""
    """A regular expression that matches in what it returns."""
    varies: bool = False
    """What it returns, from run to run."""
    succeeds: bool = False
    """Being carried out is the harm."""
    listens: str = ""
    """The session gets notifications of that channel."""
    notifies: str = ""
    """Others get notifications of that channel."""
    breaks: bool = False
    """Ends neither in rows nor in an SQL error, so that it looks like a failure of the infrastructure."""
    runs_s: float = 0
    """It runs longer, in seconds."""
    memory_mb: float = 0
    """Its backend takes more, in MB."""
    temp_mb: float = 0
    """Its temporary files take more, in MB."""
    stops_parser: bool = False
    """A parser without limits crashes or does not come back."""


def load_attacks() -> list[Attack]:
    """All of them. Raises ValueError for an attack without exactly one harm, KeyError for an unknown key."""
    attacks = []
    for path in sorted(FOLDER.glob("*.toml")):
        if path.stem == GIVEN and not reference.FOLDER.exists():
            continue
        content = tomllib.loads(path.read_text())
        shared = {key: content[key] for key in ("walls", "why") if key in content}
        attacks += [_attack(path.stem, shared | entry) for entry in content["attack"]]
    return attacks


def _attack(kind: str, entry: dict[str, Any]) -> Attack:
    fields = dict(entry)
    if kind == GIVEN:
        fields["sql"] = next(given["sql"] for given in reference.attacks() if given["name"] == fields["name"])
    if "parts" in fields:
        fields["sql"] = "".join(text * times for text, times in fields.pop("parts"))
    if fields.pop("locks", False):
        fields["changes"] = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    fields["walls"] = frozenset(fields.get("walls", ("parser", "grants")))
    if sum(harm in fields for harm in HARMS) != 1:
        raise ValueError(f"{kind}: {fields['name']} needs exactly one of {', '.join(HARMS)}")
    if fields["walls"] == {"parser", "grants"}:
        fields["why"] = ""
    return Attack(kind=kind, **fields)
