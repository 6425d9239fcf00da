"""Dockerfiles and compose.yaml: pinned, unprivileged, and telling services settings that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from services.author.settings import AuthorSettings
from services.inference.settings import EngineSettings, GatewaySettings
from services.rollout.settings import RolloutSettings
from services.trainer.settings import TrainerSettings
from services.verifier.settings import VerifierSettings
from shared.auth import TokenFile
from shared.settings import REPOSITORY

DOCKER = REPOSITORY / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SETTINGS = {
    "verifier": VerifierSettings,
    "author": AuthorSettings,
    "inference": GatewaySettings,
    "trainer-gpu": TrainerSettings,
    "trainer-cpu": TrainerSettings,
    "rollout-gpu": RolloutSettings,
    "rollout-cpu": RolloutSettings,
    "engine-gpu": EngineSettings,
    "engine-cpu": EngineSettings,
}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_a_dockerfile_takes_its_base_by_argument_and_ends_unprivileged_with_a_health_check(path: Path) -> None:
    text = path.read_text()
    bases = re.findall(r"^ARG (\w+_IMAGE)=(\S+)", text, re.MULTILINE)
    assert bases and all(re.search(r":[\w.-]+\d", image) and not image.endswith("latest") for _, image in bases)
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    named = set(re.findall(r"^FROM \S+ AS (\w+)", text, re.MULTILINE))
    assert all(stage in named or stage == f"${{{bases[0][0]}}}" for stage in stages)
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "10001:10001"
    for word in ("HEALTHCHECK", "org.opencontainers.image.title", "org.opencontainers.image.licenses"):
        assert word in text
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    for source in " ".join(copied).split():
        assert "${" in source or (REPOSITORY / source).exists(), source


@pytest.mark.parametrize("extra", ["verifier", "author", "rollout", "trainer", "inference"])
def test_an_image_takes_its_own_extra_only(extra: str) -> None:
    argv = [sys.executable, "docker/requirements.py", extra]
    lines = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    names = {re.split(r"[\[<>=]", line)[0] for line in lines}
    assert {"fastapi", "psycopg", "uvicorn"} <= names
    assert ("torch" in names) == (extra == "trainer")
    assert not {"typer", "pytest", "supervisor"} & names


def test_compose_tells_services_settings_that_exist_and_all_they_need() -> None:
    for name, model in SETTINGS.items():
        service = COMPOSE["services"][name]
        written = {variable for variable in service["environment"] if variable.startswith("SQLCLIMB_")}
        known = {f"SQLCLIMB_{field.upper()}" for field in model.model_fields}
        shared = {
            f"SQLCLIMB_{field}"
            for field in (
                "ARTIFACTS",
                "CHECKPOINTS",
                "DOMAINS",
                "VERIFIER_URL",
                "AUTHOR_URL",
                "INFERENCE_URL",
                "ROLLOUT_URL",
            )
        }
        assert written <= known | shared, (name, written - known)
        needed = {f"SQLCLIMB_{field.upper()}" for field, info in model.model_fields.items() if info.is_required()}
        assert needed <= written | {"SQLCLIMB_DB"}, (name, needed - written)


def test_compose_services_are_confined() -> None:
    for name, service in COMPOSE["services"].items():
        assert not service["image"].endswith("latest") and ":" in service["image"]
        if name != "database":
            assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "10001:10001"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "published to this machine only"


def test_the_secrets_script_makes_a_tokens_file_that_services_take_and_never_overwrites(tmp_path: Path) -> None:
    script = tmp_path / "secrets.sh"
    script.write_text((DOCKER / "secrets.sh").read_text())
    assert subprocess.run(["bash", str(script)], capture_output=True, check=False).returncode == 0
    tokens = tmp_path / "secrets/tokens.json"
    TokenFile(tokens)
    assert "gold" not in json.loads(tokens.read_text())["trainer"]["scopes"]
    before = tokens.read_text()
    assert subprocess.run(["bash", str(script)], capture_output=True, check=False).returncode == 1
    assert tokens.read_text() == before
