"""Dockerfiles and compose.yaml: pinned, unprivileged, and telling services settings that exist."""

import json
import os
import re
import subprocess
import sys
import tomllib
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
from tests.deploy.helm import CHART

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
    assert "HEALTHCHECK" in text and "docker/imports.py" in text
    for label in ("title", "version", "revision", "licenses", "source", "base.name"):
        assert f"org.opencontainers.image.{label}=" in text
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    for source in " ".join(copied).split():
        assert "${" in source or (REPOSITORY / source).exists(), source


ENGINE_STAND_IN = """#!/bin/sh
[ "$1" = build ] && printf '%s\\n' "$*" >> "$LOG"
[ "$1" = save ] && touch "$3"
true
"""
SYFT_STAND_IN = """#!/bin/sh
touch "${4#spdx-json=}"
"""

CUDA_OF_TORCH = {"2.13.0": "13.0"}
"""What PyPI's builds of torch, and so vLLM's, were compiled with: kernels compiled at start need that compiler."""


def builds(folder: Path, *images: str, **settings: str) -> dict[str, str]:
    """What `docker/build.sh` asks of the engine, by image; a Docker and a syft that only write it down stand in."""
    for name, text in {"docker": ENGINE_STAND_IN, "syft": SYFT_STAND_IN}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    environment = {"PATH": path, "LOG": str(folder / "log"), "REGISTRY": "mirror.local/x", **settings}
    subprocess.run([DOCKER / "build.sh", *images], env=environment, capture_output=True, check=True)
    return {
        re.findall(r"--tag mirror.local/x/(\S+):", line)[0]: line for line in (folder / "log").read_text().splitlines()
    }


def test_every_image_is_built_on_the_bases_that_are_given_with_a_bill_of_materials(tmp_path: Path) -> None:
    given = {"PYTHON_IMAGE": "m/python@sha256:1", "CUDA_IMAGE": "m/cuda@sha256:2", "PIP_INDEX_URL": "https://m/simple"}
    made = builds(tmp_path, **given, SBOM_DIR=str(tmp_path / "sbom"))
    digests = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["images"]["properties"][
        "digests"
    ]
    assert made.keys() == digests["properties"].keys(), "the images that the chart names"
    for image, line in made.items():
        base = given["CUDA_IMAGE" if image.endswith("cuda") else "PYTHON_IMAGE"]
        assert f"--build-arg BASE_IMAGE={base} " in line and f"PIP_INDEX_URL={given['PIP_INDEX_URL']} " in line
    assert {path.name for path in (tmp_path / "sbom").iterdir()} == {f"{image}.spdx.json" for image in made}


def test_gpu_images_have_the_compiler_of_their_torch_and_linear_attention(tmp_path: Path) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (torch,) = [word for word in project["optional-dependencies"]["trainer"] if word.startswith("torch==")]
    cuda = CUDA_OF_TORCH[torch.removeprefix("torch==")]
    made = builds(tmp_path, "trainer-cuda", "engine-cuda")
    for image, line in made.items():
        assert re.search(rf"BASE_IMAGE=docker.io/nvidia/cuda:{re.escape(cuda)}\.\d+-devel-", line), image
        assert "flash-linear-attention==" in line and "gcc" in line + (DOCKER / "engine.Dockerfile").read_text()
    assert f"nvidia/cuda:{cuda}." in (DOCKER / "engine.Dockerfile").read_text()
    assert "IMPORTS=fla" in made["trainer-cuda"] and "ARG IMPORTS=fla" in (DOCKER / "engine.Dockerfile").read_text()
    checked = (DOCKER / "imports.py").read_text()
    assert checked.count('modeling_qwen3"') == checked.count('modeling_qwen3_5"') == 2, "by engine and trainer"


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


def test_compose_starts_one_of_each_on_a_gpu_and_on_none() -> None:
    services = COMPOSE["services"]
    common = {name for name, service in services.items() if "profiles" not in service}
    assert common == {"database", "migrate", "verifier", "author", "inference"}
    for profile in ("gpu", "cpu"):
        own = {name for name, service in services.items() if service.get("profiles") == [profile]}
        assert own == {f"{name}-{profile}" for name in ("engine", "rollout", "trainer")}
    for name in ("engine", "rollout"):  # they share it
        (device,) = services[f"{name}-gpu"]["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"] and "deploy" not in services[f"{name}-cpu"]


def test_compose_gives_the_engine_no_token_and_no_database() -> None:
    for name in ("engine-gpu", "engine-cpu"):
        engine = COMPOSE["services"][name]
        assert not engine["env_file"] and not any("secrets" in volume for volume in engine["volumes"])
    assert not COMPOSE["services"]["verifier"]["env_file"]


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
