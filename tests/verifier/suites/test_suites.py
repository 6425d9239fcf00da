"""Suites over HTTP: a real verifier, a real Postgres, a schema with every kind of constraint."""

import asyncio
import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from shared.clients.base import ServiceProblem
from shared.clients.verifier import VerifierClient
from shared.contracts.suites import MutationKind, SuiteProgress, SuiteRequest, SuiteResult
from shared.contracts.verifier import BundleSource, SandboxRequest, Status, VerifyItem, VerifyRequest
from tests.verifier.conftest import VerifierProcess
from tests.verifier.store import STORE

pytestmark = pytest.mark.slow

SCHEMA = """
CREATE TYPE mood AS ENUM ('calm', 'loud');
CREATE DOMAIN percent AS int CHECK (VALUE BETWEEN 0 AND 100);
CREATE SCHEMA staff;
CREATE TABLE staff.person (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  "Full Name" varchar(12) NOT NULL UNIQUE,
  boss int REFERENCES staff.person,
  hired date NOT NULL, quit date CHECK (quit >= hired), made_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE shop (country char(2), city text, PRIMARY KEY (country, city), mood mood NOT NULL, share percent);
CREATE TABLE sale (
  id serial PRIMARY KEY,
  country char(2) NOT NULL, city text NOT NULL, FOREIGN KEY (country, city) REFERENCES shop,
  seller int REFERENCES staff.person,
  sold_on date NOT NULL, amount numeric(8, 2) NOT NULL CHECK (amount > 0),
  cents bigint GENERATED ALWAYS AS (amount * 100) STORED,
  tags text[] NOT NULL DEFAULT '{}', note jsonb,
  EXCLUDE (amount WITH =) WHERE (seller IS NULL)
);
"""
SEED = """
INSERT INTO staff.person ("Full Name", boss, hired, quit) VALUES
  ('Ann', NULL, '2020-01-31', NULL), ('Ben', 1, '2021-03-01', '2022-03-01'), ('O''Neil', 1, '2021-06-30', NULL);
INSERT INTO shop VALUES ('de', 'Bonn', 'calm', 10), ('de', 'Ulm', 'loud', NULL), ('fr', 'Lyon', 'calm', 90);
INSERT INTO sale (country, city, seller, sold_on, amount, tags, note) VALUES
  ('de', 'Bonn', 1, CURRENT_DATE - 3, 10.00, '{new}', '{"a": 1}'),
  ('de', 'Bonn', 2, CURRENT_DATE - 40, 20.00, '{}', NULL),
  ('fr', 'Lyon', 2, '2023-05-01', 20.00, '{}', NULL), ('fr', 'Lyon', NULL, '2023-06-30', 5.50, '{}', NULL);
"""
BUNDLE = BundleSource(name="awkward", schema_sql=SCHEMA, seed_sql=SEED)
GOLDS = [
    'SELECT p."Full Name", sum(s.amount) FROM sale s JOIN staff.person p ON p.id = s.seller GROUP BY p."Full Name"',
    "SELECT city, count(*) FROM sale WHERE amount >= 8 GROUP BY city ORDER BY 2 DESC",
    "SELECT count(*) FROM sale WHERE sold_on >= CURRENT_DATE - INTERVAL '30 days'",
    "SELECT country, city FROM shop WHERE mood = 'calm' AND share > 5",
]


Suite = tuple[list[SuiteProgress], SuiteResult]


def suite_request(**changes: object) -> SuiteRequest:
    request = SuiteRequest(bundle=BUNDLE, golds=GOLDS, variants=3, pool=8, seed=5)
    return request.model_copy(update=changes)


async def make(client: VerifierClient, request: SuiteRequest) -> Suite:
    *progress, result = [line async for line in client.suite(request)]
    assert isinstance(result, SuiteResult)
    return [line for line in progress if isinstance(line, SuiteProgress)], result


@pytest.fixture(scope="module")
def suite(verifier: VerifierProcess) -> Suite:
    """Made once: it takes seconds."""

    async def made() -> Suite:
        async with verifier.client() as client:
            return await make(client, suite_request())

    return asyncio.run(made())


async def verdicts(client: VerifierClient, bundle: BundleSource, items: list[VerifyItem]) -> list[Status]:
    sandbox = await client.create_sandbox(SandboxRequest(run_id="suites", bundle=bundle))
    try:
        answer = await client.verify(sandbox.sandbox_id, VerifyRequest(items=items))
    finally:
        await client.delete_sandbox(sandbox.sandbox_id)
    return [verdict.status for verdict in answer.verdicts]


async def test_variants_load_under_every_constraint_and_find_wrong_queries_out(
    client: VerifierClient, suite: Suite
) -> None:
    progress, result = suite
    assert progress[0].stage == "mutants"
    assert {line.stage for line in progress} == {"mutants", "suite", "pool", "check"}
    assert result.golds == len(GOLDS) and result.skipped == []
    tallies = result.by_mutation.values()
    assert sum(tally.mutants for tally in tallies) == result.mutants
    main, after = sum(tally.main for tally in tallies), sum(tally.after for tally in tallies)
    assert after == len(result.unkilled) < main == sum(tally.before for tally in tallies)
    assert sum(variant.kills for variant in result.variants) == main - after
    whole = BUNDLE.model_copy(update={"variants": {variant.name: variant.sql for variant in result.variants}})
    chance = [
        VerifyItem(sql=GOLDS[1].replace("amount >= 8", "amount > 8"), gold=GOLDS[1]),
        VerifyItem(sql=GOLDS[3].replace("share > 5", "share >= 5"), gold=GOLDS[3]),
    ]
    assert set(await verdicts(client, BUNDLE, chance)) == {Status.MATCH}
    assert set(await verdicts(client, whole, chance)) == {Status.MISMATCH}
    # Unkilled mutants are those that verification calls right; golds stay scorable on every seed.
    assert set(await verdicts(client, whole, [VerifyItem(sql=gold, gold=gold) for gold in GOLDS])) == {Status.MATCH}
    unkilled = [VerifyItem(sql=mutant.sql, gold=mutant.gold) for mutant in result.unkilled]
    assert set(await verdicts(client, whole, unkilled)) == {Status.MATCH}


async def test_the_same_seed_makes_the_same_variants_which_people_can_read(
    client: VerifierClient, suite: Suite
) -> None:
    _, first = suite
    _, again = await make(client, suite_request())
    assert first == again
    text = first.variants[0].sql
    assert text.startswith("-- Made by `sqlclimb domain variants` (seed 5)")
    assert 'INSERT INTO staff.person (id, "Full Name", boss, hired, quit) OVERRIDING SYSTEM VALUE VALUES\n(' in text
    assert "INSERT INTO sale (" in text and "cents" not in text and "made_at" not in text
    assert any("CURRENT_DATE" in variant.sql for variant in first.variants)


async def test_variants_that_the_bundle_has_are_part_of_the_suite(client: VerifierClient, suite: Suite) -> None:
    _, first = suite
    kept = BUNDLE.model_copy(update={"variants": {variant.name: variant.sql for variant in first.variants}})
    _, second = await make(client, suite_request(bundle=kept, pool=1))
    tallies = second.by_mutation.values()
    assert sum(tally.before for tally in tallies) == len(first.unkilled)
    assert second.by_mutation[MutationKind.SORT].main == first.by_mutation[MutationKind.SORT].main


async def test_golds_that_no_verdict_can_rest_on_are_left_out_with_a_reason(client: VerifierClient) -> None:
    golds = ["SELEC", "SELECT pg_sleep(1)", "SELECT no_such FROM sale", "SELECT city FROM shop WHERE false", GOLDS[3]]
    _, result = await make(client, suite_request(golds=golds, pool=1))
    assert result.golds == 1
    reasons = {skipped.gold: skipped.reason for skipped in result.skipped}
    assert list(map(bool, (reasons[gold] for gold in golds[:4]))) == [True] * 4
    assert "no row" in reasons[golds[3]]
    assert "fails" in reasons[golds[2]]


@pytest.mark.parametrize(
    "bundle, message",
    [
        (BUNDLE.model_copy(update={"seed_sql": "INSERT INTO nowhere VALUES (1)"}), "seed `main` does not load"),
        (BUNDLE.model_copy(update={"schema_sql": SCHEMA + SEED, "seed_sql": ""}), "schema.sql inserts rows"),
        (BUNDLE.model_copy(update={"variants": {"main": SEED}}), "may not be called `main`"),
    ],
)
async def test_a_faulty_bundle_is_refused_with_the_fix(
    client: VerifierClient, bundle: BundleSource, message: str
) -> None:
    with pytest.raises(ServiceProblem, match=message) as refusal:
        await make(client, suite_request(bundle=bundle))
    assert refusal.value.problem.status == 422


async def test_the_call_needs_the_gold_scope(verifier: VerifierProcess) -> None:
    async with VerifierClient(verifier.url, verifier.token("sampler")) as client:
        with pytest.raises(ServiceProblem) as refusal:
            await make(client, suite_request())
    assert refusal.value.problem.status == 403


async def test_one_at_a_time_and_a_caller_that_leaves_ends_it_without_a_trace(verifier: VerifierProcess) -> None:
    folder = verifier.folder / "sandboxes"
    async with verifier.client() as client, verifier.client() as second:
        kept = {path for part in ("clusters", "templates") for path in (folder / part).iterdir()}
        processes = len(psutil.Process(verifier.process.pid).children(recursive=True))
        async for line in client.suite(suite_request(pool=500)):
            if isinstance(line, SuiteProgress) and line.stage == "pool":
                with pytest.raises(ServiceProblem, match="being made already") as refusal:
                    await make(second, suite_request())
                assert refusal.value.problem.status == 429
                break
        await client.__aexit__(None, None, None)  # the connection is cut
        for _ in range(200):
            left = {path for part in ("clusters", "templates") for path in (folder / part).iterdir()}
            if left == kept and len(psutil.Process(verifier.process.pid).children(recursive=True)) <= processes:
                break
            await asyncio.sleep(0.05)
        assert left == kept
        _, result = await make(second, suite_request(pool=1))
        assert result.golds == len(GOLDS)


async def test_golds_and_mutants_reach_no_log_line_and_no_metric(
    client: VerifierClient, verifier: VerifierProcess
) -> None:
    marked = "SELECT 'suite_marker_nine', name FROM author WHERE rating > 3.25"
    await make(client, SuiteRequest(bundle=STORE.model_copy(update={"variants": {}}), golds=[marked], pool=2))
    metrics = await client.send("GET", "/metrics")
    logs = [verifier.log_file, *(verifier.folder / "sandboxes").glob("clusters/*/log")]
    assert all("_marker_nine" not in text for text in [metrics.text, *(log.read_text() for log in logs)])


async def command(verifier: VerifierProcess, home: Path, *arguments: str) -> tuple[int, str]:
    """`sqlclimb …` against this verifier."""
    environment = {
        **os.environ,
        "SQLCLIMB_HOME": str(home),
        "SQLCLIMB_VERIFIER_URL": verifier.url,
        "SQLCLIMB_TOKEN": verifier.token(),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_the_command_writes_seeds_and_a_private_report(verifier: VerifierProcess, tmp_path: Path) -> None:
    folder = tmp_path / "domains" / "awkward"
    (folder / "variants").mkdir(parents=True)
    (folder / "domain.toml").write_text('name = "awkward"\n')
    (folder / "schema.sql").write_text(SCHEMA)
    (folder / "seed.sql").write_text(SEED)
    (folder / "variants" / "suite-9.sql").write_text("made earlier, and no SQL")
    (folder / "variants" / "own.sql").write_text(SEED)
    golds = tmp_path / "golds.jsonl"
    golds.write_text("".join(json.dumps({"gold": gold}) + "\n" for gold in GOLDS))
    options = ("domain", "variants", "awkward", "--golds", str(golds), "--pool", "2", "--variants", "2", "--seed", "5")
    code, output = await command(verifier, tmp_path, *options)
    assert code == 0, output
    assert sorted(path.name for path in (folder / "variants").iterdir()) == ["own.sql", "suite-1.sql", "suite-2.sql"]
    report = tmp_path / "results" / "variants-awkward.json"
    assert report.stat().st_mode & 0o777 == 0o600
    result = SuiteResult.model_validate_json(report.read_text())
    assert f"{len(result.unkilled)} mutants are equivalent to their gold or unkilled" in output
    assert "survive suite now" in output
    assert not any(gold in output for gold in GOLDS)
    golds.write_text('{"question": "?"}\n')
    code, output = await command(verifier, tmp_path, *options)
    assert (code, "--golds line 1" in output) == (2, True)
