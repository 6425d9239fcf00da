"""Copies the artifacts that a backup lacks: `backup.py FOLDER URL`. None ever changes, so name and size tell.

Not the copies of checkpoints: two a run, new ones each step, and gone when the run is done.
"""

import sys
from pathlib import Path

import fsspec


def back_up(folder: Path, url: str) -> int:
    """Returns how many files were copied. Nothing is ever deleted there."""
    filesystem, root = fsspec.url_to_fs(url)
    there = {path.removeprefix(f"{root}/"): entry["size"] for path, entry in filesystem.find(root, detail=True).items()}
    copied = 0
    checkpoints = set(folder.glob("runs/*/checkpoints"))
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and checkpoints.isdisjoint(path.parents)):
        name = path.relative_to(folder).as_posix()
        if there.get(name) != path.stat().st_size:
            filesystem.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            filesystem.put_file(str(path), f"{root}/{name}")
            copied += 1
    print(f"copied {copied} files to {url}; {len(there)} were there")
    return copied


if __name__ == "__main__":
    back_up(Path(sys.argv[1]), sys.argv[2])
