"""Files of tasks: which formats there are, read and written. Golds leave only where asked for by name."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from cli.context import UsageError
from cli.task_files import columnar, defog, jsonl, recipe
from cli.task_files.rows import RawRow
from shared.contracts.tasks import ImportedTask, PrivilegedTask, Task


class Format(StrEnum):
    """How a file holds tasks."""

    JSONL = "jsonl"  # one task a line, as this system's own API writes it
    RECIPE = "recipe"  # JSON lines of the published text-to-sql recipe
    DEFOG = "defog"  # defog's golds: `;` between alternatives, `{a, b}` for optional columns; read only
    PARQUET = "parquet"
    DATASETS = "datasets"  # a folder as Hugging Face `datasets` saves one


_READERS: dict[Format, Callable[[RawRow, str], ImportedTask | None]] = {
    Format.JSONL: jsonl.read_row,
    Format.RECIPE: recipe.read_row,
    Format.DEFOG: defog.read_row,
}


def read_tasks(path: Path, database: str) -> list[tuple[int, ImportedTask]]:
    """Row number (from 1) and task of every row for `database`; the format is seen from the first row.

    Raises UsageError naming the row and the fix.
    """
    rows = _raw_rows(path)
    if not rows:
        raise UsageError(f"{path} holds no task")
    reader = _READERS[_format_of(rows[0], path)]
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            task = reader(row, database)
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(f"{path}, row {number}: {_fault(error)}") from error
        if task is not None:
            found.append((number, task))
    if not found:
        raise UsageError(f"{path} holds no task for database {database!r}: name another with --database")
    return found


def write_tasks(path: Path, form: Format, tasks: Sequence[Task], with_privileged: bool) -> None:
    """Write them; `path` appears whole or not at all. Raises UsageError."""
    if path.exists():
        raise UsageError(f"--to: {path} exists and was left as it is: choose another name or move it away")
    if form is Format.DEFOG:
        raise UsageError("--format defog is read only: choose jsonl, recipe, parquet or datasets")
    if with_privileged and not all(isinstance(task, PrivilegedTask) for task in tasks):
        raise UsageError("--with-privileged: this token may not see golds: use one with the `gold` scope")
    write = recipe.write_row if form is Format.RECIPE else jsonl.write_row
    rows = [write(task, with_privileged) for task in tasks]
    if form is Format.PARQUET:
        columnar.write_parquet(path, rows)
    elif form is Format.DATASETS:
        columnar.write_datasets(path, rows)
    else:
        jsonl.write_lines(path, rows)


def _raw_rows(path: Path) -> list[RawRow]:
    if path.is_dir():
        return columnar.read_datasets(path)
    if not path.is_file():
        raise UsageError(f"{path} is no file")
    return columnar.read_parquet(path) if path.suffix == ".parquet" else jsonl.read_lines(path)


def _format_of(row: RawRow, path: Path) -> Format:
    if "gold" in row and "db" in row:
        return Format.DEFOG
    if "sql" in row:
        return Format.RECIPE
    if "privileged" in row:
        return Format.JSONL
    raise UsageError(
        f"{path} holds no golds: rows need `privileged` (sqlclimb's own), `sql` (the recipe's) or `gold` and `db` "
        f"(defog's); these have {sorted(row)}"
    )


def _fault(error: Exception) -> str:
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
