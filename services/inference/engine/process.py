"""The vLLM server as a child process: started, waited for, started again when it ends.

While it is down its port answers 503 with the engine's own error, so that the gateway's callers read it. The child
never outlives this process, and nothing of the child outlives the child.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from services.inference.engine.command import Command
from services.inference.engine.errors import why_ended
from services.inference.engine.parent_death import end_with_parent
from shared.contracts.base import Problem

log = logging.getLogger(__name__)

TAIL_BYTES = 64 * 1024
"""How much of the engine's output is kept to find its error in."""

POLL_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 2.0
"""Long enough that a gateway, which looks each second, reads why the engine ended."""
LONGEST_PAUSE_SECONDS = 30.0


def pause_seconds(failures: int) -> float:
    """Before another start, after so many ends in a row without having been ready: 2, 4, 8 … 30."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** max(failures - 1, 0), LONGEST_PAUSE_SECONDS)


class EngineProcess:
    """Keeps one vLLM server running until it is told to stop."""

    def __init__(self, command: Command, host: str, port: int, start_seconds: float, stop_seconds: float) -> None:
        """A server that is not ready within `start_seconds` is ended, and one that is told to stop after
        `stop_seconds`."""
        self._command = command
        self._host = host
        self._port = port
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._tail = b""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask the engine to end its requests and then itself; `run` returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`. A server that is still starting then is ended at once: it has no requests."""
        failures = 0
        while not self._stopping.is_set():
            ready, reason = await self._once()
            if self._stopping.is_set():
                return
            failures = 0 if ready else failures + 1
            pause = pause_seconds(failures)
            log.error("%s; starting again in %.0f s", reason, pause)
            async with self._standing_in(reason):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)

    async def _once(self) -> tuple[bool, str]:
        """One life of the server: whether it was ready, and why it ended."""
        self._tail = b""
        child = await asyncio.create_subprocess_exec(
            *self._command.argv,
            env=self._command.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,
            preexec_fn=end_with_parent,
        )
        output = asyncio.create_task(self._copy_output(child))
        try:
            ready = await self._wait_ready(child)
            slow = not ready and child.returncode is None
            if not slow:
                await self._wait_end(child)
        finally:
            with contextlib.suppress(ProcessLookupError):  # with its core and workers
                os.killpg(child.pid, signal.SIGKILL)
        returncode = await child.wait()
        await output
        if slow:
            return False, f"the engine was not ready within {self._start_seconds:.0f} s (SQLCLIMB_START_SECONDS)"
        return ready, why_ended(returncode, self._tail.decode(errors="replace"))

    async def _copy_output(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while part := await child.stdout.read(TAIL_BYTES):
            sys.stderr.buffer.write(part)
            sys.stderr.buffer.flush()
            self._tail = (self._tail + part)[-TAIL_BYTES:]

    async def _wait_ready(self, child: asyncio.subprocess.Process) -> bool:
        """Whether it became ready; False when it ended, took too long, or is to stop."""
        deadline = time.monotonic() + self._start_seconds
        async with httpx.AsyncClient(base_url=f"http://{_reachable(self._host)}:{self._port}") as http:
            while child.returncode is None and time.monotonic() < deadline and not self._stopping.is_set():
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get("/health")).status_code == 200:
                        log.info("engine ready, %.0f s before the limit", deadline - time.monotonic())
                        return True
                await asyncio.sleep(POLL_SECONDS)
        return False

    async def _wait_end(self, child: asyncio.subprocess.Process) -> None:
        """Until it ended; told to stop, it may first end its requests."""
        stopping = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(child.wait())
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            child.terminate()
            await asyncio.wait({ended}, timeout=self._stop_seconds)

    @asynccontextmanager
    async def _standing_in(self, reason: str) -> AsyncIterator[None]:
        """Answer every request in the engine's place, unless something else took its port."""
        body = Problem(title="Engine down", status=503, detail=reason).model_dump_json().encode()
        head = (
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head.encode() + body)
                await writer.drain()
            writer.close()

        try:
            server = await asyncio.start_server(answer, self._host, self._port)
        except OSError as error:
            log.error("port %d: %s", self._port, error)
            yield
            return
        async with server:
            yield


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104  # told apart, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def run_until_signalled(make: Callable[[], EngineProcess]) -> None:
    """Run an engine until SIGTERM or SIGINT."""

    async def run() -> None:
        engine = make()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, engine.stop)
        await engine.run()

    asyncio.run(run())
