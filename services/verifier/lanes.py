"""Who works when: a fixed number of slots, first come first served, and a lane for each request.

A request works off its tasks in its own thread, and in more threads while slots are free. A turn in a slot lasts for a
few quick tasks or one slow one, then the thread queues again: a batch of slow statements delays others by one of them,
never by its length. Thread-safe.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

Task = TypeVar("Task")
Done = TypeVar("Done")


TURN_SECONDS = 0.02
"""After so long in a slot it goes to whoever waits: some ten quick statements, so that handing over costs little."""


class Abandoned(Exception):
    """The lane's caller has gone: what had not begun is not run."""


class Slots:
    """`count` of them, as a context manager. A slot set free goes to whoever waits longest: none barges in."""

    def __init__(self, count: int) -> None:
        self._guard = threading.Lock()
        self._free = count
        self._turns: deque[threading.Lock] = deque()

    def free(self) -> int:
        """Slots that nobody uses."""
        return self._free

    def waiting(self) -> int:
        """Statements that wait for a slot."""
        return len(self._turns)

    def __enter__(self) -> None:
        with self._guard:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._turns.append(turn)
        turn.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._guard:
            if self._turns:
                self._turns.popleft().release()
            else:
                self._free += 1


class Lane:
    """One request's statements."""

    def __init__(self, slots: Slots, helpers: ThreadPoolExecutor, share: int) -> None:
        """At most `share` tasks run at once: in the caller's thread and on `helpers`."""
        self._slots = slots
        self._helpers = helpers
        self._share = share
        self._abandoned = False

    def abandon(self) -> None:
        """Begin nothing more; `map` raises Abandoned. Callable from any thread."""
        self._abandoned = True

    def raise_if_abandoned(self) -> None:
        """Raises Abandoned."""
        if self._abandoned:
            raise Abandoned

    def map(self, work: Callable[[Task], Done], tasks: Iterable[Task]) -> dict[Task, Done]:
        """`work` over the distinct tasks. Raises what it raises."""
        distinct = list(dict.fromkeys(tasks))
        queue = deque(distinct)
        done: dict[Task, Done] = {}
        helping: list[Future[None]] = []
        guard = threading.Lock()

        def turn() -> None:
            """Work in a slot until the queue is empty or it is others' turn."""
            ends = time.monotonic() + TURN_SECONDS
            while queue and (time.monotonic() < ends or not self._slots.waiting()):
                with guard:
                    if not queue:
                        return
                    self.raise_if_abandoned()
                    task = queue.popleft()
                    if queue and len(helping) < self._share - 1 and self._slots.free():
                        helping.append(self._helpers.submit(run))
                done[task] = work(task)

        def run() -> None:
            try:
                while queue:
                    with self._slots:
                        turn()
            except BaseException:
                queue.clear()
                raise

        try:
            run()
        finally:
            running = [helper for helper in helping if not helper.cancel()]
            wait(running)
        for helper in running:
            helper.result()
        return {task: done[task] for task in distinct}
