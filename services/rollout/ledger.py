"""What the ledger's repositories stand on: the pool, and writes that outwait a database that is away or full."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
import stamina

from shared.database import Pool

Connection = psycopg.AsyncConnection[dict[str, object]]

Given = ParamSpec("Given")
Found = TypeVar("Found")
Store = TypeVar("Store", bound="Ledger")

PATIENCE_SECONDS = 120.0
"""How long a write waits for a database that is away or full."""


class Ledger:
    """What the repositories stand on."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.trouble = ""
        """Why the last write failed; empty once one has succeeded again."""


def patient(
    write: Callable[Concatenate[Store, Given], Awaitable[Found]],
) -> Callable[Concatenate[Store, Given], Coroutine[Any, Any, Found]]:
    """Writes that must not be lost are repeated while the database is away; all of them are idempotent."""

    @functools.wraps(write)
    async def repeated(ledger: Store, /, *args: Given.args, **kwargs: Given.kwargs) -> Found:
        async for attempt in stamina.retry_context(
            on=psycopg.OperationalError, attempts=None, timeout=PATIENCE_SECONDS, wait_initial=0.2, wait_max=5.0
        ):
            with attempt:
                try:
                    found = await write(ledger, *args, **kwargs)
                except psycopg.OperationalError as error:
                    ledger.trouble = told(error)
                    raise
        ledger.trouble = ""
        return found

    return repeated


def told(error: psycopg.Error) -> str:
    """What the control database's failure means to a caller: its own first line, what is kept, what to do."""
    words = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"the control database is away or takes no rows ({words}). What had landed is kept, and samplings go on by "
        "themselves once it is mended"
    )
