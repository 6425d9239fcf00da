"""What careless evaluators take for an answer matches no gold it differs from: acceptance A2 of issue 3.

Over the given golds, the recipe's, and ours for the shop. A match is let pass only when trying every order of columns
and rows finds the two results the same indeed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from services.author.catalogue import read_catalogue
from services.author.teachers.base import Assignment
from services.author.teachers.grammar.teacher import GrammarTeacher
from services.verifier.resources import inline_bundle
from shared.contracts.verifier import Status, VerifyItem
from shared.domain import Bundle, load_bundle
from shared.settings import REPOSITORY
from tests.verifier.conftest import temporary_folder
from tests.verifier.impostors import impostors
from tests.verifier.in_process import Workshop, workshop
from tests.verifier.oracle import same_result
from tests.verifier.reference import defog_bundle, defog_golds, needs_reference_data, recipe_bundle, recipe_golds

SHOP_GOLDS = 60


def shop_golds(bundle: Bundle) -> list[str]:
    assignment = Assignment(read_catalogue(bundle.schema_sql, bundle.seed_sql), seed=11, golds=SHOP_GOLDS, phrasings=1)

    async def collect() -> list[str]:
        return [proposal.gold async for proposal in GrammarTeacher().propose(assignment)]

    return list(dict.fromkeys(asyncio.run(collect())))


@pytest.fixture(scope="module")
def place() -> Iterator[Workshop]:
    with temporary_folder() as folder, workshop(folder) as opened:
        yield opened


def check(place: Workshop, bundle: Bundle, golds: list[str]) -> None:
    counts: Counter[str] = Counter()
    # Without variants: there only the comparison stands between an impostor and its reward.
    with place.opened(Bundle(bundle.settings, bundle.schema_sql, bundle.seed_sql)) as judged:
        for gold in golds:
            expected = judged.outcome(gold)
            if not expected.rows:
                counts["no row"] += 1
                continue
            made = impostors(gold, len(expected.columns), len(expected.rows), bundle.schema_sql)
            items = [VerifyItem(sql=sql, gold=gold, order_matters=False) for sql in made.values()]
            own, *verdicts = judged.verdicts([VerifyItem(sql=gold, gold=gold), *items])
            assert own.status is Status.MATCH, gold
            for (name, sql), verdict in zip(made.items(), verdicts, strict=True):
                assert verdict.status in (Status.MATCH, Status.MISMATCH), (name, gold, verdict.reason)
                same = verdict.status is Status.MATCH
                assert not same or same_result(expected.rows, judged.outcome(sql).rows), (name, gold)
                counts["the same" if same else "different"] += 1
                if name in ("SELECT 1", "SELECT NULL", "an empty result", "NULL in the gold's shape") and not same:
                    assert verdict.reward == 0.0, (name, gold)
    print(f"{bundle.name}: {dict(counts)}")
    # Most impostors of most golds must differ, else this proves nothing.
    assert counts["different"] > 9 * counts["the same"], counts
    assert counts["no row"] <= len(golds) // 5, counts


@needs_reference_data
@pytest.mark.parametrize("name", ["academic", "broker", "car_dealership", "derm_treatment", "geography", "scholar"])
def test_impostors_of_the_given_golds(place: Workshop, name: str) -> None:
    check(place, inline_bundle(defog_bundle(name)), defog_golds()[name])


@needs_reference_data
def test_impostors_of_the_recipe_s_golds(place: Workshop) -> None:
    check(place, inline_bundle(recipe_bundle()), recipe_golds())


def test_impostors_of_the_shop_s_golds(place: Workshop) -> None:
    bundle = load_bundle(REPOSITORY / "domains" / "shop")
    check(place, bundle, shop_golds(bundle))
