"""Acceptance A2 of the fourth issue: `kill -9` of an author at ten random moments of a paid authoring.

    python .ci/author_kills.py [--seed N] [--kills N] [--teacher anthropic|openai] [--honours-keys]

A real author, verifier and control database; a local provider speaks the wire format and keeps the bill. Checked: every
item of every stored reply is a proposal, none twice; each call that was charged has its reply stored; charges beyond
one a call are no more than the author itself reports as doubts. With --honours-keys the provider answers a repeated
`Idempotency-Key` from its first answer, as some gateways do: then no charge may be double. Prints what it measured.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from cli.stack.home import free_ports
from services.author.catalogue import read_catalogue
from services.author.teachers.base import Assignment, Proposal
from services.author.teachers.grammar import GrammarTeacher
from shared.auth import write_tokens
from shared.contracts.author import AuthoringRequest, AuthoringState
from shared.database import migrate
from shared.domain import load_bundle
from tests.author.conftest import SHOP, TOKEN_SCOPES, ServiceProcess
from tests.author.killing import kill_at_random
from tests.author.model_server import Knowing, ModelServer

GOLDS, PER_CALL = 240, 4
PIECE_SECONDS = 0.05
"""Between pieces of a streamed reply: a call lasts long enough to be hit in its middle."""


def main() -> None:
    """Kill, account, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--teacher", choices=["anthropic", "openai"], default="anthropic")
    parser.add_argument("--honours-keys", action="store_true")
    options = parser.parse_args()
    request = AuthoringRequest(
        authoring_id="killed",
        domain="shop",
        teacher=options.teacher,
        golds=GOLDS,
        phrasings=1,
        per_call=PER_CALL,
        max_tokens=1000,
    )
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        dsn = running.enter_context(control_database(folder))
        server = ModelServer(Knowing(known(), PER_CALL), options.honours_keys, PIECE_SECONDS)
        running.enter_context(server)
        author = running.enter_context(services(folder, dsn, server.url))
        account = kill_at_random(author, server, request, options.kills, options.seed)
    for number, moment in enumerate(account.moments, start=1):
        print(f"kill {number}: {moment}")
    done = account.done
    print(f"{done.state}: {done.proposed} proposed, {done.kept} kept, rejected {done.rejected}")
    proposing, attempts = account.charged_twice("propose"), account.charged_twice("attempt")
    print(f"{len(account.billed)} calls charged; charged twice: {proposing} proposing, {attempts} second opinions")
    print(f"calls that the author says may have been charged twice: {account.doubts}")
    print(f"charged without a stored reply: {len(account.unanswered)}")
    print(f"items of replies not stored: {account.unjudged}; proposals stored twice: {account.repeated}")
    assert done.state is AuthoringState.DONE, done.error
    assert done.proposed == GOLDS
    assert (account.unanswered, account.unjudged, account.repeated) == ([], 0, 0)
    assert account.charged_twice() <= account.doubts
    assert not (options.honours_keys and account.charged_twice())


def known() -> list[Proposal]:
    """What the stand-in knows: twice as many of the grammar's proposals as are asked for."""
    bundle = load_bundle(SHOP)
    assignment = Assignment(read_catalogue(bundle.schema_sql, bundle.seed_sql), 7, 2 * GOLDS, 1)

    async def drawn() -> list[Proposal]:
        return [one async for one in GrammarTeacher().propose(assignment)]

    return asyncio.run(drawn())


@contextlib.contextmanager
def control_database(folder: Path) -> Iterator[str]:
    """A fresh, migrated one."""
    dsn = f"postgresql://sqlclimb:{secrets.token_hex(16)}@127.0.0.1:{free_ports(1)[0]}/postgres"
    environment = {"SQLCLIMB_DB": dsn, "SQLCLIMB_CONTROL_DATA": str(folder / "control"), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-m", "shared.control_database"]
    with (folder / "control.log").open("w") as log:
        process = subprocess.Popen(argv, env=environment, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn):
                break
            assert time.monotonic() < deadline, (folder / "control.log").read_text()
            time.sleep(0.1)
        migrate(dsn)
        yield dsn
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def services(folder: Path, dsn: str, url: str) -> Iterator[ServiceProcess]:
    """A verifier, and an author whose models are the stand-in's."""
    tokens = folder / "tokens.json"
    write_tokens(tokens, TOKEN_SCOPES)
    verifier = ServiceProcess("verifier", tokens, folder, {"SANDBOXES": str(folder / "sandboxes")})
    verifier.start()
    settings = {
        "DB": dsn,
        "VERIFIER_URL": verifier.url,
        "ANTHROPIC_API_KEY": "sk-right",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_CALLS_PER_MINUTE": "0",
        "OPENAI_API_KEY": "sk-right",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "big",
    }
    author = ServiceProcess("author", tokens, folder, settings)
    try:
        author.start()
        yield author
    finally:
        author.stop()
        verifier.stop()


if __name__ == "__main__":
    main()
