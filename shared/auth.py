"""Bearer tokens with scopes, read from one JSON file that may be rotated without a restart.

File: `{"<token name>": {"token": "<secret>", "scopes": ["sample", …]}, …}`, mode 0600. Missing file or placeholder
secrets are refused at start.
"""

import contextlib
import hmac
import json
import os
import secrets
from enum import StrEnum
from pathlib import Path

from shared.errors import Forbidden, Unauthenticated

MINIMUM_TOKEN_CHARACTERS = 24
"""Shorter secrets are placeholders or guessable."""


class Scope(StrEnum):
    """What a token may do."""

    SAMPLE = "sample"  # samplings, reports, generation
    TRAIN = "train"  # runs, batches, adapters
    AUTHOR = "author"  # authorings
    GOLD = "gold"  # see and send reference queries
    ADMIN = "admin"  # everything


class TokenFile:
    """The tokens of a file; re-read when it changes."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError with the fix when the file is missing or malformed."""
        self._path = path
        self._modified_ns = -1
        self._scopes: dict[str, frozenset[Scope]] = {}
        self._reload()

    def _reload(self) -> None:
        try:
            modified_ns = self._path.stat().st_mtime_ns
            if modified_ns == self._modified_ns:
                return
            entries = json.loads(self._path.read_text())
            scopes = {entry["token"]: frozenset(Scope(name) for name in entry["scopes"]) for entry in entries.values()}
        except (OSError, json.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"SQLCLIMB_TOKENS_FILE={self._path} cannot be used ({type(error).__name__}): expected JSON "
                '{"name": {"token": "…", "scopes": ["sample", …]}}; `sqlclimb up` writes one'
            ) from error
        short = sorted(name for name, entry in entries.items() if len(entry["token"]) < MINIMUM_TOKEN_CHARACTERS)
        if short:
            raise ValueError(f"tokens {short} in {self._path} have under {MINIMUM_TOKEN_CHARACTERS} characters")
        self._scopes, self._modified_ns = scopes, modified_ns

    def scopes_of(self, authorization: str | None) -> frozenset[Scope]:
        """Scopes of an `Authorization: Bearer …` header. Raises Unauthenticated."""
        try:
            self._reload()
        except ValueError:
            if not self._scopes:
                raise
            # a half-written rotation keeps the tokens that worked
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and token:
            for known, scopes in self._scopes.items():
                if hmac.compare_digest(known.encode(), token.strip().encode()):
                    return scopes
        raise Unauthenticated("send `Authorization: Bearer <token>` with a token from the service's tokens file")


def require(scopes: frozenset[Scope], needed: Scope) -> None:
    """Raises Forbidden unless `needed` (or admin) is among `scopes`."""
    if needed not in scopes and Scope.ADMIN not in scopes:
        raise Forbidden(f"this call needs a token with the `{needed}` scope")


def write_tokens(path: Path, scopes_by_name: dict[str, list[Scope]]) -> None:
    """Write a fresh tokens file (0600) with a random secret per name."""
    entries = {
        name: {"token": secrets.token_urlsafe(32), "scopes": [str(scope) for scope in scopes]}
        for name, scopes in scopes_by_name.items()
    }
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(entries, file, indent=1)
    temporary.replace(path)


class OwnToken:
    """The secret that a service calls others with, as the tokens file says at each call: it may be rotated any time."""

    def __init__(self, path: Path, name: str) -> None:
        """Raises KeyError when the file has no such name."""
        self._path, self._name = path, name
        self._modified_ns = path.stat().st_mtime_ns
        self._secret = read_token(path, name)

    def __call__(self) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # half a rotation keeps the one that worked
            modified_ns = self._path.stat().st_mtime_ns
            if modified_ns != self._modified_ns:
                self._secret, self._modified_ns = read_token(self._path, self._name), modified_ns
        return self._secret


def read_token(path: Path, name: str) -> str:
    """The secret of one named token. Raises KeyError when the file has no such name."""
    entry: dict[str, str] = json.loads(path.read_text())[name]
    return entry["token"]
