"""Golds and holdout questions reach nothing that a policy is trained on or prompted with; secrets reach no log."""

import asyncio
from pathlib import Path

import httpx
import psycopg
import pytest

from cli.stack.home import StackHome
from cli.stack.programs import database_dsn
from shared.auth import read_token
from shared.clients.author import AuthorClient
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import Row
from shared.contracts.tasks import PrivilegedTask, Split
from tests.stack import StackHandle

SHORTEST_TELLING_GOLD = 40
"""Characters; a shorter gold may be part of an innocent text."""


@pytest.fixture(scope="module")
def tasks(stack: StackHandle) -> list[PrivilegedTask]:
    async def fetch() -> list[PrivilegedTask]:
        async with AuthorClient(stack.urls["author"], stack.token("admin")) as client:
            found = (await client.tasks("shop", privileged=True)).tasks
        return [task for task in found if isinstance(task, PrivilegedTask)]

    return asyncio.run(fetch())


def references(tasks: list[PrivilegedTask]) -> list[str]:
    golds = [task.privileged.reference for task in tasks]
    return [gold for gold in golds if isinstance(gold, str) and len(gold) >= SHORTEST_TELLING_GOLD]


def files_of(stack: StackHandle, *folders: str) -> list[Path]:
    found = [path for folder in folders for path in (stack.home / folder).rglob("*") if path.is_file()]
    assert found, folders
    return found


def test_no_file_of_a_run_holds_a_gold_or_a_holdout_question(stack: StackHandle, tasks: list[PrivilegedTask]) -> None:
    golds = [text.encode() for text in references(tasks)]
    questions = [task.question.encode() for task in tasks if task.split == Split.HOLDOUT]
    assert golds
    assert questions
    results = (
        stack.home / "results"
    )  # for people: a delta lists the questions of tasks that flipped, which no run reads
    for path in files_of(stack, "policies", "artifacts", "checkpoints", "logs", "results"):
        content = path.read_bytes()
        leaked = [text for text in (golds if results in path.parents else [*golds, *questions]) if text in content]
        assert not leaked, (path, leaked[:3])


def test_prompts_hold_the_tasks_own_question_and_no_gold(stack: StackHandle, tasks: list[PrivilegedTask]) -> None:
    golds = references(tasks)
    question_of = {task.id: task.question for task in tasks}

    async def fetch() -> list[Row]:
        async with RolloutClient(stack.urls["rollout"], stack.token("admin")) as client:
            return [row for what in ("base", "band", "after") async for row in client.rows(f"smoke-shop-0-{what}")]

    rows = asyncio.run(fetch())
    assert rows
    for row in rows:
        assert row.messages[-1].content == question_of[row.task_id]
        assert not [gold for gold in golds for message in row.messages if gold in message.content]


def test_training_batches_hold_train_tasks_of_the_other_half_only(
    stack: StackHandle, tasks: list[PrivilegedTask]
) -> None:
    train = {task.id for task in tasks if task.split == Split.TRAIN and task.provenance.fold == 1}
    with psycopg.connect(dsn(stack)) as connection:
        found = connection.execute(
            "SELECT task_id FROM rollout.groups JOIN rollout.samplings USING (sampling_id) WHERE purpose = 'batch'"
        ).fetchall()
    assert found
    assert {row[0] for row in found} <= train


def test_no_secret_is_in_a_log(stack: StackHandle) -> None:
    home = StackHome(stack.home)
    state = home.load()
    assert state is not None
    names = ("admin", "author", "rollout", "trainer", "golds")
    secrets = [state.database_password, home.ray_token_file.read_text()]
    secrets += [read_token(home.tokens_file, name) for name in names]
    for path in files_of(stack, "logs"):
        content = path.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in content], path


def test_metrics_hold_no_question_and_no_gold(stack: StackHandle, tasks: list[PrivilegedTask]) -> None:
    texts = [*references(tasks), *(task.question for task in tasks)]
    for service, url in stack.urls.items():
        if service in ("postgres", "ray", "engine"):
            continue
        exported = httpx.get(f"{url}/metrics").text
        assert not [text for text in texts if text in exported], service


def dsn(stack: StackHandle) -> str:
    state = StackHome(stack.home).load()
    assert state is not None
    return database_dsn(state)
