"""Checkpoints count only when they are whole."""

from pathlib import Path

from services.trainer.job.checkpoints import SEAL, RunFolder


def saved(folder: RunFolder, step: int) -> Path:
    """What the Hugging Face trainer leaves before the seal."""
    path = folder.folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "adapter_model.safetensors").write_bytes(b"weights")
    return path


def test_the_newest_sealed_checkpoint_wins_by_number_not_by_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "night-1", 1)
    assert folder.newest() is None
    for step in (9, 10):
        saved(folder, step)
        folder.seal(step, {"reward": step})
    newest = folder.newest()
    assert newest is not None and newest.step == 10 and newest.record == {"reward": 10}


def test_a_checkpoint_without_its_seal_does_not_exist_and_is_discarded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "night-1", 1)
    saved(folder, 1)
    folder.seal(1, {})
    saved(folder, 2)
    (saved(folder, 3) / f"{SEAL}.new").write_text('{"step": 3, "record": {}}')  # killed before the rename
    newest = folder.newest()
    assert newest is not None and newest.step == 1
    assert folder.begin() == newest
    assert [path.name for path in folder.folder.iterdir()] == ["checkpoint-1"]


def test_an_attempt_goes_on_from_the_newest_attempts_steps_and_drops_what_an_older_one_did_past_them(
    tmp_path: Path,
) -> None:
    older, newer = (RunFolder(tmp_path, "night-1", attempt) for attempt in (1, 2))
    for folder, step in ((older, 4), (newer, 5), (older, 6)):
        saved(folder, step)
        folder.seal(step, {})
    newest = RunFolder(tmp_path, "night-1", 3).begin()
    assert newest is not None and newest.order == (2, 5)
    assert not (newer.folder / "checkpoint-6").exists()


def test_two_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "night-1", 1)
    for step in range(1, 6):
        saved(folder, step)
        folder.seal(step, {})
    assert sorted(path.name for path in folder.folder.iterdir()) == ["checkpoint-4", "checkpoint-5"]


def test_runs_do_not_see_each_other(tmp_path: Path) -> None:
    night, day = RunFolder(tmp_path, "night", 1), RunFolder(tmp_path, "day", 1)
    saved(night, 4)
    night.seal(4, {})
    assert day.newest() is None
    assert day.begin() is None
    assert night.newest() is not None
