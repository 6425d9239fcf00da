"""A small domain, tasks over it, and a judge that knows only equality of text: no server is needed to train."""

import pytest
import torch

from services.trainer.small_policy.settings import Architecture, Recipe
from services.trainer.small_policy.tasks import WarmStart, choose
from shared.contracts.tasks import Archetype, Difficulty, Privileged, PrivilegedTask, Provenance
from shared.contracts.verifier import Status, VerifyItem
from shared.domain import Bundle, DomainSettings
from shared.ids import fold_of, gold_key, split_of, task_id
from shared.sql import normalise

SCHEMA = "CREATE TABLE ships (ship_id int, name text, tons int); CREATE TABLE ports (port_id int, country text);"
COLUMNS = {"ships": ["ship_id", "name", "tons"], "ports": ["port_id", "country"]}
TINY = Recipe(
    architecture=Architecture(hidden=32, mlp=64, layers=2, heads=2, key_value_heads=1, head_dim=16, vocabulary=400),
    batch=16,
    target=0.0,
    measure_from=2,
    measure_every=2,
    slice_tasks=6,
    k=2,
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny tensors: a second thread only waits."""
    torch.set_num_threads(1)


def make_task(question: str, gold: str, archetype: Archetype = Archetype.FILTER) -> PrivilegedTask:
    """A task as the author would give it."""
    key = normalise(gold)
    place = Provenance(
        teacher="grammar",
        authoring_id="a",
        domain="harbour",
        domain_digest="0" * 64,
        gold_key=gold_key(key),
        fold=fold_of(gold_key(key)),
    )
    return PrivilegedTask(
        id=task_id(question),
        question=question,
        archetype=archetype,
        difficulty=Difficulty.EASY,
        style="plain",
        order_matters=False,
        split=split_of(key),
        provenance=place,
        privileged=Privileged(reference=gold),
    )


@pytest.fixture
def bundle() -> Bundle:
    """Two tables, no rows."""
    return Bundle(DomainSettings(name="harbour"), SCHEMA, "")


@pytest.fixture
def tasks() -> list[PrivilegedTask]:
    """150 tasks over both splits and folds."""
    return [
        make_task(
            f"List the {column.replace('_', ' ')} of {table} numbered above {number}.",
            f"SELECT {column} FROM {table} WHERE {columns[0]} > {number}",
        )
        for table, columns in COLUMNS.items()
        for column in columns
        for number in range(30)
    ]


@pytest.fixture
def warm_start(tasks: list[PrivilegedTask]) -> WarmStart:
    """The half to learn and the slice."""
    return choose(tasks, TINY.slice_tasks, seed=0)


async def text_judge(items: list[VerifyItem]) -> list[Status]:
    """A match is the gold's own text."""
    return [Status.MATCH if item.reply == item.gold else Status.MISMATCH for item in items]
