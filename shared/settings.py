"""Settings that several services share. Every field is an environment variable `SQLCLIMB_<FIELD>` and a `--field`.

A service composes its model from these classes, adds its own fields, and calls `load`. Secrets (`db`) come from the
environment, never from argv.
"""

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict, SettingsError

REPOSITORY = Path(__file__).resolve().parent.parent

Settings = TypeVar("Settings", bound=BaseSettings)


class CommonSettings(BaseSettings):
    """How every settings class is read. Each part derives from it: a bare BaseSettings would reset the prefix."""

    model_config = SettingsConfigDict(
        env_prefix="SQLCLIMB_", env_file=".env", extra="ignore", cli_kebab_case=True, cli_avoid_json=True
    )


class ServiceSettings(CommonSettings):
    """What every HTTP service reads."""

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(ge=1, le=65535, description="port to listen on")
    tokens_file: Path = Field(description="JSON file of bearer tokens and their scopes")
    token_name: str = Field(default="service", description="which token of the file this service uses to call others")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")


class DatabaseSettings(CommonSettings):
    """The control database."""

    db: SecretStr = Field(description="control database DSN, postgresql://user:password@host:port/name")


class DomainSettings(CommonSettings):
    """Where domain bundles lie."""

    domains: list[Path] = Field(
        default=[REPOSITORY / "domains"], description="folders searched for domain bundles, first match wins"
    )


class ArtifactSettings(CommonSettings):
    """Where adapters, checkpoints and exports lie."""

    artifacts: str = Field(
        description="fsspec URL of the artifact store, e.g. file:///var/lib/sqlclimb or s3://bucket/prefix"
    )


def load(model: type[Settings]) -> Settings:
    """Settings from argv, environment and `.env`. On a faulty value: names each field and its fix, exits 2."""
    try:
        return CliApp.run(model, cli_cmd_method_name="_no_command")
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            name = ".".join(str(part) for part in fault["loc"])
            print(f"SQLCLIMB_{name.upper()}: {fault['msg']}", file=sys.stderr)
    except SettingsError as error:
        print(f"settings: {error}", file=sys.stderr)
    raise SystemExit(2)
