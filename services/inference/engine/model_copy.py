"""`python -m services.inference.engine.model_copy SOURCE FOLDER`: copies a model from an object store, once.

The folder appears by rename, so that an engine never loads half a model. A folder that is there is left alone.
"""

import shutil
import sys
from pathlib import Path

import fsspec


def copy_model(source: str, folder: Path) -> bool:
    """Copy `source` (an fsspec URL of a folder) to `folder`; False when that exists. Raises OSError, ValueError."""
    if folder.exists():
        return False
    filesystem, root = fsspec.core.url_to_fs(source)
    if not filesystem.exists(f"{root.rstrip('/')}/config.json"):
        raise FileNotFoundError(f"{source} holds no config.json: name the folder of a Hugging Face model")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    filesystem.get(f"{root.rstrip('/')}/", f"{partial}/", recursive=True)
    partial.rename(folder)
    return True


def main() -> None:
    """Exits 2 with a sentence."""
    if len(sys.argv) != 3:
        print("model_copy: give a source and a folder", file=sys.stderr)
        raise SystemExit(2)
    source, folder = sys.argv[1], Path(sys.argv[2])
    try:
        print(f"copied {source} to {folder}" if copy_model(source, folder) else f"{folder} is there already")
    except (OSError, ValueError, ImportError) as error:
        print(f"model_copy: {source}: {error}. Nothing was left in {folder}", file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
