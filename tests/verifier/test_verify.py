"""Verdicts over HTTP, from a real verifier process with a real Postgres."""

import asyncio
import os
import time

import psutil
import pytest

from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import ExplainRequest, FinishReason, Status, Verdict, VerifyItem, VerifyRequest
from tests.verifier.conftest import VerifierProcess
from tests.verifier.store import GOLD, execute, sandbox_request, verify_sql

SANDBOX = "bookstore"


@pytest.fixture
async def store(client: VerifierClient) -> VerifierClient:
    await client.create_sandbox(sandbox_request(SANDBOX))
    return client


async def verdict_of(
    client: VerifierClient, sql: str, gold: str | list[str] = GOLD, order_matters: bool | None = None
) -> Verdict:
    answer = await client.verify(SANDBOX, verify_sql(gold, sql, order_matters=order_matters))
    return answer.verdicts[0]


@pytest.mark.parametrize(
    "sql, status, reward",
    [
        (GOLD, Status.MATCH, 1.0),
        ("SELECT sum(price), name FROM book JOIN author a ON a.id = author_id GROUP BY a.id", Status.MATCH, 1.0),
        ("SELECT a.name, count(b.id) FROM author a JOIN book b ON b.author_id = a.id GROUP BY 1", Status.MISMATCH, 0.1),
        ("SELECT 1", Status.MISMATCH, 0.0),
        ("SELECT 'Ada', 30 UNION SELECT 'Bo', 30", Status.MISMATCH, 0.0),
        ("SELECT no_such FROM author", Status.SQL_ERROR, 0.0),
        ("SELECT FROM WHERE", Status.SQL_ERROR, 0.0),
        ("DELETE FROM author", Status.REFUSED, 0.0),
        ("SELECT pg_sleep(1)", Status.REFUSED, 0.0),
        ("SELECT name, id FROM author, generate_series(1, 10000)", Status.MISMATCH, 0.1),
    ],
)  # fmt: skip
async def test_status_and_reward(store: VerifierClient, sql: str, status: Status, reward: float) -> None:
    verdict = await verdict_of(store, sql)
    assert (verdict.status, verdict.reward, verdict.sql) == (status, reward, sql)


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT no_such FROM author", "42703"),
        ("SELECT FROM WHERE", "42601"),
        ("SELECT 1 / (id - id) FROM author", "22012"),
        ("SELECT (SELECT id FROM author) FROM book", "21000"),
        (GOLD, None),
        ("DELETE FROM author", None),
    ],
)
async def test_an_sql_error_carries_postgres_code(store: VerifierClient, sql: str, sqlstate: str | None) -> None:
    assert (await verdict_of(store, sql)).sqlstate == sqlstate


async def test_a_match_holds_on_every_seed_where_the_gold_has_rows(store: VerifierClient) -> None:
    verdict = await verdict_of(store, GOLD)
    assert [(seed.seed, seed.rows, seed.gold_rows) for seed in verdict.seeds] == [("main", 2, 2), ("fewer", 1, 1)]
    assert (verdict.rows, verdict.gold_rows) == (2, 2)
    assert verdict.exec_ms is not None


async def test_a_chance_match_on_the_main_seed_dies_on_a_variant(store: VerifierClient) -> None:
    chance = await verdict_of(store, "SELECT name, 30 FROM author WHERE id < 3")
    assert (chance.status, chance.reward) == (Status.MISMATCH, 0.1)
    assert "seed fewer" in chance.reason
    failing = await verdict_of(
        store, "SELECT name, sum(price * sold / sold) FROM book JOIN author a ON a.id = author_id GROUP BY name"
    )
    assert (failing.status, failing.reward) == (Status.MISMATCH, 0.1)
    assert "division by zero" in failing.reason


async def test_a_gold_that_fails_on_a_variant_is_compared_on_the_others(store: VerifierClient) -> None:
    gold = "SELECT name, sum(price / nullif(sold, 5) / sold) FROM book JOIN author a ON a.id = author_id GROUP BY name"
    right = await verdict_of(store, gold, gold)
    assert (right.status, [seed.seed for seed in right.seeds]) == (Status.MATCH, ["main"])
    wrong = await verdict_of(store, "SELECT name, 1 FROM author", gold)
    assert wrong.status is Status.MISMATCH


async def test_a_gold_that_is_empty_or_fails_makes_no_zero(store: VerifierClient) -> None:
    for gold in ("SELECT name FROM author WHERE false", "SELECT no_such FROM author", "SELEC", "SELECT 1; SELECT 2"):
        verdict = await verdict_of(store, "SELECT name FROM author", gold)
        assert (verdict.status, verdict.reward) == (Status.UNSCORABLE, None), gold
        assert "gold" in verdict.reason
        assert "no_such" not in verdict.reason


async def test_a_gold_over_the_cap_is_unscorable_and_a_candidate_over_it_wrong(store: VerifierClient) -> None:
    many = "SELECT g FROM author, generate_series(1, 1000) g"
    assert (await verdict_of(store, "SELECT name FROM author", many)).status is Status.UNSCORABLE
    wrong = await verdict_of(store, many, "SELECT name FROM author")
    assert (wrong.status, wrong.reason) == (Status.MISMATCH, "returns more than 200 rows")


async def test_any_of_several_golds_will_do(store: VerifierClient) -> None:
    golds = ["SELECT id FROM author", "SELECT name FROM author", "SELECT no_such FROM author"]
    assert (await verdict_of(store, "SELECT name FROM author", golds)).status is Status.MATCH
    assert (await verdict_of(store, "SELECT title FROM book", golds)).status is Status.MISMATCH


async def test_order_counts_where_the_gold_orders_and_ties_may_swap(store: VerifierClient) -> None:
    gold = "SELECT title FROM book ORDER BY sold DESC"
    assert (
        await verdict_of(store, "SELECT title FROM book ORDER BY sold DESC, title DESC", gold)
    ).status is Status.MATCH
    wrong = await verdict_of(store, "SELECT title FROM book ORDER BY title DESC", gold)
    assert (wrong.status, wrong.reason) == (Status.MISMATCH, "the right rows in another order than asked for")
    assert (await verdict_of(store, "SELECT title FROM book ORDER BY title DESC", gold, False)).status is Status.MATCH
    unordered = "SELECT title FROM book"
    assert (await verdict_of(store, "SELECT title FROM book ORDER BY id DESC", unordered)).status is Status.MATCH
    assert (
        await verdict_of(store, "SELECT title FROM book ORDER BY id DESC", unordered, True)
    ).status is Status.MISMATCH


async def test_replies_are_extracted_and_cut_ones_earn_nothing(store: VerifierClient) -> None:
    draft = f"<think>\n```sql\n{GOLD}\n```"
    items = [
        VerifyItem(item_id="a", reply=f"Here:\n```sql\n{GOLD}\n```", gold=GOLD, finish_reason=FinishReason.STOP),
        VerifyItem(item_id="b", reply=draft, gold=GOLD, finish_reason=FinishReason.LENGTH),
        VerifyItem(item_id="c", reply=f"```sql\n{GOLD}", gold=GOLD, finish_reason=FinishReason.LENGTH),
        VerifyItem(item_id="d", reply="I cannot.", gold=GOLD, finish_reason=FinishReason.STOP),
    ]
    verdicts = (await store.verify(SANDBOX, VerifyRequest(items=items))).verdicts
    assert [(verdict.item_id, verdict.status, verdict.reward) for verdict in verdicts] == [
        ("a", Status.MATCH, 1.0),
        ("b", Status.NO_SQL, 0.0),
        ("c", Status.NO_SQL, 0.0),
        ("d", Status.NO_SQL, 0.0),
    ]


async def test_one_bad_item_costs_no_other(store: VerifierClient) -> None:
    bad = ["SELECT 'a\x00b'", "SELECT '" + "x" * 20_000 + "'", "SELECT 1" + "+1" * 5000, "(" * 8000]
    answer = await store.verify(SANDBOX, verify_sql(GOLD, *bad, GOLD))
    assert [verdict.status for verdict in answer.verdicts[:3]] == [Status.REFUSED] * 3
    assert answer.verdicts[3].reward == 0.0
    assert answer.verdicts[4].status is Status.MATCH


async def test_a_statement_that_runs_too_long_times_out_alone(store: VerifierClient) -> None:
    slow = "SELECT count(*) FROM " + ", ".join(f"book b{i}" for i in range(30))
    answer = await store.verify(SANDBOX, verify_sql(GOLD, slow, GOLD))
    assert [verdict.status for verdict in answer.verdicts] == [Status.TIMEOUT, Status.MATCH]
    assert answer.verdicts[0].reward == 0.0


async def test_concurrent_batches_keep_their_order(store: VerifierClient) -> None:
    statements = [f"SELECT name FROM author WHERE id = {i % 5}" for i in range(64)]
    gold = "SELECT name FROM author WHERE id = 1"
    answers = await asyncio.gather(*(store.verify(SANDBOX, verify_sql(gold, *statements)) for _ in range(8)))
    expected = [Status.MATCH if i % 5 == 1 else Status.MISMATCH for i in range(64)]
    for answer in answers:
        assert [verdict.status for verdict in answer.verdicts] == expected


def kill_with_statements_in_flight(started: psutil.Process) -> None:
    """Kill the server once backends have joined the few processes that it always has."""
    server = started if started.name() == "postgres" else started.children()[0]
    standing = len(server.children())
    while len(server.children()) < standing + 2:
        time.sleep(0.005)
    server.kill()


async def test_a_postgres_killed_under_a_batch_makes_no_wrong_verdict(
    client: VerifierClient, verifier: VerifierProcess
) -> None:
    clusters = verifier.folder / "sandboxes" / "clusters"
    before = set(os.listdir(clusters))
    await client.create_sandbox(sandbox_request("doomed"))
    (folder,) = set(os.listdir(clusters)) - before
    started = psutil.Process(int((clusters / folder / "pid").read_text()))
    # Each takes long enough for the kill to land among them, and none is in the cache.
    joined = ", ".join(f"book b{i}" for i in range(12))
    gold = "SELECT name FROM author WHERE id = 1"
    right = [f"{gold} AND {-1 - i} < (SELECT count(*) FROM {joined})" for i in range(12)]
    batch = asyncio.create_task(client.verify("doomed", verify_sql(gold, *right)))
    await asyncio.to_thread(kill_with_statements_in_flight, started)
    statuses = [verdict.status for verdict in (await batch).verdicts]
    assert set(statuses) <= {Status.MATCH, Status.UNSCORABLE}
    again = await client.verify("doomed", verify_sql(GOLD, GOLD))
    assert again.verdicts[0].status is Status.MATCH
    await client.delete_sandbox("doomed")


async def test_execute_signs_results(store: VerifierClient) -> None:
    answer = await store.execute(
        SANDBOX,
        execute(
            "SELECT name FROM author ORDER BY id",
            "SELECT lower(name) || ' ' FROM author ORDER BY id DESC",
            "SELECT NULL::int FROM author",
            "SELECT now()",
            "SELECT 1 / (id - 1) FROM author",
            "DELETE FROM author",
            repeat=2,
        ),
    )
    names, folded, nulls, clock, failing, refused = answer.results
    assert [execution.seed for execution in names.executions] == ["main", "fewer", "no-books"]
    assert [execution.rows for execution in names.executions] == [3, 2, 1]
    assert names.executions[0].columns == ["name"]
    assert [e.signature for e in names.executions] == [e.signature for e in folded.executions]
    assert len({execution.signature for execution in names.executions}) == 3
    assert all(execution.stable for execution in names.executions)
    assert nulls.executions[0].all_null and not names.executions[0].all_null
    assert not clock.executions[0].stable
    assert failing.executions[0].error == "sql_error: division by zero"
    assert failing.executions[0].rows is None
    assert refused.executions == [] and refused.refused is not None


async def test_explain_shows_both_sides_and_the_first_difference(store: VerifierClient) -> None:
    gold = "SELECT title FROM book ORDER BY price"
    same = await store.explain(SANDBOX, ExplainRequest(gold=gold, sql=gold))
    assert (same.status, same.difference) == (Status.MATCH, "none: the results are equal")
    assert same.gold.columns == ["title"]
    other = await store.explain(SANDBOX, ExplainRequest(gold=gold, sql="SELECT name FROM author"))
    assert other.status is Status.MISMATCH
    assert "row 1 (Alpha)" in other.difference
    assert other.candidate.rows == [["Ada"], ["Bo"], ["Cy"]]
    assert other.gold.rows == [["Alpha"], ["Beta"], ["Gamma"]]
    refused = await store.explain(SANDBOX, ExplainRequest(gold=gold, sql="DELETE FROM book"))
    assert refused.status is Status.REFUSED
    failing = await store.explain(SANDBOX, ExplainRequest(gold="SELECT no_such FROM book", sql=gold))
    assert failing.status is Status.UNSCORABLE


async def test_golds_reach_no_log_line_and_no_metric(store: VerifierClient, verifier: VerifierProcess) -> None:
    secret = "SELECT 'gold_marker_seven', name FROM author"
    await verdict_of(store, "SELECT 1", secret)
    await verdict_of(store, "SELECT 1", secret.replace("name", "no_such_column_seven"))
    answer = await store.send("GET", "/metrics")
    assert "sqlclimb_verdicts_total" in answer.text
    assert "_seven" not in answer.text
    logs = [verifier.log_file, *(verifier.folder / "sandboxes").glob("clusters/*/log")]
    assert len(logs) > 1
    assert all("_seven" not in log.read_text() for log in logs)
