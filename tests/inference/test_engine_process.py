"""The engine's supervision, with small programs in vLLM's place."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from cli.stack.home import free_ports
from services.inference.engine.command import Command
from services.inference.engine.errors import why_ended
from services.inference.engine.process import EngineProcess, pause_seconds

SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *words): pass
print("starting", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
BROKEN = "raise ValueError('max_model_len is too long')"


def engine(program: str, port: int, start_seconds: float = 30.0) -> EngineProcess:
    return EngineProcess(
        Command([sys.executable, "-c", program, str(port)], {}), "127.0.0.1", port, start_seconds, stop_seconds=0.5
    )


async def answer(port: int, wanted: int, seconds: float = 20.0) -> httpx.Response:
    """The first answer with this status."""
    async with asyncio.timeout(seconds), httpx.AsyncClient() as http:
        while True:
            try:
                found = await http.get(f"http://127.0.0.1:{port}/v1/models")
                if found.status_code == wanted:
                    return found
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


def servers() -> list[psutil.Process]:
    """Our children that run a server."""
    return [child for child in psutil.Process().children() if SERVER in child.cmdline()]


async def test_killed_server_says_so_in_its_place_and_is_started_again() -> None:
    port = free_ports(1)[0]
    supervised = engine(SERVER, port)
    running = asyncio.create_task(supervised.run())
    await answer(port, 200)
    (first,) = servers()
    first.send_signal(signal.SIGKILL)
    down = await answer(port, 503)
    assert down.headers["content-type"] == "application/problem+json"
    assert "ended by SIGKILL" in down.json()["detail"]
    assert (await answer(port, 200)).text == "served"
    assert servers()[0].pid != first.pid
    supervised.stop()
    await asyncio.wait_for(running, 10)
    assert servers() == []


async def test_server_that_never_starts_tells_its_own_error(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_ports(1)[0]
    supervised = engine(BROKEN, port)
    running = asyncio.create_task(supervised.run())
    detail = (await answer(port, 503)).json()["detail"]
    assert detail == "the engine ended with code 1: ValueError: max_model_len is too long"
    supervised.stop()
    await asyncio.wait_for(running, 10)
    assert "Traceback" in capfd.readouterr().err  # its output is ours too


async def test_server_that_is_not_ready_in_time_is_ended() -> None:
    port = free_ports(1)[0]
    supervised = engine("import time; time.sleep(600)", port, start_seconds=0.2)
    running = asyncio.create_task(supervised.run())
    assert "not ready within 0 s" in (await answer(port, 503)).json()["detail"]
    supervised.stop()
    await asyncio.wait_for(running, 10)


@pytest.mark.parametrize("program", [STUBBORN, STUBBORN.partition("import http")[0] + "import time; time.sleep(600)"])
async def test_server_that_does_not_end_when_asked_is_killed(program: str) -> None:
    """Ready or still starting."""
    port = free_ports(1)[0]
    supervised = engine(program, port)
    running = asyncio.create_task(supervised.run())
    if program == STUBBORN:
        await answer(port, 200)
    else:
        await asyncio.sleep(1.0)  # it is on its way, whatever it does
    supervised.stop()
    await asyncio.wait_for(running, 10)
    assert not [child for child in psutil.Process().children() if program in child.cmdline()]


async def test_server_dies_with_its_supervisor(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    program = f"""
import asyncio, sys
from services.inference.engine.command import Command
from services.inference.engine.process import EngineProcess, run_until_signalled
command = Command([sys.executable, "-c", {SERVER!r}, "{port}"], {{}})
run_until_signalled(lambda: EngineProcess(command, "127.0.0.1", {port}, 30.0, 5.0))
"""
    with (tmp_path / "log").open("wb") as log:
        supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=log, stderr=log)
    await answer(port, 200)
    (server,) = psutil.Process(supervisor.pid).children()
    os.kill(supervisor.pid, signal.SIGKILL)
    await supervisor.wait()
    await asyncio.to_thread(server.wait, 10)


def test_pauses_grow_to_half_a_minute() -> None:
    assert [pause_seconds(failures) for failures in (0, 1, 2, 3, 4, 5, 50)] == [2, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (-9, "ValueError: old", "the engine was ended by SIGKILL; out of memory?"),
        (1, "", "the engine ended with code 1: it said nothing"),
        (1, "one\nusage: wrong flag\n\n", "the engine ended with code 1: usage: wrong flag"),
        (
            1,
            "(EngineCore pid=7) ERROR 11-30 02:54:12 [core.py:9] torch.OutOfMemoryError: Tried 3 GiB\n"
            "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.\n",
            "the engine ended with code 1: torch.OutOfMemoryError: Tried 3 GiB",
        ),
        (
            1,
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, max_model_len (200000) is too long\n    For further information visit x\n",
            "the engine ended with code 1: pydantic_core._pydantic_core.ValidationError: 1 validation error for "
            "ModelConfig Value error, max_model_len (200000) is too long",
        ),
    ],
)
def test_engines_own_error_is_found_in_its_output(code: int, output: str, reason: str) -> None:
    assert why_ended(code, output) == reason
