"""The first difference, readable, of each kind, under each profile, with several golds; on a real sandbox over HTTP."""

import pytest

from services.verifier.execution import Failure, Outcome
from services.verifier.gold_plan import GoldPlan
from services.verifier.profiles import RULES
from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.verdicts import GoldResult, gold_result, judge
from shared.clients.base import ServiceProblem
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import ExplainRequest, Explanation, Profile, Status
from tests.verifier.store import GOLD, sandbox_request

SANDBOX = "explained"
BOOKS = "SELECT title, price FROM book"

STANDARD = {
    "none": (BOOKS, BOOKS + " ORDER BY price DESC", "none: the results are equal"),
    "row count, missing": (
        BOOKS,
        BOOKS + " WHERE id > 1",
        "2 rows where the gold has 3: the gold's row 1 (Alpha, 10.00) has no equal in the candidate",
    ),
    "row count, surplus": (
        BOOKS + " WHERE id < 3",
        BOOKS,
        "3 rows where the gold has 2: the candidate's row 3 (Gamma, 30.00) has no equal in the gold",
    ),
    "row count, a duplicate": (
        "SELECT sold FROM book",
        "SELECT DISTINCT sold FROM book",
        "2 rows where the gold has 3: the gold's row 2 (5) has no equal in the candidate",
    ),
    "no row": (BOOKS, BOOKS + " WHERE false", "no row where the gold has 3 rows of 2 columns (title, price)"),
    "row count and columns": (
        BOOKS,
        "SELECT id, name, born FROM author WHERE id < 3",
        "2 rows of 3 columns (id, name, born) where the gold has 3 rows of 2 columns (title, price)",
    ),
    "columns": (
        BOOKS,
        "SELECT title, price, sold FROM book",
        "3 columns (title, price, sold) where the gold has 2 columns (title, price)",
    ),
    "order": (
        BOOKS + " ORDER BY price",
        BOOKS + " ORDER BY price DESC",
        "the right rows in another order: where the gold has row 1 (Alpha, 10.00), the candidate has row 1 "
        "(Gamma, 30.00)",
    ),
    "a value, columns permuted and renamed": (
        BOOKS,
        "SELECT CASE id WHEN 2 THEN 21 ELSE price END AS cost, upper(title) AS name FROM book",
        "in the gold's row 2 (Beta, 20.00) column price is 20.00, in the candidate's row 2 (21, BETA) column cost is "
        "21",
    ),
    "NULL for a value": (
        "SELECT name, rating FROM author",
        "SELECT name, coalesce(rating, 0) FROM author",
        "in the gold's row 3 (Cy, NULL) column rating is NULL, in the candidate's row 3 (Cy, 0) column coalesce is 0",
    ),
    "a single value": (
        "SELECT sum(price) FROM book",
        "SELECT avg(price) FROM book",
        "in the gold's row 1 (60.00) column sum is 60.00, in the candidate's row 1 (20.0000000000000000) column avg is "
        "20.0000000000000000",
    ),
    "a row": (
        "SELECT title, price, sold FROM book WHERE id = 1",
        "SELECT title, price, sold FROM book WHERE id = 3",
        "the gold's row 1 (Alpha, 10.00, 5) has no equal in the candidate, the candidate's row 1 (Gamma, 30.00, 1) "
        "none in the gold",
    ),
    "too much": (BOOKS, "SELECT 1 FROM book, generate_series(1, 1000)", "returns more than 200 rows"),
    "an error": (BOOKS, "SELECT no_such FROM book", 'column "no_such" does not exist'),
    "a variant": (
        GOLD,
        "SELECT name, 30 AS total FROM author WHERE id < 3",
        "on seed fewer: 2 rows where the gold has 1: the gold's row 1 (Ada, 7.00) has no equal in the candidate",
    ),
}  # fmt: skip

OTHERS = {
    (Profile.STRICT, "columns in place"): (
        BOOKS,
        "SELECT price, title FROM book",
        "the gold's row 1 (Alpha, 10.00) has no equal in the candidate, the candidate's row 1 (10.00, Alpha) none in "
        "the gold",
    ),
    (Profile.STRICT, "case"): (
        BOOKS,
        "SELECT upper(title), price FROM book",
        "in the gold's row 1 (Alpha, 10.00) column title is Alpha, in the candidate's row 1 (ALPHA, 10.00) column "
        "upper is ALPHA",
    ),
    (Profile.STRICT, "a tenth of a cent"): (
        BOOKS,
        "SELECT title, price + 0.001 AS price FROM book",
        "in the gold's row 1 (Alpha, 10.00) column price is 10.00, in the candidate's row 1 (Alpha, 10.001) column "
        "price is 10.001",
    ),
    (Profile.RECIPE, "half a cent"): (
        "SELECT 2.675 FROM author WHERE id = 1",
        "SELECT 2.68 FROM author WHERE id = 1",
        "in the gold's row 1 (2.675) column ?column? is 2.675, in the candidate's row 1 (2.68) column ?column? is 2.68",
    ),
    (Profile.RECIPE, "a tie that swaps"): (
        "SELECT title FROM book WHERE id < 3 ORDER BY sold, id",
        "SELECT title FROM book WHERE id < 3 ORDER BY sold, id DESC",
        "the right rows in another order: where the gold has row 1 (Alpha), the candidate has row 1 (Beta)",
    ),
}


@pytest.fixture
async def store(client: VerifierClient) -> VerifierClient:
    await client.create_sandbox(sandbox_request(SANDBOX))
    return client


async def explained(
    client: VerifierClient, gold: str | list[str], sql: str, profile: Profile = Profile.STANDARD
) -> Explanation:
    return await client.explain(SANDBOX, ExplainRequest(gold=gold, sql=sql, profile=profile))


async def test_each_kind_of_difference_in_words(store: VerifierClient) -> None:
    found = {title: (await explained(store, gold, sql)).difference for title, (gold, sql, _) in STANDARD.items()}
    assert found == {title: difference for title, (*_, difference) in STANDARD.items()}


async def test_each_profile_has_its_own(store: VerifierClient) -> None:
    found = {case: (await explained(store, gold, sql, case[0])).difference for case, (gold, sql, _) in OTHERS.items()}
    assert found == {case: difference for case, (*_, difference) in OTHERS.items()}


async def test_with_several_golds_the_closest_is_shown(store: VerifierClient) -> None:
    golds = ["SELECT name FROM author WHERE id = 1", BOOKS, "SELECT title, price, id FROM book"]
    near = await explained(store, golds, "SELECT title, price + 1 AS price FROM book")
    assert (near.gold_index, near.gold.columns, near.seed) == (1, ["title", "price"], "main")
    assert near.difference.startswith("in the gold's row 1 (Alpha, 10.00) column price is 10.00")
    matched = await explained(store, golds, "SELECT id, price, title FROM book")
    assert (matched.status, matched.gold_index) == (Status.MATCH, 2)
    on_variant = await explained(store, [BOOKS, GOLD], "SELECT name, 30 AS total FROM author WHERE id < 3")
    assert (on_variant.gold_index, on_variant.seed, on_variant.gold.rows) == (1, "fewer", [["Ada", "7.00"]])


async def test_no_gold_is_bad_input(store: VerifierClient) -> None:
    with pytest.raises(ServiceProblem, match="gold"):
        await store.explain(SANDBOX, ExplainRequest.model_construct(gold=[], sql="SELECT 1"))


def gold(outcome: Outcome) -> dict[str, GoldResult]:
    return {MAIN_SEED: gold_result(RULES[Profile.STANDARD], GoldPlan("SELECT"), outcome, None)}


def test_a_gold_lost_to_the_infrastructure_might_have_matched() -> None:
    names = Outcome(("a",), [("ada",)], [("Ada",)], [25])
    other = Outcome(("a",), [("bo",)], [("Bo",)], [25])
    lost = Outcome(failure=Failure.INFRASTRUCTURE, reason="the sandbox's Postgres failed: gone")
    faulty = Outcome(failure=Failure.SQL_ERROR, reason="no such column")
    golds = {"names": gold(names), "other": gold(other), "lost": gold(lost), "faulty": gold(faulty)}

    def status(*acceptable: str) -> Status:
        rules = RULES[Profile.STANDARD]
        return judge(rules, [MAIN_SEED], [golds[name] for name in acceptable], lambda _: names).status

    assert status("names", "lost") is status("lost", "names") is Status.MATCH
    assert status("other", "lost") is status("lost", "other") is status("lost") is Status.UNSCORABLE
    assert status("other", "faulty") is Status.MISMATCH
    assert status("faulty") is Status.UNSCORABLE
