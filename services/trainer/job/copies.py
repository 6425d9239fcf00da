"""Copies of a run's sealed checkpoints in the artifact store: a run outlives the disk and the node that it ran on.

`<artifacts>/runs/<run>/checkpoints/<step>-<attempt>/` holds a checkpoint's files. Its seal is copied last, so that half
a copy does not count, and no two attempts write into one folder.
"""

import logging
import re
import shutil
from concurrent.futures import Future

import fsspec

from services.trainer.job.background import in_background
from services.trainer.job.checkpoints import KEPT, SEAL, Checkpoint, RunFolder
from shared.artifacts import StoreUnavailable

log = logging.getLogger(__name__)

_NAME = re.compile(r"^(?P<step>\d+)-(?P<attempt>\d+)$")

Order = tuple[int, int]
"""Attempt and step, as `Checkpoint.order`."""


class CheckpointCopies:
    """The copies of one run."""

    def __init__(self, artifacts: str, run_id: str) -> None:
        """`artifacts`: fsspec URL of the store."""
        self._filesystem, root = fsspec.core.url_to_fs(artifacts)
        self._root = f"{root.rstrip('/')}/runs/{run_id}/checkpoints"
        self._copying: Future[None] | None = None

    def bring_newest(self, folder: RunFolder) -> None:
        """Put the newest copy into the run's folder unless that has it, or a newer one. Raises StoreUnavailable."""
        try:
            self._bring_newest(folder)
        except Exception as error:  # each store raises its own
            raise StoreUnavailable(
                f"checkpoints cannot be read from {self._root} ({type(error).__name__}: {error})"
            ) from error

    def _bring_newest(self, folder: RunFolder) -> None:
        copies = self._sealed()
        newest, there = max(copies, default=None), folder.newest()
        if newest is None or (there is not None and there.order >= newest):
            return
        attempt, step = newest
        temporary = folder.folder / "checkpoint.partial"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for path in self._filesystem.find(copies[newest]):
            target = temporary / path.rpartition(f"/{step}-{attempt}/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            self._filesystem.get_file(path, str(target))
        folder.take_in(step, temporary)
        log.info("the checkpoint of step %d comes from the artifact store", step)

    def begin(self, checkpoint: Checkpoint) -> str:
        """Copy a checkpoint in the background, after the one before. Returns what became of that: "" when all is well.

        Copies slower than steps hold the steps up: each is complete before its files are dropped here.
        """
        fault = self.finish()
        self._copying = in_background(f"copy of step {checkpoint.step}", lambda: self._copy(checkpoint))
        return fault

    def finish(self) -> str:
        """Wait for the copy in the making. Returns why it failed, "" when it did not."""
        copying, self._copying = self._copying, None
        try:
            if copying is not None:
                copying.result()
        except Exception as error:  # each store raises its own
            return (
                f"the newest checkpoint could not be copied to {self._root} ({type(error).__name__}: {error}); as long "
                "as that lasts, a lost disk costs the steps since the last copy"
            )
        return ""

    def drop(self) -> None:
        """The run is done: nothing will go on from them. A store that does not answer keeps them, which harms none."""
        try:
            if self._folders():
                self._filesystem.rm(self._root, recursive=True)
        except Exception as error:  # each store raises its own
            log.warning("the copies of the checkpoints stay in %s: %s", self._root, error)

    def _copy(self, checkpoint: Checkpoint) -> None:
        attempt, step = checkpoint.order
        target = f"{self._root}/{step}-{attempt}"
        files = [path for path in sorted(checkpoint.folder.rglob("*")) if path.is_file() and path.name != SEAL]
        for path in [*files, checkpoint.folder / SEAL]:
            there = f"{target}/{path.relative_to(checkpoint.folder)}"
            self._filesystem.makedirs(self._filesystem._parent(there), exist_ok=True)
            self._filesystem.put_file(str(path), there)
        self._rotate()

    def _rotate(self) -> None:
        """Drop all but the newest; a copy without its seal is one that a kill cut short."""
        kept = sorted(self._sealed(), reverse=True)[:KEPT]
        for order, path in self._folders().items():
            if order not in kept:
                if self._filesystem.exists(f"{path}/{SEAL}"):
                    self._filesystem.rm_file(f"{path}/{SEAL}")  # first: half a folder must never count
                self._filesystem.rm(path, recursive=True)

    def _sealed(self) -> dict[Order, str]:
        return {order: path for order, path in self._folders().items() if self._filesystem.exists(f"{path}/{SEAL}")}

    def _folders(self) -> dict[Order, str]:
        self._filesystem.invalidate_cache()  # another attempt may have written since
        try:
            paths = [path.rstrip("/") for path in self._filesystem.ls(self._root, detail=False)]
        except FileNotFoundError:
            return {}
        named = [(path, _NAME.match(path.rpartition("/")[2])) for path in paths]
        return {(int(name["attempt"]), int(name["step"])): path for path, name in named if name}
