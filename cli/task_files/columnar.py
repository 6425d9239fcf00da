"""Parquet files and Hugging Face `datasets` folders, by their libraries, loaded only when needed."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.context import UsageError
from cli.task_files.rows import RawRow


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise UsageError(f"{package} is not installed here: `pip install {package}`, or use --format jsonl") from error


def read_parquet(path: Path) -> list[RawRow]:
    """Raises UsageError."""
    parquet = _library("pyarrow.parquet")
    try:
        return _unpacked(parquet.read_table(path).to_pylist())
    except _library("pyarrow").ArrowInvalid as error:
        raise UsageError(f"{path} is no Parquet file: {error}") from error


def write_parquet(path: Path, rows: Sequence[RawRow]) -> None:
    """One row group; a reference is always a list."""
    table = _library("pyarrow").Table.from_pylist(_packed(rows))
    draft = path.with_name(f".{path.name}.part")
    _library("pyarrow.parquet").write_table(table, draft)
    draft.replace(path)


def read_datasets(path: Path) -> list[RawRow]:
    """A saved dataset, or the splits of a saved dictionary of them. Raises UsageError."""
    datasets = _offline_datasets()
    try:
        found = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path} is no folder that `datasets` saved") from error
    parts = found.values() if isinstance(found, datasets.DatasetDict) else [found]
    return _unpacked([row for part in parts for row in part.to_list()])


def write_datasets(path: Path, rows: Sequence[RawRow]) -> None:
    """A dictionary of datasets, one a split."""
    datasets = _offline_datasets()
    splits: dict[str, list[RawRow]] = {}
    for row in _packed(rows):
        splits.setdefault(row["split"], []).append(row)
    draft = path.with_name(f".{path.name}.part")
    datasets.disable_progress_bars()
    datasets.DatasetDict({name: datasets.Dataset.from_list(part) for name, part in splits.items()}).save_to_disk(draft)
    draft.replace(path)


def _offline_datasets() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a folder on disk needs no hub
    return _library("datasets")


def _packed(rows: Sequence[RawRow]) -> list[RawRow]:
    """A column has one type: a reference becomes a list of one or more."""
    return [
        {**row, "privileged": {"reference": _listed(row["privileged"]["reference"])}} if "privileged" in row else row
        for row in rows
    ]


def _listed(reference: str | list[str]) -> list[str]:
    return [reference] if isinstance(reference, str) else reference


def _unpacked(rows: Sequence[RawRow]) -> list[RawRow]:
    """A list of one is a text again."""
    found = []
    for row in rows:
        golds = (row.get("privileged") or {}).get("reference")
        if isinstance(golds, list) and len(golds) == 1:
            row = {**row, "privileged": {"reference": golds[0]}}
        found.append(row)
    return found
