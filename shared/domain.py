"""Domain bundles: a folder with a schema, seeds and notes; and the one function that renders a prompt from it."""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import postgast
from pydantic import Field, ValidationError

from shared.contracts.base import Contract, Identifier
from shared.contracts.rollout import Message, Regime
from shared.ids import sha256_hex
from shared.sql import relation_name


class BundleError(ValueError):
    """The bundle is missing or faulty; the message names the file and the fix."""


class DomainSettings(Contract):
    """`domain.toml`."""

    name: Identifier
    description: str = ""
    statement_timeout_seconds: float = Field(default=5.0, gt=0, le=60)
    postgres: int | None = Field(
        default=None, ge=14, le=99, description="major version of the team's database; a sandbox of another refuses it"
    )
    round_decimals: int = Field(default=2, ge=0, le=10, description="how the prompt asks for numbers to be rounded")
    masked_columns: list[str] = Field(
        default_factory=list, description="`table.column` that hold made-up values; no part of the digest"
    )
    reviewed_columns: list[str] = Field(
        default_factory=list, description="`table.column` that look personal and may stay; no part of the digest"
    )


@dataclass(frozen=True)
class Bundle:
    """A loaded domain bundle."""

    settings: DomainSettings
    schema_sql: str
    seed_sql: str
    notes: str = ""
    variants: dict[str, str] = field(default_factory=dict)
    """Variant name to seed SQL: other rows for the same schema."""

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.settings.name

    @property
    def digest(self) -> str:
        """SHA-256 of the content: settings, schema, seeds and notes."""
        settings = self.settings.model_dump(exclude={"masked_columns", "reviewed_columns"}, exclude_none=True)
        content: list[object] = [settings, self.schema_sql, self.seed_sql, self.notes]
        content.append(sorted(self.variants.items()))
        return sha256_hex(json.dumps(content, sort_keys=True))


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle folder. Raises BundleError."""
    try:
        settings = DomainSettings.model_validate(tomllib.loads((folder / "domain.toml").read_text()))
        schema_sql = (folder / "schema.sql").read_text()
        seed_sql = (folder / "seed.sql").read_text()
    except FileNotFoundError as error:
        raise BundleError(
            f"{error.filename} is missing: a bundle needs domain.toml, schema.sql and seed.sql"
        ) from error
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise BundleError(f"{folder / 'domain.toml'} is faulty: {error}") from error
    notes = folder / "notes.md"
    variants = {path.stem: path.read_text() for path in sorted((folder / "variants").glob("*.sql"))}
    return Bundle(settings, schema_sql, seed_sql, notes.read_text() if notes.exists() else "", variants)


def find_bundle(name: str, folders: Sequence[Path]) -> Bundle:
    """The bundle called `name` in the first of `folders` that has it. Raises BundleError naming those it found."""
    return load_bundle(bundle_folder(name, folders))


def bundle_folder(name: str, folders: Sequence[Path]) -> Path:
    """The folder of the bundle called `name`, as `find_bundle` finds it."""
    for folder in folders:
        if (folder / name / "domain.toml").exists():
            return folder / name
    known = sorted({path.parent.name for folder in folders for path in folder.glob("*/domain.toml")})
    raise BundleError(f"no domain {name!r} in {[str(folder) for folder in folders]}; there are {known}")


def table_names(bundle: Bundle) -> list[str]:
    """Tables in the order the schema creates them, partitions left out; outside `public`: `schema.table`."""
    statements = postgast.parse(bundle.schema_sql).stmts
    attached = {
        relation_name(getattr(command.alter_table_cmd, "def").partition_cmd.name)
        for s in statements
        for command in s.stmt.alter_table_stmt.cmds
        if command.alter_table_cmd.subtype == postgast.pg_query_pb2.AT_AttachPartition
    }
    made = [s.stmt.create_stmt for s in statements if s.stmt.HasField("create_stmt")]
    names = [relation_name(table.relation) for table in made if not table.HasField("partbound")]
    return [name for name in names if name not in attached]


_RULES = """\
You write PostgreSQL queries for the database below.
- Answer with exactly one read-only query in one fenced ```sql block.
- Return only the columns the question asks for, in the order it names them.
- Round computed numbers that are not whole to {decimals} decimals.
- Order rows only where the question asks for an order."""


def description(bundle: Bundle) -> str:
    """What a model is told of the database: schema with its comments, and notes."""
    text = re.sub(r"<!--.*?-->", "", bundle.notes, flags=re.DOTALL).strip()  # a Markdown comment is for people
    notes = f"\n\n# Notes\n{text}" if text else ""
    return f"# Schema\n{bundle.schema_sql.strip()}{notes}"


def system_prompt(bundle: Bundle, regime: Regime) -> str:
    """The system prompt of a domain under a regime. The only place where one is made; stored by hash with each row."""
    prefix = f"{regime.system_prefix}\n" if regime.system_prefix else ""
    if regime.prompt == "question":
        return regime.system_prefix
    rules = _RULES.format(decimals=bundle.settings.round_decimals)
    return f"{prefix}{rules}\n\n{description(bundle)}"


def messages(bundle: Bundle, regime: Regime, question: str) -> list[Message]:
    """What is sent for one question."""
    return chat(system_prompt(bundle, regime), question)


def chat(system: str, question: str) -> list[Message]:
    """A question under a rendered system prompt; an empty one is not sent."""
    asked = Message(role="user", content=question)
    return [Message(role="system", content=system), asked] if system else [asked]
