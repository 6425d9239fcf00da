"""Work beside the training loop."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(name: str, work: Callable[[], Result]) -> "Future[Result]":
    """Begin `work` in a thread of that name; its result, or what it raised, is where the future is asked."""
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    # daemon: a run that ends early must not wait for what nobody will ask for
    threading.Thread(target=run, name=name, daemon=True).start()
    return result
