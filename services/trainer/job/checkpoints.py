"""A run's checkpoints on disk. A checkpoint counts only once its seal is there: the seal is written last, by rename.

`<checkpoints>/<run>/checkpoint-<step>/` holds what the Hugging Face trainer saves (adapter, optimizer, scheduler,
random state, trainer state) and `complete.json`, the seal: `{"step": n, "attempt": n, "record": {…}}`.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEAL = "complete.json"
KEPT = 2
"""The newest is for resuming, the one before it for the case that the newest turns out unreadable."""

_NAME = re.compile(r"^checkpoint-(\d+)$")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    attempt: int
    """The one that sealed it."""
    folder: Path
    record: dict[str, Any]
    """What `seal` was given: the step's figures, the probe, and what the next step's samples follow from."""

    @property
    def order(self) -> tuple[int, int]:
        """By attempt first: where disks differ, an older attempt may have got further before a newer one took over."""
        return self.attempt, self.step


class RunFolder:
    """The checkpoints of one run, as one attempt sees and seals them."""

    def __init__(self, checkpoints: Path, run_id: str, attempt: int) -> None:
        self.folder = checkpoints / run_id
        self._attempt = attempt

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint; None when the run has none."""
        complete = [found for found in map(self._read, self._folders()) if found is not None]
        return max(complete, key=lambda checkpoint: checkpoint.order, default=None)

    def begin(self) -> Checkpoint | None:
        """What the attempt goes on from, None at the start. What its own steps must not meet is removed.

        That is folders that a kill left without a seal, and steps past the one that a newer attempt went on from.
        """
        newest = self.newest()
        for folder in self._folders():
            if self._read(folder) is None or (newest is not None and _step(folder) > newest.step):
                _remove(folder)
        return newest

    def take_in(self, step: int, arrived: Path) -> None:
        """Make a folder, complete with its seal, the checkpoint of `step`."""
        folder = self.folder / f"checkpoint-{step}"
        if folder.exists():
            _remove(folder)
        arrived.rename(folder)

    def seal(self, step: int, record: dict[str, Any]) -> Checkpoint:
        """Declare the checkpoint of `step` complete: every file is on disk before the seal is. Then drop old ones."""
        folder = self.folder / f"checkpoint-{step}"
        for path in folder.rglob("*"):
            _sync(path)
        temporary = folder / f"{SEAL}.new"
        temporary.write_text(json.dumps({"step": step, "attempt": self._attempt, "record": record}))
        _sync(temporary)
        temporary.rename(folder / SEAL)
        _sync(folder)
        _sync(self.folder)
        self._rotate(step)
        return Checkpoint(step, self._attempt, folder, record)

    def _rotate(self, newest: int) -> None:
        for folder in self._folders():
            if _step(folder) <= newest - KEPT:
                _remove(folder)

    def _folders(self) -> list[Path]:
        return [path for path in self.folder.glob("checkpoint-*") if _NAME.match(path.name)]

    @staticmethod
    def _read(folder: Path) -> Checkpoint | None:
        try:
            content = json.loads((folder / SEAL).read_text())
        except FileNotFoundError:
            return None
        return Checkpoint(content["step"], content["attempt"], folder, content["record"])


def _remove(folder: Path) -> None:
    (folder / SEAL).unlink(missing_ok=True)  # unsealed first: half a folder must never count
    shutil.rmtree(folder)


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
