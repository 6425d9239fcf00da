"""Callers that mean harm, or send nonsense: a clear answer each time, no crash, and nothing of it is left."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from shared.bodies import STRANGER_BODY_BYTES
from shared.contracts.inference import AdapterRequest, Probe, ProbeSequence
from tests.inference.conftest import started_gateway
from tests.inference.scripted_engine import ScriptedEngine
from tests.inference.support import Gateway, Service
from tests.inference.test_checks import write_base

DIGEST = "deadbeef" + "0" * 56
NAME = "run-s1-deadbeef"
ODD_NAMES = (
    "a\0b",
    f"{NAME}\n",
    "..",
    "ü-s1-deadbeef",
    f"{'a' * 5000}-s1-deadbeef",
    f"run-s{10**30}-deadbeef",
    "run-s1-DEADBEEF",
)
PROBE = Probe(sequences=[ProbeSequence(token_ids=[1, 2, 3], start=1, logprobs=[-1.0, -1.0])])


@pytest.fixture(scope="module")
def attacked(control_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A real gateway process over a scripted engine."""
    folder = tmp_path_factory.mktemp("attacked")
    with ScriptedEngine() as engine:
        services = [Service("", engine.url, "", {}, folder)]
        with started_gateway(services, write_base(folder / "model"), control_cluster, folder) as gateway:
            gateway.service.wait_ready()
            yield gateway


@pytest.fixture
async def http(attacked: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with attacked.http() as http:
        yield http


def quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())


def body(**changes: object) -> dict[str, object]:
    request = AdapterRequest(uri="file:///nowhere", base="base", digest=DIGEST, probe=PROBE)
    return request.model_dump(mode="json") | changes


def kept(gateway: Gateway) -> list[str]:
    """Files in the cache and the store, but for finished uploads."""
    found = [path for folder in ("cache", "artifacts") for path in (gateway.folder / folder).rglob("*")]
    return [path.name for path in found if path.is_file() and "uploads" not in path.parts]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - it is another process that changes it
            await asyncio.sleep(0.02)


async def test_a_name_that_no_adapter_can_have_is_unknown_and_never_published(
    http: httpx.AsyncClient,
) -> None:
    for name in ODD_NAMES:
        path = f"/v1/adapters/{quoted(name)}"
        for method in ("GET", "DELETE"):
            assert (await http.request(method, path)).status_code == 404, (method, name)
        assert (await http.put(f"{path}/pin")).status_code == 404
        assert (await http.get(f"{path}/files")).status_code == 404
        assert (await http.put(path, json=body())).status_code == 422, name
    for model in (*ODD_NAMES, "\ud800"):
        asked = json.dumps({"model": model, "prompt": "x"})
        answer = await http.post("/v1/completions", content=asked, headers={"content-type": "application/json"})
        assert answer.status_code == 404, model
    assert (await http.get("/v1/adapters")).json()["adapters"] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"uri": "file:///a\0b"},
        {"uri": "file:///proc/self/mem.zip"},
        {"uri": "file:///dev/zero"},
        {"uri": "file:///etc"},
        {"uri": "s3::file:///etc"},
        {"uri": "memory://x"},
        {"uri": ""},
        {"uri": "file:///" + "a" * 300 + ".zip"},
        {"probe": {"sequences": [{"token_ids": [1, 2], "start": 1, "logprobs": [float("nan")]}]}},
        {"probe": {"sequences": [{"token_ids": [10**30, 2], "start": 1, "logprobs": [-1.0]}]}},
    ],
    ids=str,
)
async def test_a_publish_of_nonsense_is_refused(
    http: httpx.AsyncClient, attacked: Gateway, changes: dict[str, object]
) -> None:
    content = json.dumps(body(**changes))
    answer = await http.put(f"/v1/adapters/{NAME}", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), answer.text
    assert kept(attacked) == []


async def test_an_upload_that_breaks_off_leaves_nothing(attacked: Gateway, http: httpx.AsyncClient) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", int(attacked.url.rpartition(":")[2]))
    head = f"POST /v1/uploads HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {attacked.token()}\r\n"
    writer.write(f"{head}content-length: 100000000\r\n\r\n".encode() + bytes(1_000_000))
    await writer.drain()
    await until(lambda: bool(kept(attacked)))
    writer.close()
    await until(lambda: not kept(attacked))


async def test_what_is_no_archive_can_be_uploaded_and_not_published(attacked: Gateway, http: httpx.AsyncClient) -> None:
    for content in (b"\x80\x04\x95 a pickle", b"PK\x03\x04 no zip", b"\x1f\x8b no gzip", bytes(2048)):
        uri = (await http.post("/v1/uploads", content=content)).json()["uri"]
        answer = await http.put(f"/v1/adapters/{NAME}", json=body(uri=uri))
        assert (answer.status_code, "It is loaded nowhere" in answer.json()["detail"]) == (422, True), answer.text
    assert kept(attacked) == []


async def test_a_stranger_can_send_little(attacked: Gateway) -> None:
    large = bytes(STRANGER_BODY_BYTES + 1)
    async with httpx.AsyncClient(base_url=attacked.url) as stranger:
        for method, path in (("PUT", f"/v1/adapters/{NAME}"), ("PUT", "/v1/aliases/prod")):
            headers = {"content-type": "application/json"}
            assert (await stranger.request(method, path, content=large, headers=headers)).status_code == 413
        for path in ("/v1/uploads", "/v1/completions"):
            assert (await stranger.post(path, content=large)).status_code == 401
