"""The nightly copy of the artifacts takes what is new, once, and removes nothing."""

import subprocess
import sys
from pathlib import Path

from tests.deploy.helm import CHART


def back_up(folder: Path, target: Path) -> str:
    argv = [sys.executable, str(CHART / "files/backup_artifacts.py"), str(folder), f"file://{target}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_artifacts_are_copied_once_and_half_copies_again(tmp_path: Path) -> None:
    folder, target = tmp_path / "artifacts", tmp_path / "copies"
    (folder / "run-s1-abc").mkdir(parents=True)
    (folder / "run-s1-abc/adapter_model.safetensors").write_bytes(b"12345")
    (folder / "run-s1-abc/adapter_config.json").write_text("{}")
    assert "copied 2 files" in back_up(folder, target)
    assert "copied 0 files" in back_up(folder, target)
    (target / "run-s1-abc/adapter_model.safetensors").write_bytes(b"12")
    (folder / "run-s2-def").mkdir()
    (folder / "run-s2-def/adapter_config.json").write_text("{}")
    assert "copied 2 files" in back_up(folder, target)
    assert (target / "run-s1-abc/adapter_model.safetensors").read_bytes() == b"12345"


def test_what_is_deleted_here_stays_there(tmp_path: Path) -> None:
    folder, target = tmp_path / "artifacts", tmp_path / "copies"
    folder.mkdir()
    (folder / "old").write_text("kept")
    back_up(folder, target)
    (folder / "old").unlink()
    assert "copied 0 files" in back_up(folder, target)
    assert (target / "old").read_text() == "kept"


def test_copies_of_checkpoints_stay_out(tmp_path: Path) -> None:
    folder, target = tmp_path / "artifacts", tmp_path / "copies"
    for name in (
        "runs/night/checkpoints/3-1/optimizer.pt",
        "runs/night/adapters/night-s3-0123abcd/adapter_config.json",
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("{}")
    assert "copied 1 files" in back_up(folder, target)
    assert not list(target.glob("runs/*/checkpoints"))
