"""Many at once: slow batches starve nobody, callers who leave take their work along, too much waiting is a 429."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from shared.clients.base import ServiceProblem
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import Status
from tests.verifier.conftest import VerifierProcess, start_verifier, temporary_folder
from tests.verifier.store import GOLD, STORE, sandbox_request, verify_sql

SANDBOX = "load"
QUEUE_ITEMS = 64
TIMEOUT_SECONDS = 1.0
QUICK_STORE = STORE.model_copy(update={"statement_timeout_seconds": TIMEOUT_SECONDS})

CROSS = ", ".join(f"book b{i}" for i in range(40))


def slow(number: int) -> str:
    """A statement that ends at its timeout."""
    return f"SELECT count(*) + {number} FROM {CROSS}"


@pytest.fixture(scope="module")
def small() -> Iterator[VerifierProcess]:
    """Two slots, and a short queue."""
    with temporary_folder() as folder:
        running = start_verifier(folder, workers="2", queue_items=str(QUEUE_ITEMS))
        yield running
        running.stop()


@pytest.fixture
async def store(small: VerifierProcess) -> AsyncIterator[VerifierClient]:
    async with small.client() as client:
        await client.create_sandbox(sandbox_request(SANDBOX, QUICK_STORE))
        yield client


async def metric(client: VerifierClient, name: str) -> float:
    text = (await client.send("GET", "/metrics")).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def reaches(client: VerifierClient, name: str, value: float, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while await metric(client, name) != value:
        assert time.monotonic() < deadline, f"{name} is {await metric(client, name)}, not {value}"
        await asyncio.sleep(0.05)


async def test_a_slow_batch_starves_nobody_and_ends_when_its_caller_leaves(
    store: VerifierClient, small: VerifierProcess
) -> None:
    async with small.client() as leaver:
        batch = asyncio.create_task(leaver.verify(SANDBOX, verify_sql(GOLD, *map(slow, range(40)))))
        await reaches(store, "sqlclimb_items_admitted", 40, seconds=10)
        for number in range(5):
            asked = verify_sql(GOLD, *(f"SELECT name, {number * 16 + i} FROM author" for i in range(16)))
            async with asyncio.timeout(15):  # the batch would need 40
                answer = await store.verify(SANDBOX, asked)
            assert {verdict.status for verdict in answer.verdicts} == {Status.MISMATCH}
        assert not batch.done()
        batch.cancel()
    await reaches(store, "sqlclimb_items_admitted", 0, seconds=15)
    assert await metric(store, "sqlclimb_threads_waiting") == 0


async def patiently(client: VerifierClient) -> Status:
    """As the rollout workers ask: a client's own patience is shorter than two statement timeouts."""
    while True:
        try:
            return (await client.verify(SANDBOX, verify_sql(GOLD, GOLD))).verdicts[0].status
        except ServiceProblem as problem:
            assert problem.problem.status == 429


async def test_too_many_items_are_refused_for_now_and_the_client_asks_again(
    store: VerifierClient, small: VerifierProcess
) -> None:
    refused = await metric(store, "sqlclimb_requests_refused_total")
    async with small.client() as leaver, httpx.AsyncClient(base_url=small.url) as http:
        batch = asyncio.create_task(leaver.verify(SANDBOX, verify_sql(GOLD, *map(slow, range(QUEUE_ITEMS)))))
        await reaches(store, "sqlclimb_items_admitted", QUEUE_ITEMS, seconds=10)
        body = verify_sql(GOLD, GOLD).model_dump_json()
        headers = {"authorization": f"Bearer {small.token()}", "content-type": "application/json"}
        answer = await http.post(f"/v1/sandboxes/{SANDBOX}/verify", content=body, headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "repeat the call" in answer.json()["detail"]
        patient = asyncio.create_task(patiently(store))
        await reaches(store, "sqlclimb_requests_refused_total", refused + 2, seconds=10)
        batch.cancel()
    assert await patient is Status.MATCH


async def test_a_request_over_the_queue_limit_is_served_when_it_is_alone(store: VerifierClient) -> None:
    await reaches(store, "sqlclimb_items_admitted", 0, seconds=10)
    answer = await store.verify(SANDBOX, verify_sql(GOLD, *[GOLD] * (QUEUE_ITEMS + 1)))
    assert {verdict.status for verdict in answer.verdicts} == {Status.MATCH}


async def test_the_same_statement_in_two_requests_at_once_runs_once(store: VerifierClient) -> None:
    joins = ", ".join(f"book b{i}" for i in range(12))
    statement = f"SELECT name FROM author WHERE id < (SELECT count(*) FROM {joins})"
    ran = 'sqlclimb_results_total{role="candidate",source="run"}'
    before = await metric(store, ran)
    asked = verify_sql(GOLD, statement)
    answers = await asyncio.gather(*(store.verify(SANDBOX, asked) for _ in range(4)))
    assert [answer.verdicts[0].status for answer in answers] == [Status.MISMATCH] * 4
    assert await metric(store, ran) == before + 1


async def test_the_service_tells_what_it_does(store: VerifierClient) -> None:
    await store.verify(SANDBOX, verify_sql(GOLD, GOLD, "SELECT 'marker_five'"))
    text = (await store.send("GET", "/metrics")).text
    for status in Status:
        assert f'sqlclimb_verdicts_total{{status="{status}"}}' in text
    for phase in ("request", "parse", "gold", "execute", "compare"):
        assert await metric(store, f'sqlclimb_verify_seconds_count{{phase="{phase}"}}') > 0
    for role in ("gold", "candidate"):
        assert await metric(store, f'sqlclimb_result_cache_bytes{{role="{role}"}}') > 0
    assert await metric(store, "sqlclimb_sandboxes") == 1
    assert "marker_five" not in text
