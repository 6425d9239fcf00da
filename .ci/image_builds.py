"""Issue 8, A5: builds images for real where no registry and no Docker is reached, weighs them, and runs two.

    sudo PYTHONPATH=. python .ci/image_builds.py [IMAGE …] --folder /var/tmp/images [--wheels FOLDER] [--syft PROGRAM]

`docker/build.sh` builds with buildah (apt install buildah debootstrap crun) in chroot isolation. The base stands in for
docker.io/library/python:3.11-slim-bookworm: a debootstrap of bookworm with Debian's Python, slimmed as Debian's images
are. `--wheels`: a folder with torch's CPU build, where its index is not reached. Images on a CUDA base are not built.
Exits 1 when the verifier weighs 400 MB or more, or an image does not do what it is for.
"""

import argparse
import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import httpx
import psycopg

from services.verifier.sandbox.pod_server import LOGINS_VARIABLE, scram_verifier
from services.verifier.sandbox.protocol import Role
from shared.settings import REPOSITORY

Answer = TypeVar("Answer")

IMAGES = ("verifier", "sandbox", "author", "rollout", "inference", "trainer-cpu", "engine-cpu")
REGISTRY = "localhost/sqlclimb"
TAG = "0.1.0"
BASE = "localhost/python:3.11-slim-bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
VERIFIER_LIMIT_MB = 400
START_SECONDS = 120.0
PORT, SANDBOX_ADDRESS = 18001, "127.0.77.1"

SLIM = """
find usr/share/doc -type f ! -name copyright -delete
rm -rf usr/share/man/* usr/share/locale/* usr/share/info/* var/cache/apt/* var/lib/apt/lists/* var/log/*
ln -sf /usr/bin/python3 usr/local/bin/python
"""
"""What debuerreotype leaves out of Debian's slim images."""


Running = tuple["subprocess.Popen[bytes]", Path]
"""A container's process and its root, as this machine sees it."""


def run(*words: str | Path) -> str:
    """Output of a command that must succeed."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def make_base(folder: Path, wheels_url: str | None) -> None:
    """The base image, unless the storage has it."""
    if BASE in run("buildah", "images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    root = folder / "base"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root], check=True)
    subprocess.run(["bash", "-ec", SLIM], cwd=root, check=True)
    # this machine's own way to PyPI
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    (root / "etc/pip.conf").write_text("\n".join([*lines, f"find-links = {wheels_url}" if wheels_url else "", ""]))
    container = run("buildah", "from", "scratch")
    run("buildah", "add", "--quiet", container, root, "/")
    run("buildah", "config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    run("buildah", "commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(root)


class SilentHandler(SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def served(wheels: Path | None) -> Iterator[str | None]:
    """A folder of wheels over HTTP, as a build sees this machine."""
    if wheels is None:
        yield None
        return
    handler = functools.partial(SilentHandler, directory=str(wheels))
    with ThreadingHTTPServer(("127.0.0.1", 18765), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:18765/"
        server.shutdown()


def size_mb(image: str) -> float:
    """Uncompressed, in 10^6 bytes."""
    container = run("buildah", "from", image)
    try:
        mounted = run("buildah", "mount", container)
        return int(run("du", "--summarize", "--one-file-system", "--block-size=1", mounted).split()[0]) / 1e6
    finally:
        run("buildah", "rm", container)


@contextlib.contextmanager
def running(image: str, environment: dict[str, str], command: list[str], tokens: str = "") -> Iterator[Running]:
    """A container's process under its own user; afterwards nothing of the image may have changed but /tmp."""
    container = run("buildah", "from", f"{REGISTRY}/{image}:{TAG}")
    mounted = Path(run("buildah", "mount", container))
    (mounted / "secrets").mkdir()
    stamp = mounted / "secrets/stamp"
    stamp.touch()
    (mounted / "secrets/tokens.json").write_text(tokens)
    argv = [
        "buildah",
        "run",
        *(f"--env={name}={value}" for name, value in environment.items()),
        container,
        "--",
        *command,
    ]
    process = subprocess.Popen(argv, start_new_session=True)
    try:
        yield process, mounted
        written = [f"{mounted}/{name}" for name in ("tmp", "sandbox", "run", "secrets", "etc/hosts", "etc/resolv.conf")]
        skipped = [word for path in written for word in ("-path", path, "-prune", "-o")]
        changed = run("find", mounted, "-xdev", *skipped, "-type", "f", "-newer", stamp, "-print")
        assert not changed, f"{image} writes into its root: {changed}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        run("buildah", "rm", container)


def try_verifier() -> str:
    """It judges a query as user 10001. No torch."""
    token = secrets.token_urlsafe(32)
    environment = {
        "SQLCLIMB_TOKENS_FILE": "/secrets/tokens.json",
        "SQLCLIMB_PORT": str(PORT),
        "SQLCLIMB_SANDBOXES": "/tmp/sandboxes",
        "SQLCLIMB_DOMAINS": '["/app/domains"]',
    }
    tokens = json.dumps({"a": {"token": token, "scopes": ["admin"]}})
    command = ["python", "-m", "services.verifier"]
    with running("verifier", environment, command, tokens) as (process, mounted):
        assert not list(mounted.glob("opt/venv/lib/python3*/site-packages/torch*")), "the verifier holds torch"
        url, headers = f"http://127.0.0.1:{PORT}", {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            until(process, lambda: client.get("/readyz").raise_for_status())
            bundle = {
                "name": "pets",
                "schema_sql": "CREATE TABLE pets (a int)",
                "seed_sql": "INSERT INTO pets VALUES (1)",
            }
            sandbox = {"sandbox_id": "s", "run_id": "r", "bundle": bundle}
            client.post("/v1/sandboxes", json=sandbox).raise_for_status()
            body = {"items": [{"sql": "SELECT count(*) FROM pets", "gold": "SELECT 1 FROM pets"}]}
            answer = client.post("/v1/sandboxes/s/verify", json=body).raise_for_status().json()
            versions = client.get("/readyz").json()["versions"]
    (verdict,) = answer["verdicts"]
    assert verdict["status"] == "match", verdict
    return f"judged a query as user 10001 ({versions})"


def try_sandbox() -> str:
    """It becomes a Postgres that opens to its password."""
    password = secrets.token_urlsafe(24)
    logins = json.dumps({str(role): scram_verifier(password, secrets.token_bytes(16)) for role in Role})
    command = ["python", "-m", "services.verifier.sandbox.pod_server", "--base", "/opt/sandbox/template"]
    command += ["--folder", "/sandbox", "--listen", SANDBOX_ADDRESS]
    with running("sandbox", {LOGINS_VARIABLE: logins}, command) as (process, _):
        connection = until(
            process,
            lambda: psycopg.connect(
                host=SANDBOX_ADDRESS, user=str(Role.CANDIDATE), dbname="template1", password=password, connect_timeout=5
            ),
        )
        version = connection.info.server_version
        connection.close()
    return f"serves Postgres {version // 10_000} from its baked template"


def until(process: "subprocess.Popen[bytes]", action: Callable[[], Answer]) -> Answer:
    """What an action returns once it succeeds, while the process lives."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return action()
        except (httpx.HTTPError, psycopg.OperationalError):
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            time.sleep(0.2)


TRIALS = {"verifier": try_verifier, "sandbox": try_sandbox}
"""Others need a control database or a model; the import check of their own build speaks for them."""


def main() -> None:
    """Builds, weighs, runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", nargs="*", default=list(IMAGES), metavar="IMAGE", help=f"of {', '.join(IMAGES)}")
    parser.add_argument(
        "--folder", type=Path, required=True, help="for the images' storage; it may be removed afterwards"
    )
    parser.add_argument("--wheels", type=Path, help="folder with torch's CPU build, in place of its index")
    parser.add_argument("--syft", type=Path, help="syft, to write a bill of materials of each image into the folder")
    options = parser.parse_args()
    missing = [program for program in ("buildah", "debootstrap", "crun") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        parser.exit(
            2, f"run as root, with {', '.join(missing) or 'root rights'}: apt install buildah debootstrap crun\n"
        )
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    storage = ["[storage]", 'driver = "overlay"', f'graphroot = "{folder}/graph"', f'runroot = "{folder}/run"']
    (folder / "storage.conf").write_text("\n".join(storage))
    os.environ |= {"CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf", "BUILDAH_ISOLATION": "chroot"}
    settings = {"ENGINE": "buildah", "REGISTRY": REGISTRY, "TAG": TAG, "PYTHON_IMAGE": BASE}
    if options.syft:
        settings |= {"SBOM_DIR": f"{folder}/sbom", "PATH": f"{options.syft.resolve().parent}:{os.environ['PATH']}"}
    with served(options.wheels) as wheels_url:
        make_base(folder, wheels_url)
        settings |= {"TORCH_CPU_INDEX_URL": ""} if wheels_url else {}
        print(f"base: {size_mb(BASE):.0f} MB", flush=True)
        for image in options.images:
            started = time.monotonic()
            with (folder / f"{image}.log").open("w") as log:
                argv = [str(REPOSITORY / "docker/build.sh"), image]
                subprocess.run(argv, env=os.environ | settings, stdout=log, stderr=log, check=True)
            size, seconds = size_mb(f"{REGISTRY}/{image}:{TAG}"), time.monotonic() - started
            done = TRIALS[image]() if image in TRIALS else "its imports work"
            print(f"{image}: {size:.0f} MB, built in {seconds:.0f} s; {done}", flush=True)
            if image == "verifier" and size >= VERIFIER_LIMIT_MB:
                sys.exit(f"the verifier weighs {size:.0f} MB; {VERIFIER_LIMIT_MB} MB is the most")


if __name__ == "__main__":
    main()
