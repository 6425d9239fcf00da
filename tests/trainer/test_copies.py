"""Copies of checkpoints in the artifact store: whole or not there, few, and enough to go on from without the disk."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from services.trainer.job.checkpoints import SEAL, Checkpoint, RunFolder
from services.trainer.job.copies import CheckpointCopies
from shared.artifacts import StoreUnavailable
from tests.trainer.test_checkpoints import saved


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A local folder, and a store whose folders are but prefixes of names."""
    return (tmp_path / "artifacts").as_uri() if request.param == "file" else f"memory://{tmp_path}"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "disk"


def sealed(folder: RunFolder, step: int) -> Checkpoint:
    path = saved(folder, step)
    (path / "nested").mkdir()
    (path / "nested" / "optimizer.pt").write_text(f"moments of {step}")
    return folder.seal(step, {"step": step})


def copies_in(store: str) -> set[str]:
    filesystem, root = fsspec.core.url_to_fs(store)
    paths = filesystem.ls(f"{root}/runs/night/checkpoints", detail=False)
    return {path.rstrip("/").rpartition("/")[2] for path in paths}


def copy(store: str, checkpoint: Checkpoint) -> None:
    copies = CheckpointCopies(store, "night")
    assert (copies.begin(checkpoint), copies.finish()) == ("", "")


def test_a_run_goes_on_without_its_disk(store: str, disk: Path) -> None:
    folder = RunFolder(disk, "night", 1)
    copies = CheckpointCopies(store, "night")
    assert [copies.begin(sealed(folder, step)) for step in (1, 2, 3)] == [""] * 3 and copies.finish() == ""
    assert copies_in(store) == {"2-1", "3-1"}
    shutil.rmtree(disk)
    other = RunFolder(disk, "night", 2)
    CheckpointCopies(store, "night").bring_newest(other)
    newest = other.newest()
    assert newest is not None and (newest.order, newest.record) == ((1, 3), {"step": 3})
    assert (newest.folder / "nested" / "optimizer.pt").read_text() == "moments of 3"
    assert (newest.folder / "adapter_model.safetensors").read_bytes() == b"weights"
    assert [path.name for path in other.folder.iterdir()] == ["checkpoint-3"]


def test_what_the_disk_has_is_not_fetched_again(store: str, disk: Path) -> None:
    folder = RunFolder(disk, "night", 1)
    copy(store, sealed(folder, 1))
    ahead = sealed(folder, 2)
    (ahead.folder / "adapter_model.safetensors").write_bytes(b"newer")
    CheckpointCopies(store, "night").bring_newest(folder)
    assert folder.newest() == ahead


def test_a_newer_attempts_copy_replaces_what_an_older_one_left_here(store: str, disk: Path, tmp_path: Path) -> None:
    here, elsewhere = RunFolder(disk, "night", 1), RunFolder(tmp_path / "elsewhere", "night", 2)
    for step in (5, 6):
        sealed(here, step)
    theirs = sealed(elsewhere, 5)
    copy(store, theirs)
    third = RunFolder(disk, "night", 3)
    CheckpointCopies(store, "night").bring_newest(third)
    begun = third.begin()
    assert begun is not None and begun.order == (2, 5)
    assert [path.name for path in third.folder.iterdir()] == ["checkpoint-5"]


def test_a_copy_that_a_kill_cut_short_does_not_count_and_goes_with_the_next(store: str, disk: Path) -> None:
    folder = RunFolder(disk, "night", 1)
    whole = sealed(folder, 1)
    copy(store, whole)
    filesystem, root = fsspec.core.url_to_fs(store)
    filesystem.makedirs(f"{root}/runs/night/checkpoints/2-1", exist_ok=True)
    filesystem.pipe_file(f"{root}/runs/night/checkpoints/2-1/optimizer.pt", b"half")
    shutil.rmtree(disk)
    CheckpointCopies(store, "night").bring_newest(folder)
    assert folder.newest() == whole
    copy(store, sealed(folder, 3))
    assert copies_in(store) == {"1-1", "3-1"}


def test_a_run_that_is_done_leaves_none(store: str, disk: Path) -> None:
    copy(store, sealed(RunFolder(disk, "night", 1), 1))
    copies = CheckpointCopies(store, "night")
    copies.drop()
    copies.drop()
    copies.bring_newest(RunFolder(disk / "other", "night", 2))
    assert RunFolder(disk / "other", "night", 2).newest() is None


def test_the_seal_is_the_last_file_to_arrive(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = CheckpointCopies((tmp_path / "artifacts").as_uri(), "night")
    arrived: list[str] = []
    put: Callable[[str, str], None] = copies._filesystem.put_file

    def note(source: str, target: str) -> None:
        arrived.append(Path(source).name)
        put(source, target)

    monkeypatch.setattr(copies._filesystem, "put_file", note)
    copies.begin(sealed(RunFolder(disk, "night", 1), 1))
    assert copies.finish() == "" and len(arrived) == 3 and arrived[-1] == SEAL


def test_a_store_that_takes_nothing_is_told_and_costs_no_step(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file, where the store's folder should be")
    folder, copies = RunFolder(disk, "night", 1), CheckpointCopies((tmp_path / "artifacts").as_uri(), "night")
    assert copies.begin(sealed(folder, 1)) == ""
    told = copies.begin(sealed(folder, 2))
    assert "could not be copied" in told and "Error" in told and "artifacts/runs/night/checkpoints" in told
    assert copies.finish() != ""
    (tmp_path / "artifacts").unlink()
    copy((tmp_path / "artifacts").as_uri(), sealed(folder, 3))
    assert json.loads((tmp_path / "artifacts/runs/night/checkpoints/3-1" / SEAL).read_text())["attempt"] == 1


def test_a_store_that_cannot_be_read_is_no_store_without_copies(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file, where the store's folder should be")
    with pytest.raises(StoreUnavailable, match=r"checkpoints cannot be read from .*NotADirectoryError"):
        CheckpointCopies((tmp_path / "artifacts").as_uri(), "night").bring_newest(RunFolder(disk, "night", 1))
