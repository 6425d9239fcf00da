"""Waiting for a service: one that is away is waited for and named, another program at its address is not."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli.follow import patiently
from cli.stack.home import free_ports
from shared.clients.base import ServiceClient, WrongAnswer
from shared.contracts.base import Readiness

READY = b'{"ready": true, "service": "service", "checks": {}, "versions": {}}'
PAGE = b"<!doctype html><title>Sign in</title>"


@contextlib.contextmanager
def answering(port: int, kind: str, body: bytes) -> Iterator[None]:
    """An HTTP server that answers everything with that."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

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
