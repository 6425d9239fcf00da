"""What a sandbox Pod runs: `python -m services.verifier.sandbox.pod_server --base DIR --folder DIR`. Becomes Postgres.

A copy of the base template (baked into the image: `--bake DIR`) gets the passwords of this Pod alone and listens on the
network. It learns SCRAM verifiers (RFC 5803) from SANDBOX_LOGINS, never a password: hostile SQL that got as far as
reading this process finds nothing it could log in with elsewhere.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from services.verifier.sandbox.isolation import UnprivilegedProcess
from services.verifier.sandbox.template import Templates
from shared.embedded_postgres import program

LOGINS_VARIABLE = "SANDBOX_LOGINS"
"""JSON: role to SCRAM verifier."""

MEMORY_BYTES = 1024**3
"""Address space of a process while the template is baked."""

SCRAM_ITERATIONS = 4096

NETWORK_CONFIGURATION = """
listen_addresses = '{listen}'
port = 5432
unix_socket_directories = ''
"""

NETWORK_LOGINS = "host all all all scram-sha-256\n"
"""pg_hba.conf: every login by password, also one from inside the Pod."""


def scram_verifier(password: str, salt: bytes) -> str:
    """What Postgres stores of a password: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey` (RFC 5803)."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    words = (base64.b64encode(part).decode() for part in (salt, hashlib.sha256(client_key).digest(), server_key))
    return "SCRAM-SHA-256${}:{}${}:{}".format(SCRAM_ITERATIONS, *words)


def bake(base: Path) -> None:
    """Make the base template: a cluster with roles and grants, and no bundle. Raises SandboxFailed."""
    with tempfile.TemporaryDirectory(dir=base.parent) as work:
        folder = Path(work)
        folder.chmod(0o711)
        templates = Templates(folder / "templates", folder / "drafts", UnprivilegedProcess(MEMORY_BYTES, None))
        shutil.move(templates.base(), base)


def prepare(base: Path, folder: Path, logins: dict[str, str], listen: str) -> list[str]:
    """A cluster of its own in `folder/data`; returns the server's command. Raises CalledProcessError."""
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(base / "data", data, copy_function=shutil.copy)
    for path in [data, *data.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    with (data / "postgresql.conf").open("a") as file:
        file.write(NETWORK_CONFIGURATION.format(listen=listen))
    (data / "pg_hba.conf").write_text(NETWORK_LOGINS)
    statements = "".join(f"ALTER ROLE {role} PASSWORD '{verifier}'\n" for role, verifier in logins.items())
    postgres = str(program("postgres"))
    subprocess.run(
        [postgres, "--single", "-j", "-D", str(data), "template1"],
        input=statements.replace("\n", ";\n\n"),
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return [postgres, "-D", str(data)]


def main() -> None:
    """Bake, or prepare and become the server."""
    parser = argparse.ArgumentParser(
        prog="services.verifier.sandbox.pod_server", description="a sandbox Pod's Postgres"
    )
    parser.add_argument("--bake", type=Path, help="make the base template in this folder, and end")
    parser.add_argument("--base", type=Path, help="folder of the base template")
    parser.add_argument("--folder", type=Path, help="folder for this sandbox's files")
    parser.add_argument("--listen", default="*", help="address to listen on")
    options = parser.parse_args()
    if options.bake:
        bake(options.bake)
        return
    if not (options.base and options.folder and os.environ.get(LOGINS_VARIABLE)):
        parser.error(f"--base, --folder and the variable {LOGINS_VARIABLE} are needed")
    logins = json.loads(os.environ.pop(LOGINS_VARIABLE))
    sys.stdout.flush()
    argv = prepare(options.base, options.folder, logins, options.listen)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
