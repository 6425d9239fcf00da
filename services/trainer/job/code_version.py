"""Which code this process runs: the package's version, and the commit where it runs from a git work tree."""

import importlib.metadata
import subprocess
from pathlib import Path

from shared.contracts.trainer import CodeVersion

REPOSITORY = Path(__file__).resolve().parents[3]
CODE = ("services", "shared", "pyproject.toml")
"""What of the tree a job runs: a note beside it makes no run dirty."""

GIT_SECONDS = 10.0


def code_version(image: str = "", tree: Path = REPOSITORY) -> CodeVersion:
    """The version of the code in `tree`, which runs in `image`. Without git or outside a work tree: the package's."""
    version = importlib.metadata.version("sqlclimb")
    top = _git(tree, "rev-parse", "--show-toplevel")
    # a package installed into an environment inside somebody's repository is not that repository's code
    if top is None or Path(top) != tree:
        return CodeVersion(version=version, image=image)
    commit, changes = _git(tree, "rev-parse", "HEAD"), _git(tree, "status", "--porcelain", "--", *CODE)
    dirty = None if commit is None or changes is None else bool(changes)
    return CodeVersion(version=version, commit=commit, dirty=dirty, image=image)


def _git(tree: Path, *arguments: str) -> str | None:
    """What git says; None where it is missing or refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
