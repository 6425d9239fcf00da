"""What commands share: the stack's addresses and token, clients, and errors turned into exit codes."""

import asyncio
import functools
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError

from cli.stack.home import ServedModel, StackHome
from cli.stack.programs import SERVICES
from cli.stack.stack import StackError
from cli.stack.supervisor import SupervisorUnavailable
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceClient, ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.clients.trainer import TrainerClient
from shared.clients.verifier import VerifierClient
from shared.contracts.rollout import Regime
from shared.domain import BundleError
from shared.settings import REPOSITORY

Parameters = ParamSpec("Parameters")
Client = TypeVar("Client", bound=ServiceClient)

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130


class UsageError(ValueError):
    """Bad input from the command line: says which option and how to fix it."""


class Connection:
    """Where the services are and with which token to call them.

    `SQLCLIMB_<SERVICE>_URL` and `SQLCLIMB_TOKEN` name a remote installation; else the stack in `SQLCLIMB_HOME`.
    """

    def __init__(self) -> None:
        self.home = StackHome.from_environment()
        self._state = self.home.load()

    def url(self, service: str) -> str:
        """Address of a service. Raises StackError when there is none."""
        if remote := self.remote_urls().get(service):
            return remote
        if self._state is None:
            raise StackError(
                f"no stack in {self.home.folder}: run `sqlclimb up` first, or set SQLCLIMB_{service.upper()}_URL"
            )
        return self.home.url(self._state, service)

    def token(self) -> str:
        """The caller's bearer token. Raises StackError when there is none."""
        if token := os.environ.get("SQLCLIMB_TOKEN"):
            return token
        if not self.home.token_file.exists():
            raise StackError(
                f"no token: run `sqlclimb up` first, or set SQLCLIMB_TOKEN ({self.home.token_file} is missing)"
            )
        return self.home.token_file.read_text()

    async def model(self) -> ServedModel:
        """The served base and how it is asked by default. Raises UsageError when the stack serves none.

        The gateway of a remote installation tells which base; it is asked as a model without a card is.
        """
        if "inference" in self.remote_urls():
            async with self.inference() as client:
                served = await client.adapters()
            return ServedModel(path=served.model, served_name=served.base)
        if self._state is None or self._state.model is None:
            raise UsageError("this stack serves no model yet: `sqlclimb up --model FOLDER` first")
        return self._state.model

    def remote_urls(self) -> dict[str, str]:
        """Services that the environment names, and where they are."""
        named = {service: os.environ.get(f"SQLCLIMB_{service.upper()}_URL") for service in SERVICES}
        return {service: url for service, url in named.items() if url}

    def domain_folders(self) -> list[Path]:
        """Where bundles are looked up; the first takes new ones."""
        return [self.home.domains, REPOSITORY / "domains"]

    def author(self) -> AuthorClient:
        """Client of the author."""
        return AuthorClient(self.url("author"), self.token())

    def verifier(self) -> VerifierClient:
        """Client of the verifier; a batch of thousands may take minutes."""
        return VerifierClient(self.url("verifier"), self.token(), timeout_seconds=600.0)

    def inference(self) -> InferenceClient:
        """Client of the gateway; a publish waits for its probe."""
        return InferenceClient(self.url("inference"), self.token(), timeout_seconds=300.0)

    def rollout(self) -> RolloutClient:
        """Client of the coordinator."""
        return RolloutClient(self.url("rollout"), self.token())

    def trainer(self) -> TrainerClient:
        """Client of the runs API."""
        return TrainerClient(self.url("trainer"), self.token())

    def service_environment(self) -> dict[str, str]:
        """Environment for a subprocess of ours that calls the stack's services as its admin."""
        urls = {f"SQLCLIMB_{service.upper()}_URL": self.url(service) for service in ("author", "verifier")}
        folders = json.dumps([str(folder) for folder in self.domain_folders()])
        tokens = {"SQLCLIMB_TOKENS_FILE": str(self.home.tokens_file), "SQLCLIMB_TOKEN_NAME": "admin"}
        return urls | tokens | {"SQLCLIMB_DOMAINS": folders}


def asked_as(regime: Regime, prompt: str | None) -> Regime:
    """The regime, with another prompt where one is named. Raises ValidationError."""
    return regime if prompt is None else Regime.model_validate(regime.model_dump() | {"prompt": prompt})


def command(function: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """An async command for typer."""

    @functools.wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            asyncio.run(function(*args, **kwargs))
        except KeyboardInterrupt as interrupt:  # typer would end without a word
            raise SystemExit(exit_code(interrupt)) from interrupt

    return run


def exit_code(error: BaseException) -> int | None:
    """The exit code of an error that is the user's or the installation's, after saying it; None for a bug of ours."""
    if isinstance(error, ServiceProblem):
        say_error(str(error))
        return BAD_INPUT if error.problem.status < 500 else FAILED
    if isinstance(error, ValidationError):
        faults = (f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors())
        say_error("; ".join(faults))
        return BAD_INPUT
    if isinstance(error, UsageError | BundleError):
        say_error(str(error))
        return BAD_INPUT
    if isinstance(error, StackError | SupervisorUnavailable | ServiceUnreachable):
        say_error(str(error))
        return FAILED
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        say_error("interrupted; what had landed is kept, the same command continues")
        return INTERRUPTED
    return None


def say(text: str) -> None:
    """One line for the user, at once."""
    print(text, flush=True)


def say_note(text: str) -> None:
    """One line on standard error that stops nothing."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def say_error(text: str) -> None:
    """One line on standard error."""
    print(f"error: {text}", file=sys.stderr, flush=True)
