"""Who works when: a fixed number of slots, first come first served, and a lane for each request.

A request works in its own thread while it has a slot, and on its tasks in more threads while slots are free. A turn in
a slot lasts for a few quick tasks or one slow one, then the thread queues again: a batch of slow statements delays
others by one of them, never by its length. Threads without a slot sleep, so that few contend for the interpreter.
Thread-safe.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

Task = TypeVar("Task")
Done = TypeVar("Done")

TURN_SECONDS = 0.02
"""After so long in a slot it goes to whoever waits: some ten quick statements, so that handing over costs little."""


class Abandoned(Exception):
    """The lane's caller has gone: what had not begun is not run."""


class Slots:
    """`count` of them. A slot set free goes to whoever waits longest: none barges in."""

    def __init__(self, count: int) -> None:
        self._guard = threading.Lock()
        self._free = count
        self._queue: deque[threading.Lock] = deque()

    def free(self) -> int:
        """Slots that nobody uses."""
        return self._free

    def waiting(self) -> int:
        """Threads that wait for a slot."""
        return len(self._queue)

    def acquire(self) -> None:
        """Wait for a slot."""
        with self._guard:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._queue.append(turn)
        turn.acquire()

    def release(self) -> None:
        """Hand a slot on."""
        with self._guard:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._free += 1


class _Turn:
    """A thread's time in a slot; as a context manager."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._ends = 0.0

    def __enter__(self) -> Self:
        self._slots.acquire()
        self._ends = time.monotonic() + TURN_SECONDS
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._slots.release()

    def hand_over_if_due(self) -> None:
        """Let others in when the time is up, and queue again."""
        if time.monotonic() > self._ends and self._slots.waiting():
            self._slots.release()
            self.__enter__()

    def sleep_until(self, helping: Iterable[Future[None]]) -> None:
        """Wait for helpers, who may need the slot."""
        self._slots.release()
        wait(helping)
        self._slots.acquire()


class Lane:
    """One request. Within `with lane` its thread has a slot."""

    def __init__(self, slots: Slots, helpers: ThreadPoolExecutor, share: int) -> None:
        """At most `share` tasks run at once: in the caller's thread and on `helpers`."""
        self._slots = slots
        self._helpers = helpers
        self._share = share
        self._turn = _Turn(slots)
        self._abandoned = False

    def __enter__(self) -> Self:
        """Raises Abandoned."""
        self._turn.__enter__()
        if self._abandoned:
            self._slots.release()
            raise Abandoned
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._slots.release()

    def abandon(self) -> None:
        """Begin nothing more; `map` raises Abandoned. Callable from any thread."""
        self._abandoned = True

    def map(self, work: Callable[[Task], Done], tasks: Iterable[Task]) -> dict[Task, Done]:
        """`work` over the distinct tasks. Raises what it raises."""
        distinct = list(dict.fromkeys(tasks))
        if not distinct:
            return {}
        queue = deque(distinct)
        done: dict[Task, Done] = {}
        helping: list[Future[None]] = []
        guard = threading.Lock()

        def next_task() -> list[Task]:
            """One, or none when they are out."""
            with guard:
                if not queue:
                    return []
                if self._abandoned:
                    raise Abandoned
                task = queue.popleft()
                if queue and len(helping) < self._share - 1 and self._slots.free():
                    helping.append(self._helpers.submit(help_out))
                return [task]

        def run(turn: _Turn) -> None:
            try:
                while task := next_task():
                    done[task[0]] = work(task[0])
                    turn.hand_over_if_due()
            except BaseException:
                queue.clear()
                raise

        def help_out() -> None:
            with _Turn(self._slots) as turn:
                run(turn)

        try:
            run(self._turn)
        finally:
            running = [helper for helper in helping if not helper.cancel()]
            if running:
                self._turn.sleep_until(running)
        for helper in running:
            helper.result()
        return {task: done[task] for task in distinct}
