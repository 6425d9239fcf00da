"""A caller names an endpoint; what only this service reaches is not asked for it, whatever the name leads to."""

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse

from services.rollout.worker import groups
from services.rollout.worker.endpoint_models import egress
from services.rollout.worker.endpoint_models.egress import GuardedTransport
from shared.clients.base import ServiceProblem
from shared.contracts.rollout import EndpointApi, ModelEndpoint, SamplingState
from shared.egress import PUBLIC, EgressRefused, EgressRule
from tests.rollout.conftest import Coordinator
from tests.rollout.test_samplings import ended, request
from tests.serving import served

NAME = "models.example"
ENDLESS_MEBIBYTES = 1000
INSIDE = ("https://169.254.169.254/latest", "https://10.0.0.1/v1", "https://localhost:5432/v1", "http://1.1.1.1/v1")


async def test_an_address_inside_is_refused_before_anything_starts(coordinator: Coordinator) -> None:
    async with coordinator.client() as client:
        for url in (*INSIDE, "https://h:99999/v1"):
            with pytest.raises(ServiceProblem, match=r"Nothing was started") as refused:
                await client.start(request(endpoint=ModelEndpoint(url=url, model="m")))
            problem = refused.value.problem
            assert (problem.status, [fault.field for fault in problem.errors]) == (422, ["endpoint.url"])
            assert "SQLCLIMB_ENDPOINTS_ALLOWED" in problem.detail
        assert (await client.samplings()).samplings == []


@pytest.mark.parametrize("api", EndpointApi)
async def test_a_listed_endpoint_cannot_send_a_request_on_to_another_address(
    coordinator: Coordinator, api: EndpointApi
) -> None:
    app = FastAPI()
    asked: list[str] = []

    @app.post("/inside/{path:path}")
    def inside(path: str) -> None:
        asked.append(path)

    @app.post("/{path:path}")
    def on(path: str) -> RedirectResponse:
        return RedirectResponse(f"/inside/{path}", 307)

    with served(app) as url:
        async with coordinator.client() as client:
            elsewhere = ModelEndpoint(url=url, model="m", api=api)
            await client.start(request("elsewhere", endpoint=elsewhere, limit=1))
            done = await ended(client, "elsewhere")
    assert (done.state, asked) == (SamplingState.FAILED, [])
    assert "answers HTTP 307, a redirect: name the address it leads to instead" in done.error


class LeadsHere(EgressRule):
    """As if the name's public addresses were this machine's."""

    async def public_addresses(self, url: str) -> list[str]:
        return ["::1", "127.0.0.1"]


@pytest.mark.parametrize("api", EndpointApi)
async def test_an_answer_that_would_fill_the_memory_is_not_read(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, api: EndpointApi
) -> None:
    monkeypatch.setattr(egress, "MAXIMUM_ANSWER_BYTES", 2 * 1024**2)
    for module in ("openai_api", "anthropic_api"):
        monkeypatch.setattr(f"services.rollout.worker.endpoint_models.{module}.RETRIES", 0)
    sent = 0
    app = FastAPI()

    @app.post("/endless/{path:path}")
    def endless(path: str) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(ENDLESS_MEBIBYTES):
                sent += 1
                yield bytes(1024**2)
                await asyncio.sleep(0)  # the server notices that its caller hung up

        return StreamingResponse(parts(), media_type="application/json")

    @app.post("/packed/{path:path}")
    def packed(path: str) -> Response:
        bomb = gzip.compress(bytes(16 * 1024**2), 1)
        return Response(bomb, media_type="application/json", headers={"content-encoding": "gzip"})

    with served(app) as url:
        async with coordinator.client() as client:
            for name, words in (("endless", "has over 2097152 bytes"), ("packed", "is compressed")):
                elsewhere = ModelEndpoint(url=f"{url}/{name}", model="m", api=api)
                await client.start(request(name, endpoint=elsewhere, limit=1))
                done = await ended(client, name)
                assert (done.state, words in done.error) == (SamplingState.FAILED, True), done.error
    assert sent < ENDLESS_MEBIBYTES


async def test_an_answer_that_dribbles_is_given_up_when_its_budget_ends(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MINIMUM_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(groups, "SLOWEST_TOKENS_PER_SECOND", 1e9)
    app = FastAPI()

    @app.post("/{path:path}")
    def dribble(path: str) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                yield b" "
                await asyncio.sleep(0.05)

        return StreamingResponse(parts(), media_type="application/json")

    with served(app) as url:
        async with coordinator.client() as client:
            await client.start(request("elsewhere", endpoint=ModelEndpoint(url=url, model="m"), limit=1))
            done = await ended(client, "elsewhere")
    assert (done.state, done.progress.lost) == (SamplingState.FAILED, {"timeout": 4})
    assert "no whole answer came within 0.5 s" in done.error


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's TLS for `NAME`, which clients of this process trust."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", certificate]
    subprocess.run([*made, *subject], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_connection_goes_to_the_address_that_was_checked_and_tls_keeps_the_name(
    certified: ssl.SSLContext,
) -> None:
    hosts: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        hosts.extend(line for line in head.lower().splitlines() if line.startswith(b"host:"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certified)
    port = server.sockets[0].getsockname()[1]
    async with server, httpx2.AsyncClient(transport=GuardedTransport(LeadsHere((PUBLIC,), "S"), 4)) as client:
        assert (await client.get(f"https://{NAME}:{port}/v1")).text == "ok"
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"https://other.example:{port}/v1")
    assert hosts == [f"host: {NAME}:{port}".encode()]


async def test_a_name_that_leads_nowhere_is_no_refusal_but_an_outage() -> None:
    async with httpx2.AsyncClient(transport=GuardedTransport(EgressRule((PUBLIC,), "S"), 4)) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("https://no-such-name.invalid/v1")
        with pytest.raises(EgressRefused):
            await client.get("https://localhost/v1")


async def test_public_addresses_are_asked_through_a_proxy_where_the_environment_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy is the only way out of many clusters."""
    seen: list[str] = []
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET"])
    def proxy(path: str, request: Request) -> str:
        seen.append(str(request.url))
        return "through"

    with served(app) as url:
        monkeypatch.setenv("http_proxy", url)
        rule = EgressRule(("http://models.example",), "S")
        async with httpx2.AsyncClient(transport=GuardedTransport(rule, 4)) as client:
            assert (await client.get("http://models.example/v1")).json() == "through"
            with pytest.raises(EgressRefused):
                await client.get("http://other.example/v1")
    assert len(seen) == 1
