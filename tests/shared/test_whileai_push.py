"""Rows to a While account through its SDK, against a stand-in of the platform."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from shared.contracts.rollout import SamplingRequest
from shared.whileai import to_whileai
from shared.whileai.push import PushError, push
from tests.cli.test_row_files import ROWS

KEY = "zp_0123456789_secret"
ROWS_OF_THEIRS = [to_whileai(row, SamplingRequest(sampling_id="one", domain="shop")) for row in ROWS[:8]]


class Platform(BaseHTTPRequestHandler):
    """The three calls of a push; the key is checked, and quoted back when it is wrong."""

    created: dict[str, Any]
    uploaded: bytes

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_POST(self) -> None:
        owner = type(self)
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if (key := self.headers["x-api-key"]) != KEY:
            return self._answer(401, {"error": f"unknown key {key}"})
        if self.path.endswith("/finalize"):
            return self._answer(200, {"datasetId": "ds_1", "rows": owner.uploaded.count(b"\n")})
        owner.created = json.loads(body)
        return self._answer(200, {"datasetId": "ds_1", "uploadUrl": f"http://{self.headers['host']}/upload"})

    def do_PUT(self) -> None:
        type(self).uploaded = self.rfile.read(int(self.headers["content-length"]))
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Platform]]:
    handler = type("Handler", (Platform,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("WHILEAI_API_URL", f"http://127.0.0.1:{server.server_address[1]}")
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("purpose", ["train", "holdout", "eval"])
def test_every_row_arrives_under_its_purpose(platform: type[Platform], purpose: str) -> None:
    assert push(ROWS_OF_THEIRS, "shop-base", KEY, purpose) == "ds_1"
    assert (platform.created["name"], platform.created["purpose"]) == ("shop-base", purpose)
    assert [json.loads(line) for line in platform.uploaded.splitlines()] == json.loads(json.dumps(ROWS_OF_THEIRS))


def test_a_refused_key_is_an_error_without_the_key(platform: type[Platform]) -> None:
    wrong = "zp_wrong_key"
    with pytest.raises(PushError, match="401") as refused:
        push(ROWS_OF_THEIRS, "shop-base", wrong, "train")
    assert wrong not in str(refused.value)
