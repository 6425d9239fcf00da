"""Waiting for a service: one that is away is waited for and named, another program at its address is not."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli.follow import patiently
from cli.stack.home import free_ports
from shared.clients.base import UNREACHABLE_ATTEMPTS, ServiceClient, ServiceProblem, ServiceUnreachable, WrongAnswer
from shared.contracts.base import Readiness

READY = b'{"ready": true, "service": "service", "checks": {}, "versions": {}}'
NOT_READY = b'{"title": "Unavailable", "status": %d, "detail": "the database is starting up."}'
PAGE = b"<!doctype html><title>Sign in</title>"


@contextlib.contextmanager
def answering(
    port: int, kind: str, body: bytes, *, unready: int = 0, status: int = 503, error: tuple[str, bytes] | None = None
) -> Iterator[None]:
    """An HTTP server that answers everything with that; the first `unready` requests with `error`, or a problem."""
    waiting = [error or (kind, NOT_READY % status)] * unready

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content_type, content = waiting.pop() if waiting else (kind, body)
            self.send_response(200 if content is body else status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_service_that_is_away_is_named_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    asked = 0
    with contextlib.ExitStack() as stack:
        async with ServiceClient(f"http://127.0.0.1:{port}", "token") as client:

            async def ask() -> Readiness:
                nonlocal asked
                asked += 1
                if asked == 2:
                    stack.enter_context(answering(port, "application/json", READY))
                return await client.readiness()

            assert (await patiently(ask)).ready
    assert capsys.readouterr().out.count("waiting for it to come back") == 1


async def test_another_program_at_the_address_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    with answering(port, "text/html", PAGE):
        async with ServiceClient(f"http://127.0.0.1:{port}", "token") as client:
            with pytest.raises(WrongAnswer, match="text/html, which is no Readiness"):
                await patiently(lambda: client.call("GET", "/v1/anything", Readiness))
    assert "waiting" not in capsys.readouterr().out


@pytest.mark.parametrize("status", [502, 503])
async def test_a_service_that_is_not_ready_yet_is_waited_for_and_says_why(
    capsys: pytest.CaptureFixture[str], status: int
) -> None:
    (port,) = free_ports(1)
    with answering(port, "application/json", READY, unready=2, status=status):
        async with ServiceClient(f"http://127.0.0.1:{port}", "token") as client:
            assert (await patiently(lambda: client.call("GET", "/v1/anything", Readiness))).ready
    line = f"not ready (HTTP {status}): Unavailable: the database is starting up; waiting for it to come back"
    assert capsys.readouterr().out.count(line) == 1  # one line a period, however often it is asked


async def test_a_proxy_that_knows_no_routes_yet_is_asked_again() -> None:
    (port,) = free_ports(1)
    error = ("text/plain", b"Path not found.")
    with answering(port, "application/json", READY, unready=2, status=404, error=error):
        async with ServiceClient(f"http://127.0.0.1:{port}", "token") as client:
            assert (await client.call("GET", "/v1/anything", Readiness)).ready
    with answering(port, "application/json", READY, unready=UNREACHABLE_ATTEMPTS, status=404, error=error):
        async with ServiceClient(f"http://127.0.0.1:{port}", "token") as client:
            with pytest.raises(ServiceUnreachable, match=r"HTTP 404 \(Path not found"):
                await client.call("GET", "/v1/anything", Readiness)


async def test_a_lasting_refusal_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    with answering(port, "application/json", READY, unready=1, status=409):
        async with ServiceClient(f"http://127.0.0.1:{port}", "token") as client:
            with pytest.raises(ServiceProblem, match="the database is starting up"):
                await patiently(lambda: client.call("GET", "/v1/anything", Readiness))
    assert "waiting" not in capsys.readouterr().out
