"""This system's own rows, and JSON lines of any kind. Pure but for the two that touch a file."""

import json
from collections.abc import Sequence
from pathlib import Path

from cli.context import UsageError
from cli.task_files.rows import RawRow, known_archetype, known_difficulty
from shared.contracts.tasks import ImportedTask, Split, Task

PRIVILEGED = "privileged"


def read_row(row: RawRow, database: str) -> ImportedTask | None:
    """A task as `write_row` writes it."""
    reference = row[PRIVILEGED]["reference"]
    return ImportedTask(
        question=row["question"],
        golds=[reference] if isinstance(reference, str) else reference,
        order_matters=bool(row.get("order_matters", False)),
        archetype=known_archetype(row.get("archetype")),
        difficulty=known_difficulty(row.get("difficulty")),
        style=row.get("style", ""),
        split=Split(row["split"]) if row.get("split") else None,
    )


def write_row(task: Task, with_privileged: bool) -> RawRow:
    """As the API answers it."""
    return task.model_dump(mode="json", exclude=None if with_privileged else {PRIVILEGED})


def read_lines(path: Path) -> list[RawRow]:
    """Raises UsageError naming the line."""
    rows = []
    for number, line in enumerate(path.read_text().split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
        if not isinstance(row, dict):
            raise UsageError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
        rows.append(row)
    return rows


def write_lines(path: Path, rows: Sequence[RawRow]) -> None:
    """One JSON object a line."""
    draft = path.with_name(f".{path.name}.part")
    draft.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    draft.replace(path)
