"""What sets the profiles apart: each clause of the recipe's rule, strictness, rewards; then over HTTP."""

from collections.abc import Sequence

import pytest

from services.verifier.execution import Outcome
from services.verifier.gold_plan import GoldPlan, plan_gold
from services.verifier.profiles import RULES
from services.verifier.profiles.recipe import extract
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import FinishReason, Profile, SandboxRequest, Status, Verdict, VerifyItem, VerifyRequest
from tests.verifier.reference import needs_reference_data, recipe_bundle, recipe_golds
from tests.verifier.store import GOLD, sandbox_request

TEXT, NUMERIC, FLOAT, BOOL, INTEGER = 25, 1700, 701, 16, 23
Texts = Sequence[tuple[str | None, ...]]


def outcome(oids: Sequence[int], rows: Texts) -> Outcome:
    return Outcome(columns=tuple(f"c{i}" for i in range(len(oids))), texts=rows, oids=oids)


def match(
    profile: Profile,
    oids: Sequence[int],
    gold: Texts,
    candidate: Texts,
    gold_sql: str = "SELECT a FROM t",
    order_matters: bool | None = None,
    candidate_oids: Sequence[int] | None = None,
) -> bool:
    rules = RULES[profile]
    expected, found = outcome(oids, gold), outcome(candidate_oids or oids, candidate)
    groups = rules.tie_groups(plan_gold(gold_sql), expected, order_matters)
    return rules.compare(rules.table(expected), rules.table(found), groups).equal


def strict(*arguments: object, **options: object) -> bool:
    return match(Profile.STRICT, *arguments, **options)  # type: ignore[arg-type]


def recipe(*arguments: object, **options: object) -> bool:
    return match(Profile.RECIPE, *arguments, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- strict


def test_strict_wants_the_gold_s_columns_where_they_stand() -> None:
    gold = [("Ada", "1"), ("Bo", "2")]
    assert strict([TEXT, NUMERIC], gold, gold[::-1])
    assert not strict([TEXT, NUMERIC], gold, [row[::-1] for row in gold], candidate_oids=[NUMERIC, TEXT])
    assert not strict([TEXT, NUMERIC], gold, [("ada", "1"), ("Bo", "2")])
    assert not strict([TEXT, NUMERIC], gold, [("Ada ", "1"), ("Bo", "2")])


def test_strict_numbers_are_exact_and_float_columns_allow_for_noise() -> None:
    assert strict([NUMERIC], [("1.50",)], [("1.5",)])
    assert not strict([NUMERIC], [("1000000.000",)], [("1000000.001",)])
    assert strict([FLOAT], [("1000000",)], [("1000000.9",)])
    assert not strict([FLOAT], [("1000000",)], [("1000001.1",)])
    assert strict([NUMERIC], [("0.3",)], [("0.30000000000000004",)], candidate_oids=[FLOAT])
    assert not strict([FLOAT], [("0",)], [("1e-300",)])
    many = [(str(k), str(k / 3)) for k in range(200)]
    noisy = [(name, str(float(value) * (1 + 1e-9))) for name, value in many]
    assert strict([NUMERIC, FLOAT], many, noisy[::-1])
    assert not strict([NUMERIC, FLOAT], many, [*noisy[1:], ("0", "1")])


def test_strict_counts_the_gold_s_order_also_where_the_item_does_not_and_lets_ties_swap() -> None:
    ordered = "SELECT c0, c1 FROM t ORDER BY c0"
    gold = [("1", "x"), ("1", "y"), ("2", "z")]
    for order_matters in (None, False, True):
        assert strict([NUMERIC, TEXT], gold, [gold[1], gold[0], gold[2]], ordered, order_matters)
        assert not strict([NUMERIC, TEXT], gold, gold[::-1], ordered, order_matters)
    assert strict([NUMERIC, TEXT], gold, gold[::-1])
    assert not strict([NUMERIC, TEXT], gold, gold[::-1], order_matters=True)


def test_tie_groups_are_by_the_keys_themselves_not_by_folded_text() -> None:
    gold = [("a",), ("A",), ("b",)]
    swapped = [("A",), ("a",), ("b",)]
    assert not strict([TEXT], gold, swapped, "SELECT c0 FROM t ORDER BY c0")
    plan = GoldPlan("", sort_keys=(0,), ordered=True)
    groups = RULES[Profile.STANDARD].tie_groups(plan, outcome([TEXT], gold), None)
    assert groups == [0, 1, 2]
    same_number = RULES[Profile.STANDARD].tie_groups(plan, outcome([NUMERIC], [("1.0",), ("1.00",), ("2",)]), None)
    assert same_number == [0, 0, 1]


# ------------------------------------------------------------------------------------------------------------- recipe


@pytest.mark.parametrize(
    "gold, candidate, oids, same",
    [
        ("0.125", "0.12", (NUMERIC, NUMERIC), True),
        ("2.675", "2.68", (NUMERIC, NUMERIC), False),  # half cents, as floats have them
        ("0.004", "0", (NUMERIC, NUMERIC), True),
        ("-0.001", "0.001", (NUMERIC, NUMERIC), True),
        ("1000", "$1,000.00", (INTEGER, TEXT), True),
        ("1000", " 1e3 ", (INTEGER, TEXT), True),
        ("nan", "NaN", (TEXT, FLOAT), True),
        ("Ada ", "aDA", (TEXT, TEXT), True),
        ("a b", "ab", (TEXT, TEXT), False),
        ("t", "1", (BOOL, INTEGER), False),
        ("t", "t", (BOOL, TEXT), False),
        (None, None, (TEXT, INTEGER), True),
        (None, "0", (INTEGER, INTEGER), False),
        (None, "", (TEXT, TEXT), False),
        ("2024-01-01", "2024-01-01 00:00:00", (1082, 1114), False),
        ("2024-01-01 10:00:00.5", "2024-01-01 10:00:00.500000", (1114, TEXT), True),
        ("10:00:00+02", "10:00:00+02:00", (1266, TEXT), True),
        ("P1DT12H", "1.5", (1186, NUMERIC), True),
        ("P1Y", "365", (1186, NUMERIC), True),
        ("P1Y", "P12M", (1186, 1186), False),
        ("PT1M", "PT2M", (1186, 1186), True),
        ("{1.001,NULL}", "{1,NULL}", (1231, 1007), True),
        ("{1,2}", "{2,1}", (1007, 1007), False),
        ('{"a": 1}', '{"a": 1.0}', (3802, 3802), False),
    ],
)
def test_the_recipe_s_values(gold: str | None, candidate: str | None, oids: tuple[int, int], same: bool) -> None:
    assert recipe([oids[0]], [(gold,)], [(candidate,)], candidate_oids=[oids[1]]) is same


def test_the_recipe_permutes_up_to_five_columns_all_rows_alike() -> None:
    row = ("1", "2", "3", "4", "5")
    numbers = [INTEGER] * 5
    assert recipe(numbers, [row], [row[::-1]])
    assert not recipe([*numbers, INTEGER], [(*row, "6")], [("6", *row)])
    assert recipe([*numbers, INTEGER], [(*row, "6")], [(*row, "6")])
    assert not recipe([INTEGER] * 2, [("1", "2"), ("3", "4")], [("1", "2"), ("4", "3")])
    assert not recipe([INTEGER] * 2, [("1", "2")], [("1",)], candidate_oids=[INTEGER])


def test_the_recipe_counts_duplicates_and_takes_two_empty_results_as_equal() -> None:
    assert not recipe([INTEGER], [("1",), ("1",), ("2",)], [("1",), ("2",), ("2",)])
    assert not recipe([INTEGER], [("1",), ("1",)], [("1",)])
    assert recipe([INTEGER], [], [])


def test_the_recipe_orders_by_two_words_anywhere_and_lets_no_tie_swap() -> None:
    gold = [("1", "x"), ("1", "y")]
    columns = [INTEGER, TEXT]
    for sql in ("SELECT a FROM t ORDER BY a", "SELECT rank() OVER (ORDER  BY a) FROM t", "SELECT 'order by' FROM t"):
        for order_matters in (None, True, False):
            assert not recipe(columns, gold, gold[::-1], sql, order_matters)
            assert recipe(columns, gold, gold, sql, order_matters)
            assert recipe(columns, gold, [row[::-1] for row in gold], sql, candidate_oids=columns[::-1])
    assert recipe(columns, gold, gold[::-1], "SELECT a FROM t_order_by", order_matters=True)


def test_in_a_sequence_the_recipe_takes_true_for_one() -> None:
    assert recipe([BOOL], [("t",), ("f",)], [("1",), ("0",)], "SELECT a FROM t ORDER BY a", candidate_oids=[INTEGER])
    assert not recipe([BOOL], [("t",), ("f",)], [("1",), ("0",)], candidate_oids=[INTEGER])


@pytest.mark.parametrize(
    "reply, sql",
    [
        ("```sql\nSELECT 1;\n```", "SELECT 1"),
        ("```SQL SELECT 1```", "SELECT 1"),
        ("```\nSELECT 1\n``` then ```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT 1\n```\n```\n| a |\n```", None),
        ("```python\nSELECT 1\n```", None),
        ("```sql\n-- a\nSELECT 1\n```", None),
        ("```sql\n(SELECT 1)\n```", None),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("I select the rows", "select the rows"),
        ("with care: SELECT 1", "with care: SELECT 1"),
        ("SELECT 1;;", "SELECT 1"),
        ("SELECT 1; SELECT 2", None),
        ("SELECT ';'", None),
        ("<think>SELECT 1</think>SELECT 2", "SELECT 2"),
        ("<think>```sql\nSELECT 1\n```", "SELECT 1"),
        ("<THINK>SELECT 1</THINK>", "SELECT 1</THINK>"),
        ("SELECT 1</think>SELECT 2", "SELECT 1</think>SELECT 2"),
        ("<think>a</think> <think>b</think> SELECT 3", "SELECT 3"),
        ("DELETE FROM t", None),
        ("", None),
    ],
)
def test_the_recipe_s_extraction(reply: str, sql: str | None) -> None:
    for finish_reason in FinishReason:
        assert extract(reply, finish_reason).sql == sql


@pytest.mark.parametrize("profile", Profile)
def test_rewards(profile: Profile) -> None:
    reward = RULES[profile].reward
    assert (reward(Status.MATCH, True), reward(Status.MATCH, False), reward(Status.MISMATCH, True)) == (1.0, 1.0, 0.1)
    assert reward(Status.MISMATCH, False) == (0.1 if profile is Profile.RECIPE else 0.0)
    assert reward(Status.UNSCORABLE, True) is None
    others = set(Status) - {Status.MATCH, Status.MISMATCH, Status.UNSCORABLE}
    assert {reward(status, True) for status in others} == {0.0}


# ---------------------------------------------------------------------------------------------------------- over HTTP


async def verdicts(client: VerifierClient, sandbox_id: str, profile: Profile, items: list[VerifyItem]) -> list[Verdict]:
    return (await client.verify(sandbox_id, VerifyRequest(profile=profile, items=items))).verdicts


async def test_the_profile_of_a_request_decides(client: VerifierClient) -> None:
    await client.create_sandbox(sandbox_request("profiles"))
    items = [
        VerifyItem(sql=GOLD, gold=GOLD),
        VerifyItem(sql="SELECT 1", gold=GOLD),
        VerifyItem(sql="SELECT name, 30 FROM author WHERE id < 3", gold=GOLD),  # right on the main seed alone
        VerifyItem(sql="SELECT id FROM author WHERE false", gold="SELECT name FROM author WHERE id > 9"),
        VerifyItem(sql="SELECT upper(name) FROM author", gold="SELECT name FROM author"),
        VerifyItem(sql="SELECT title FROM book ORDER BY id", gold="SELECT title FROM book ORDER BY sold DESC, id DESC"),
        VerifyItem(sql="SELECT g FROM author, generate_series(1, 300) g", gold=GOLD),
        VerifyItem(sql="SELECT no_such FROM author", gold=GOLD),
        VerifyItem(reply=f"<think>```sql\n{GOLD}\n```", gold=GOLD, finish_reason=FinishReason.LENGTH),
    ]
    table = {
        profile: [
            (verdict.status.value, verdict.reward) for verdict in await verdicts(client, "profiles", profile, items)
        ]
        for profile in Profile
    }
    match, wrong, nothing = ("match", 1.0), ("mismatch", 0.1), ("no_sql", 0.0)
    idle, empty, error = ("mismatch", 0.0), ("unscorable", None), ("sql_error", 0.0)
    assert table[Profile.STANDARD] == [match, idle, wrong, empty, match, wrong, wrong, error, nothing]
    assert table[Profile.STRICT] == [match, idle, wrong, empty, wrong, wrong, wrong, error, nothing]
    assert table[Profile.RECIPE] == [match, wrong, match, match, match, wrong, wrong, error, match]


@needs_reference_data
async def test_the_recipe_s_tasks(client: VerifierClient) -> None:
    """Its golds match themselves; what a model typically gets wrong or words otherwise is judged as the recipe does."""
    await client.create_sandbox(SandboxRequest(sandbox_id="recipe-tasks", run_id="tests", bundle=recipe_bundle()))
    golds = recipe_golds()
    assert len(golds) == 12
    items = [VerifyItem(reply=f"```sql\n{gold}\n```", gold=gold) for gold in golds]
    assert {v.status for v in await verdicts(client, "recipe-tasks", Profile.RECIPE, items)} == {Status.MATCH}
    unordered = [VerifyItem(sql=f"SELECT * FROM ({gold}) x ORDER BY 1 DESC", gold=gold) for gold in golds]
    found = await verdicts(client, "recipe-tasks", Profile.RECIPE, unordered)
    # Its known fault: an ORDER BY that nobody asked for counts. The three scalars have one row.
    assert [v.status is Status.MATCH for v in found].count(True) == 3
    standard = await verdicts(client, "recipe-tasks", Profile.STANDARD, [
        item.model_copy(update={"order_matters": False}) for item in unordered
    ])  # fmt: skip
    assert {v.status for v in standard} == {Status.MATCH}
    constant = await verdicts(client, "recipe-tasks", Profile.RECIPE, [VerifyItem(sql="SELECT 1", gold=golds[0])])
    assert (constant[0].status, constant[0].reward) == (Status.MISMATCH, 0.1)
    await client.delete_sandbox("recipe-tasks")
