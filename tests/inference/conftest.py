"""One vLLM engine, one gateway in front of it, for all tests of this folder."""

import json
import secrets
from collections.abc import Iterator
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
    port = free_ports(1)[0]
    environment = {
        "SQLCLIMB_PORT": str(port),
        "SQLCLIMB_MODEL": str(base_model),
        "SQLCLIMB_MAX_LORAS": str(SLOTS),
        "SQLCLIMB_MAX_MODEL_LEN": "2048",
    }
    log = tmp_path_factory.mktemp("engine") / "log"
    service = Service("services.inference.engine", f"http://127.0.0.1:{port}", "/health", environment, log)
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
    folder = tmp_path_factory.mktemp("gateway")
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
        "SQLCLIMB_MODEL": str(base_model),
        "SQLCLIMB_MAX_LORAS": str(SLOTS),
        "SQLCLIMB_ENGINE_URLS": json.dumps([engine.url]),
        "SQLCLIMB_ADAPTERS_CACHE": str(folder / "cache"),
    }
    service = Service("services.inference", f"http://127.0.0.1:{port}", "/readyz", environment, folder / "log")
    service.start()
    try:
        engine.wait_ready()
        service.wait_ready()
        yield Gateway(service, engine, tokens_file, base_model, folder)
    finally:
        service.stop()
