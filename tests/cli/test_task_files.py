"""Files of tasks: every format reads what it writes, and no gold leaves unasked."""

import json
from pathlib import Path

import pytest

from cli.context import UsageError
from cli.task_files import Format, read_tasks, write_tasks
from cli.task_files.defog import expanded
from shared.contracts.tasks import (
    Archetype,
    Difficulty,
    ImportedTask,
    Privileged,
    PrivilegedTask,
    Provenance,
    Split,
    Task,
)
from shared.ids import task_id

PROVENANCE = Provenance(
    teacher="grammar", authoring_id="a-1", domain="shop", domain_digest="0" * 64, gold_key="1" * 16, fold=0
)


def _task(question: str, split: Split, reference: str | list[str]) -> PrivilegedTask:
    return PrivilegedTask(
        id=task_id(question),
        question=question,
        archetype=Archetype.FILTER,
        difficulty=Difficulty.EASY,
        style="plain",
        order_matters=False,
        split=split,
        provenance=PROVENANCE,
        privileged=Privileged(reference=reference),
    )


TASKS: list[Task] = [
    _task("How many customers are there?", Split.TRAIN, "SELECT count(*) FROM customers"),
    _task(
        "Wie viele „Kunden“ gibt es?",
        Split.HOLDOUT,
        ["SELECT count(*) FROM customers", "SELECT count(1) FROM customers"],
    ),
]


@pytest.mark.parametrize(
    ("form", "name"),
    [(Format.JSONL, "t.jsonl"), (Format.RECIPE, "t.jsonl"), (Format.PARQUET, "t.parquet"), (Format.DATASETS, "t")],
)
def test_a_format_reads_what_it_writes_and_holds_golds_only_where_asked(
    form: Format, name: str, tmp_path: Path
) -> None:
    secret, plain = tmp_path / f"secret-{name}", tmp_path / f"plain-{name}"
    write_tasks(secret, form, TASKS, with_privileged=True)
    found = {task.question: task for _, task in read_tasks(secret, "shop")}
    assert set(found) == {task.question for task in TASKS}
    for task in TASKS:
        read = found[task.question]
        reference = task.privileged.reference if isinstance(task, PrivilegedTask) else ""
        golds = [reference] if isinstance(reference, str) else reference
        assert read.golds == (golds[:1] if form is Format.RECIPE else golds)
        assert (read.archetype, read.difficulty, read.style, read.split) == (
            *(task.archetype, task.difficulty, task.style, task.split),
        )
    write_tasks(plain, form, TASKS, with_privileged=False)
    files = [file for file in ([plain] if plain.is_file() else plain.rglob("*")) if file.is_file()]
    assert files
    for file in files:
        content = file.read_bytes()
        assert b"SELECT" not in content
        assert b"privileged" not in content
        assert b"reference" not in content
    with pytest.raises(UsageError, match="holds no golds"):
        read_tasks(plain, "shop")
    with pytest.raises(UsageError, match="exists"):
        write_tasks(plain, form, TASKS, with_privileged=False)


def test_golds_that_the_token_may_not_see_cannot_be_written(tmp_path: Path) -> None:
    public = [Task.model_validate(task.model_dump(exclude={"privileged"})) for task in TASKS]
    with pytest.raises(UsageError, match="gold"):
        write_tasks(tmp_path / "t.jsonl", Format.JSONL, public, with_privileged=True)
    assert list(tmp_path.iterdir()) == []


def test_optional_columns_become_every_choice_of_them_the_fewest_first() -> None:
    assert expanded("SELECT {a, b}, sum(c) FROM t GROUP BY {} ORDER BY 1") == [
        "SELECT a, sum(c) FROM t GROUP BY a ORDER BY 1",
        "SELECT b, sum(c) FROM t GROUP BY b ORDER BY 1",
        "SELECT a, b, sum(c) FROM t GROUP BY a, b ORDER BY 1",
    ]
    assert expanded("SELECT a FROM t") == ["SELECT a FROM t"]
    assert len(expanded("SELECT {a,b,c} FROM t")) == 7


def _lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_defog_row_is_a_task_with_alternatives_and_its_instructions(tmp_path: Path) -> None:
    row = {
        "db": "zoo",
        "category": "ratio",
        "question": "How many are there?",
        "instructions": "Count birds only.",
        "gold": "SELECT {a,b} FROM t;SELECT a FROM t;",
    }
    [(number, task)] = read_tasks(_lines(tmp_path / "t.jsonl", {**row, "db": "other"}, row), "zoo")
    assert number == 2
    assert task == ImportedTask(
        question="How many are there?\nCount birds only.",
        golds=["SELECT a FROM t", "SELECT b FROM t", "SELECT a, b FROM t"],
        style="ratio",
    )


def test_a_recipe_row_says_its_archetype_in_a_sentence(tmp_path: Path) -> None:
    row = {
        "question": "Who never came?",
        "sql": "SELECT a FROM t;",
        "archetype": "anti-join / existence (…)",
        "_split": "train",
    }
    [(_, task)] = read_tasks(_lines(tmp_path / "t.jsonl", row), "shop")
    assert (task.archetype, task.golds, task.split) == (Archetype.ANTI_JOIN, ["SELECT a FROM t"], Split.TRAIN)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"sql": "SELECT 1"}, "row 1: the field 'question' is missing"),
        ({"question": "x", "sql": ""}, "row 1"),
        ({"question": "x", "sql": "SELECT 1", "_split": "test"}, "row 1: 'test' is not a valid Split"),
        ({"question": "x"}, "holds no golds"),
        (7, "line 1: expected a JSON object"),
    ],
)
def test_a_faulty_row_is_named_with_its_fault(row: object, fault: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=fault):
        read_tasks(_lines(tmp_path / "t.jsonl", row), "shop")
