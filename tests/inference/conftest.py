"""One vLLM engine, one gateway in front of it, for all tests of this folder."""

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from cli.stack.home import TOKEN_SCOPES, free_ports
from shared.auth import Scope, write_tokens
from shared.database import migrate
from tests.inference.support import SLOTS, Gateway, Service
from tests.models import make_model


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Qwen3 that the engine serves."""
    return make_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="session")
def engine(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A real vLLM, starting: whoever needs it waits."""
    with started_engine(base_model, tmp_path_factory.mktemp("engine")) as service:
        yield service


@contextlib.contextmanager
def started_engine(model: Path, folder: Path, **settings: str) -> Iterator[Service]:
    """An engine of this model; its log lies in `folder`. `settings` are variables without their prefix."""
    port = free_ports(1)[0]
    environment = {
        "SQLCLIMB_PORT": str(port),
        "SQLCLIMB_MODEL": str(model),
        "SQLCLIMB_MAX_LORAS": str(SLOTS),
        "SQLCLIMB_MAX_MODEL_LEN": "2048",
    } | {f"SQLCLIMB_{name.upper()}": value for name, value in settings.items()}
    service = Service("services.inference.engine", f"http://127.0.0.1:{port}", "/health", environment, folder / "log")
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="session")
def gateway(
    engine: Service, base_model: Path, control_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway on a control database of its own, ready."""
    with started_gateway([engine], base_model, control_cluster, tmp_path_factory.mktemp("gateway")) as found:
        engine.wait_ready()
        found.service.wait_ready()
        yield found


@contextlib.contextmanager
def started_gateway(
    engines: Sequence[Service], model: Path, control_cluster: str, folder: Path, **settings: str
) -> Iterator[Gateway]:
    """A gateway in front of these engines, on a database of its own; `settings` are variables without their prefix."""
    tokens_file = folder / "tokens.json"
    write_tokens(tokens_file, TOKEN_SCOPES | {"user": [Scope.SAMPLE, Scope.TRAIN]})
    database = f"inference_{secrets.token_hex(4)}"
    with psycopg.connect(control_cluster, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{database}"')
    dsn = control_cluster.rsplit("/", 1)[0] + f"/{database}"
    migrate(dsn)
    port = free_ports(1)[0]
    environment = {
        "SQLCLIMB_PORT": str(port),
        "SQLCLIMB_TOKENS_FILE": str(tokens_file),
        "SQLCLIMB_DB": dsn,
        "SQLCLIMB_MODEL": str(model),
        "SQLCLIMB_MAX_LORAS": str(SLOTS),
        "SQLCLIMB_ENGINE_URLS": json.dumps([engine.url for engine in engines]),
        "SQLCLIMB_ADAPTERS_CACHE": str(folder / "cache"),
        "SQLCLIMB_ARTIFACTS": (folder / "artifacts").as_uri(),
    } | {f"SQLCLIMB_{name.upper()}": value for name, value in settings.items()}
    service = Service("services.inference", f"http://127.0.0.1:{port}", "/readyz", environment, folder / "log")
    service.start()
    try:
        yield Gateway(service, engines[0], tokens_file, model, folder)
    finally:
        service.stop()
