"""The files of a bundle folder: written whole or not at all, with a README on where it came from."""

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.bundles.notes import notes_skeleton
from shared.bundles.personal import Finding
from shared.domain import BundleError, DomainSettings


@dataclass(frozen=True)
class Origin:
    """Where a bundle came from and what was done to it; nothing that names a server or a secret."""

    source: str
    """`a SQL file`, or a database in words."""
    sampled: Sequence[str] = ()
    """How its rows were chosen, a line each."""
    masked: Sequence[Finding] = ()
    allowed: Sequence[str] = ()
    """`table.column` that look personal and were let through."""
    dropped: Sequence[str] = ()
    """Statements that were left out."""


def write_folder(name: str, schema_sql: str, seed_sql: str, origin: Origin, target: Path) -> None:
    """Make the bundle folder `target`. Raises BundleError: the folder exists, or the name is no identifier."""
    check_target(name, target)
    settings = DomainSettings(
        name=name, masked_columns=[found.column for found in origin.masked], reviewed_columns=list(origin.allowed)
    )
    fields = settings.model_dump(exclude_none=True)
    toml = "".join(f"{field} = {json.dumps(value)}\n" for field, value in fields.items())
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "bundle"
        (made / "variants").mkdir(parents=True)
        (made / "domain.toml").write_text(toml, encoding="utf-8")
        (made / "schema.sql").write_text(schema_sql, encoding="utf-8")
        (made / "seed.sql").write_text(seed_sql, encoding="utf-8")
        hidden = frozenset(found.column for found in origin.masked)
        (made / "notes.md").write_text(notes_skeleton(schema_sql, seed_sql, hidden), encoding="utf-8")
        (made / "README.md").write_text(readme(name, origin), encoding="utf-8")
        shutil.move(made, target)


def check_target(name: str, target: Path) -> None:
    """Raises BundleError where no bundle can be made under that name there."""
    if target.exists():
        raise BundleError(f"{target} exists and was left as it is: choose another name or move it away")
    try:
        DomainSettings(name=name)
    except ValueError as error:
        raise BundleError(f"{name!r} is no domain name: letters, digits, `.`, `_`, `-`, at most 128") from error


def readme(name: str, origin: Origin) -> str:
    """For people; no prompt holds it."""
    lines = [
        f"# {name}",
        "",
        f"A sqlclimb domain bundle made from {origin.source}. Read and edit all of it: `schema.sql` and `notes.md` are "
        "the prompt, `seed.sql` the rows, `variants/` other rows for the same schema.",
    ]
    lines += _section("Rows", origin.sampled)
    lines += _section(
        "Masked",
        [f"{found.column}: {found.kind}, told by its {found.by}" for found in origin.masked],
        "Replaced by made-up values of the same form; equal values stayed equal. The salt was not kept.",
    )
    lines += _section("Looks personal, let through", origin.allowed)
    lines += _section("Left out", worth_saying(origin.dropped))
    return "\n".join(lines) + "\n"


def worth_saying(dropped: Sequence[str]) -> list[str]:
    """Without the settings of a session, which mean nothing to a person."""
    return [what for what in dropped if not re.match(r"(line \d+: )?(SET |SELECT pg_catalog\.set_config)", what)]


def _section(title: str, items: Sequence[str], said: str = "") -> list[str]:
    return ["", f"## {title}", *([said, ""] if said else [""]), *[f"- {item}" for item in items]] if items else []
