"""Says so when a part of the stack ends while a command runs: the supervisor starts it again, and the command waits."""

import contextlib
import threading
from collections.abc import Iterator, Mapping

from cli.stack.stack import Say
from cli.stack.supervisor import Supervised, Supervisor, SupervisorRefused

POLL_SECONDS = 0.5


def changes(before: Mapping[str, Supervised], after: Mapping[str, Supervised]) -> list[str]:
    """A sentence for each part whose process is another one, or that is given up. Pure."""
    if before and not after:
        return ["the supervisor does not answer: parts that end are not started again; run the same command again"]
    sentences = []
    for name, old in before.items():
        new = after.get(name, Supervised(0, "STOPPED"))
        if new.state == "FATAL" and old.state != "FATAL":
            sentences.append(f"{name} does not start again: see {name}.log")
        elif old.pid and new.pid and new.pid != old.pid:
            sentences.append(f"{name} (process {old.pid}) ended and was started again as process {new.pid}")
        elif old.pid and not new.pid:
            sentences.append(f"{name} (process {old.pid}) ended: the supervisor starts it again")
    return sentences


@contextlib.contextmanager
def watched(supervisor: Supervisor, say: Say) -> Iterator[None]:
    """Tell of every change from before the block to its end."""
    stop = threading.Event()
    known: Mapping[str, Supervised] = {}
    with contextlib.suppress(SupervisorRefused):
        known = supervisor.processes()
    thread = threading.Thread(target=_watch, args=(supervisor, known, say, stop), name="stack-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(supervisor: Supervisor, known: Mapping[str, Supervised], say: Say, stop: threading.Event) -> None:
    with contextlib.suppress(SupervisorRefused):  # it shuts down: `down` says so
        while True:
            last = stop.wait(POLL_SECONDS)
            found = supervisor.processes()
            for sentence in changes(known, found):
                say(f"  ! {sentence}")
            if last:
                return
            known = found
