"""Rows of the published text-to-sql recipe: `id, question, sql, archetype, difficulty, style, author, _split`. Pure.

Its archetypes are sentences; what they begin with says which of ours is meant.
"""

from cli.task_files.rows import RawRow, known_archetype, known_difficulty
from shared.contracts.tasks import Archetype, ImportedTask, PrivilegedTask, Split, Task

_BEGINNINGS = {
    "anti-join": Archetype.ANTI_JOIN,
    "top-n": Archetype.TOP_N,
    "two-table join": Archetype.JOIN,
    "multi-table join": Archetype.JOIN,
    "self-join": Archetype.SELF_JOIN,
    "window": Archetype.WINDOW,
    "date": Archetype.DATE_BUCKETS,
    "group": Archetype.GROUPING,
    "set ": Archetype.SET_LOGIC,
    "derived": Archetype.DERIVED_METRIC,
    "single-table": Archetype.FILTER,
}


def read_row(row: RawRow, database: str) -> ImportedTask | None:
    """One row; a recipe's file is of one database."""
    return ImportedTask(
        question=row["question"],
        golds=[row["sql"].strip().rstrip(";")],
        archetype=_archetype(row.get("archetype") or ""),
        difficulty=known_difficulty(row.get("difficulty")),
        style=row.get("style") or "",
        split=Split(row["_split"]) if row.get("_split") else None,
    )


def _archetype(text: str) -> Archetype | None:
    beginnings = (kind for beginning, kind in _BEGINNINGS.items() if text.lower().startswith(beginning))
    return known_archetype(text) or next(beginnings, None)


def write_row(task: Task, with_privileged: bool) -> RawRow:
    """One row; the recipe knows one gold a task: the first of several."""
    row: RawRow = {
        "id": task.id,
        "question": task.question,
        "archetype": str(task.archetype),
        "difficulty": str(task.difficulty),
        "style": task.style,
        "author": task.provenance.teacher,
        "_split": str(task.split),
    }
    if with_privileged and isinstance(task, PrivilegedTask):
        row["sql"] = task.privileged.golds[0]
    return row
