"""What code an attempt ran: commit and changes of a work tree, else the package's version."""

import subprocess
from pathlib import Path

import pytest

from services.trainer.job.code_version import code_version


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "code.py").write_text("a = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *command], check=True)
    return tmp_path


def test_a_work_trees_commit_is_told_and_whether_its_code_has_changed(tree: Path) -> None:
    clean = code_version("registry/trainer@sha256:1", tree)
    assert clean.commit is not None and len(clean.commit) == 40 and clean.dirty is False
    assert (clean.version, clean.image) == ("0.1.0", "registry/trainer@sha256:1")
    (tree / "notes.txt").write_text("no code")
    assert code_version(tree=tree).dirty is False
    (tree / "services" / "new.py").write_text("b = 2\n")
    assert code_version(tree=tree).dirty is True and code_version(tree=tree).commit == clean.commit


def test_outside_a_work_tree_of_its_own_the_package_alone_is_told(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installed = tree / "services"  # as below a virtual environment in somebody's repository
    assert code_version(tree=installed).commit is None
    bare = code_version(tree=tmp_path_factory.mktemp("bare"))
    assert (bare.version, bare.commit, bare.dirty, bare.image) == ("0.1.0", None, None, "")
