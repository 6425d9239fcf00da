"""Bad input over real HTTP: a clear problem or a verdict of the one item; nothing else in the batch is lost."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import Status, VerifyItem, VerifyRequest
from tests.verifier.conftest import VerifierProcess
from tests.verifier.store import GOLD, STORE, sandbox_request, verify_sql

SANDBOX = "bad-input"
PATH = f"/v1/sandboxes/{SANDBOX}/verify"
GOOD = {"item_id": "good", "sql": GOLD, "gold": GOLD}
JSON = {"content-type": "application/json"}
MEGABYTE = 1_000_000


@pytest.fixture
async def http(verifier: VerifierProcess, client: VerifierClient) -> AsyncIterator[httpx.AsyncClient]:
    quick = STORE.model_copy(update={"statement_timeout_seconds": 1.0})
    await client.create_sandbox(sandbox_request(SANDBOX, quick))
    headers = {"authorization": f"Bearer {verifier.token()}"}
    async with httpx.AsyncClient(base_url=verifier.url, headers=headers, timeout=60) as opened:
        yield opened


async def problem_of(http: httpx.AsyncClient, content: bytes, status: int, headers: dict[str, str] = JSON) -> str:
    """The detail of the expected problem; afterwards the same connection still serves."""
    answer = await http.post(PATH, content=content, headers=headers)
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["instance"] == answer.headers["x-request-id"]
    assert (await http.post(PATH, json={"items": [GOOD]})).json()["verdicts"][0]["status"] == "match"
    detail: str = problem["detail"]
    return detail


async def verdicts_around(http: httpx.AsyncClient, item: dict[str, Any]) -> dict[str, Any]:
    """The verdict of an item between two good ones, which match whatever it holds."""
    content = json.dumps({"items": [GOOD, item, {**GOOD, "item_id": "also good"}]}).encode()
    answer = await http.post(PATH, content=content, headers=JSON)
    assert answer.status_code == 200, answer.text[:500]
    before, verdict, after = answer.json()["verdicts"]
    assert (before["status"], after["status"]) == ("match", "match")
    found: dict[str, Any] = verdict
    return found


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "is no JSON: Expecting value at line 1 column 1"),
        (b"items", "is no JSON: Expecting value at line 1 column 1"),
        (b'{"items": [{"sql": "SELECT 1", "gold": "SELECT 1"}', "is no JSON"),
        (b"[]", "Input should be an object"),
        (b'{"items": []}', "`items`"),
        (b'{"items": "SELECT 1"}', "`items`"),
        (b'{"items": [7]}', "`items.0`"),
        (b'{"items": [{"sql": "x", "reply": "y", "gold": "z"}]}', "exactly one of `reply` and `sql`"),
        (b'{"items": [{"sql": "x", "gold": []}]}', "`items.0`: Value error, `gold` is an empty list"),
        (b'{"items": [{"sql": "x", "gold": "y"}, {"sql": "x"}]}', "`items.1.gold`: Field required"),
        (b'{"items": [{"sql": 1, "gold": "y"}]}', "`items.0.sql`: Input should be a valid string"),
        (b'{"items": [{"reply": "x", "gold": "y", "finish_reason": "eos"}]}', "'stop', 'length' or 'abort'"),
        (b'{"items": [{"sql": "x", "golds": "y"}]}', "`items.0.golds`: Extra inputs are not permitted"),
        (b'{"profile": "lenient", "items": [{"sql": "x", "gold": "y"}]}', "`profile`"),
        (b'{"items": [{"sql": "\xff\xfe", "gold": "y"}]}', "is not UTF-8: byte 0xff at offset 20"),
        (b'{"items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is nested too deeply"),
        (b'{"items": ' + b"9" * 5_000 + b"}", "is no JSON that can be read"),
        (b'{"items": [{"item_id": "a", "sql": "x", "gold": "y"}, {"item_id": "a", "sql": "x", "gold": "y"}]}',
         "items 0 and 1 have the same item_id 'a'"),
    ],
)  # fmt: skip
async def test_a_malformed_body_is_a_422_that_names_the_place(
    http: httpx.AsyncClient, content: bytes, says: str
) -> None:
    detail = await problem_of(http, content, 422)
    assert says in detail
    assert "Nothing was done" in detail


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
async def test_another_content_type_is_a_415(http: httpx.AsyncClient, content_type: str) -> None:
    content = json.dumps({"items": [GOOD]}).encode()
    assert "send JSON as `application/json`" in await problem_of(http, content, 415, {"content-type": content_type})


async def test_5000_items_are_a_422_that_says_the_limit(http: httpx.AsyncClient) -> None:
    content = json.dumps({"items": [{"sql": "SELECT 1", "gold": GOLD}] * 5_000}).encode()
    detail = await problem_of(http, content, 422)
    assert "at most 4096 items" in detail


async def test_4096_items_are_answered_in_order(http: httpx.AsyncClient) -> None:
    items = [
        {"item_id": str(n), "sql": f"SELECT name FROM author WHERE id = {n % 5}", "gold": GOLD} for n in range(4096)
    ]
    verdicts = (await http.post(PATH, json={"items": items})).json()["verdicts"]
    assert [verdict["item_id"] for verdict in verdicts] == [str(n) for n in range(4096)]
    assert {verdict["status"] for verdict in verdicts} == {"mismatch"}


async def test_a_body_over_the_limit_is_a_413(http: httpx.AsyncClient) -> None:
    item = json.dumps({"items": [{"reply": "x" * 70 * MEGABYTE, "gold": GOLD}]}).encode()
    assert "split it into several requests" in await problem_of(http, item, 413)


async def test_a_reply_of_10_mb_costs_its_item_only(http: httpx.AsyncClient) -> None:
    verdict = await verdicts_around(http, {"reply": f"```sql\n{GOLD}\n```" + " " * 10 * MEGABYTE, "gold": GOLD})
    assert (verdict["status"], verdict["reason"]) == ("no_sql", "the reply is longer than 512 KB")


@pytest.mark.parametrize(
    "part", ["<think>", "```", "```sql\nSELECT 1\n```\n", "SELECT ", "WITH a AS (", "(", "-- \n", "'", "$a$"]
)
async def test_a_long_reply_that_repeats_itself_is_read_in_time(http: httpx.AsyncClient, part: str) -> None:
    verdict = await verdicts_around(http, {"reply": part * (100_000 // len(part)), "gold": GOLD})
    assert verdict["reward"] == 0.0


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\udfff", "\ud83d \ude00", "\ufffe", "\U0001f600"])
async def test_nul_and_lone_surrogates_in_a_reply_cost_nothing_else(http: httpx.AsyncClient, text: str) -> None:
    prose = await verdicts_around(http, {"reply": f"{text}\n```sql\n{GOLD}\n```", "gold": GOLD})
    assert prose["status"] == "match"
    inside = await verdicts_around(http, {"reply": f"```sql\nSELECT '{text}' FROM author\n```", "gold": GOLD})
    assert inside["reward"] in (0.0, 0.1)
    named = await verdicts_around(http, {"item_id": text, "sql": "SELECT 1", "gold": GOLD})
    assert named["status"] == "mismatch"
    gold = await verdicts_around(http, {"sql": GOLD, "gold": f"SELECT '{text}', x"})
    assert (gold["status"], gold["reward"]) == ("unscorable", None)


@pytest.mark.parametrize(
    "gold",
    [
        "",
        "   ",
        ";",
        "no SQL at all",
        "DELETE FROM author",
        "SELECT 1; SELECT 2",
        "SELECT no_such FROM author",
        "SELECT name FROM author WHERE false",
        "SELECT 1 / (id - 1) FROM author",
        "SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(40)),
        "SELECT g FROM generate_series(1, 100000) g",
        "SELECT '" + "x" * 20_000 + "'",
        "COPY author TO STDOUT",
        "SET ROLE postgres",
    ],
    ids=lambda gold: gold[:20].strip() or "blank",
)
async def test_a_faulty_gold_makes_its_item_unscorable(http: httpx.AsyncClient, gold: str) -> None:
    verdict = await verdicts_around(http, {"sql": GOLD, "gold": gold})
    assert (verdict["status"], verdict["reward"]) == ("unscorable", None)
    assert "gold" in verdict["reason"]
    assert "no_such" not in verdict["reason"]


async def test_a_faulty_gold_among_good_ones_is_no_hindrance(client: VerifierClient, http: httpx.AsyncClient) -> None:
    answer = await client.verify(SANDBOX, verify_sql(["SELECT no_such FROM author", "nonsense", GOLD], GOLD))
    assert answer.verdicts[0].status is Status.MATCH


@pytest.mark.parametrize("call", ["execute", "explain"])
async def test_the_other_calls_check_their_bodies_alike(http: httpx.AsyncClient, call: str) -> None:
    path = f"/v1/sandboxes/{SANDBOX}/{call}"
    assert (await http.post(path, content=b"{", headers=JSON)).status_code == 422
    assert (await http.post(path, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
    missing = await http.post(path, json={})
    assert missing.json()["errors"][0]["message"] == "Field required"


async def test_every_item_of_a_mixed_batch_gets_its_own_verdict(
    client: VerifierClient, http: httpx.AsyncClient
) -> None:
    items = [
        VerifyItem(item_id="1", reply="", gold=GOLD),
        VerifyItem(item_id="2", sql="", gold=GOLD),
        VerifyItem(item_id="3", sql="SELECT 'a\x00'", gold=GOLD),
        VerifyItem(item_id="4", sql=GOLD, gold="nonsense"),
        VerifyItem(item_id="5", sql=GOLD, gold=GOLD),
        VerifyItem(item_id="6", sql="DROP TABLE author", gold=GOLD),
    ]
    verdicts = (await client.verify(SANDBOX, VerifyRequest(items=items))).verdicts
    assert [(verdict.item_id, verdict.status) for verdict in verdicts] == [
        ("1", Status.NO_SQL),
        ("2", Status.REFUSED),
        ("3", Status.REFUSED),
        ("4", Status.UNSCORABLE),
        ("5", Status.MATCH),
        ("6", Status.REFUSED),
    ]
