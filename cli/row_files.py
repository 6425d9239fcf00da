"""Rows as files: JSON lines, Parquet, whileai's rows. None holds a gold: rows never do."""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from cli.context import UsageError
from shared.contracts.rollout import Row, SamplingRequest
from shared.whileai import to_whileai

PARQUET_ROWS = 1000
"""Of one row group."""


class RowFormat(StrEnum):
    """What a file of rows holds."""

    JSONL = "jsonl"  # the contract's rows, one a line
    PARQUET = "parquet"  # the same, as columns
    WHILEAI = "whileai"  # JSON lines in whileai's row format, version 1

    @property
    def suffix(self) -> str:
        """Of a file's name."""
        return ".whileai.jsonl" if self is RowFormat.WHILEAI else f".{self}"


async def write_rows(path: Path, form: RowFormat, rows: AsyncIterator[Row], request: SamplingRequest) -> int:
    """Write them as they come; the file appears, whole, at the end. How many. Raises UsageError."""
    if form is RowFormat.PARQUET:
        return await _write_parquet(path, rows)
    line = _contract_line if form is RowFormat.JSONL else lambda row: json.dumps(to_whileai(row, request))
    return await _write_lines(path, rows, line)


def _contract_line(row: Row) -> str:
    return row.model_dump_json()


async def _write_lines(path: Path, rows: AsyncIterator[Row], line: Callable[[Row], str]) -> int:
    count = 0
    with _draft(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        async for row in rows:
            file.write(line(row) + "\n")
            count += 1
        _sync(file.fileno(), file.flush)
    return count


async def _write_parquet(path: Path, rows: AsyncIterator[Row]) -> int:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise UsageError("pyarrow is not installed here: `pip install pyarrow`, or use --format jsonl") from error
    schema = _schema(pa)
    count = 0
    waiting: list[dict[str, Any]] = []
    with _draft(path) as draft, draft.open("wb") as file:
        with ParquetWriter(file, schema) as writer:
            async for row in rows:
                waiting.append(row.model_dump())
                count += 1
                if len(waiting) == PARQUET_ROWS:
                    writer.write_table(pa.Table.from_pylist(waiting, schema))
                    waiting = []
            writer.write_table(pa.Table.from_pylist(waiting, schema))
        _sync(file.fileno(), file.flush)
    return count


def _schema(pa: Any) -> Any:
    """The contract's fields as Parquet types: told, since a column may begin with rows that have no value."""
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    types = {
        **dict.fromkeys(("row_id", "sample_index", "reported_tokens"), pa.int64()),
        **dict.fromkeys(("sample_ms", "verify_ms", "reward"), pa.float64()),
        **dict.fromkeys(("prompt_token_ids", "token_ids"), pa.list_(pa.int32())),
        "logprobs": pa.list_(pa.float64()),
        "messages": pa.list_(message),
        "landed_at": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(name, types.get(name, pa.string())) for name in Row.model_fields])


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when all went well, and is removed when not. Raises UsageError."""
    draft = path.with_name(f".{path.name}.part")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror or error}; no file was left") from error
    finally:
        draft.unlink(missing_ok=True)


def _sync(descriptor: int, flush: Callable[[], None]) -> None:
    flush()
    os.fsync(descriptor)
