"""Artifacts behind fsspec: adapters as folders of two files, named by the digest of their tensors."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import fsspec
from safetensors import SafetensorError, safe_open

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
MAXIMUM_ADAPTER_BYTES = 2 * 1024**3
"""An adapter of rank 64 on a 70B model stays under this; anything larger is not an adapter."""


class ArtifactError(ValueError):
    """An artifact is missing, too large or not what it claims to be."""


def adapter_digest(folder: Path) -> str:
    """SHA-256 over the sorted tensors of `adapter_model.safetensors`: name, dtype, shape, bytes. Needs no torch.

    Raises ArtifactError.
    """
    path = folder / "adapter_model.safetensors"
    digest = hashlib.sha256()
    try:
        raw = path.read_bytes()
        header_size = int.from_bytes(raw[:8], "little")
        header: dict[str, Any] = json.loads(raw[8 : 8 + header_size])
        with safe_open(path, framework="numpy"):  # validates offsets and sizes
            pass
    except (OSError, ValueError, SafetensorError) as error:
        raise ArtifactError(f"{path} is no safetensors file: {error}") from error
    body = memoryview(raw)[8 + header_size :]
    for name in sorted(header.keys() - {"__metadata__"}):
        entry = header[name]
        start, end = entry["data_offsets"]
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
        digest.update(body[start:end])
    return digest.hexdigest()


def publish_folder(source: Path, store: str, *parts: str) -> str:
    """Copy a folder's files into the artifact store under `parts`; returns the folder's URI.

    On a local store the folder appears by rename. Publishing the same parts again replaces nothing that is complete.
    """
    filesystem, root = fsspec.core.url_to_fs(store)
    target = "/".join([root.rstrip("/"), *parts])
    if not filesystem.exists(target):
        temporary = f"{target}.partial"
        if filesystem.exists(temporary):
            filesystem.rm(temporary, recursive=True)
        filesystem.makedirs(temporary, exist_ok=True)
        for path in sorted(source.iterdir()):
            if path.is_file():
                filesystem.put_file(str(path), f"{temporary}/{path.name}")
        filesystem.mv(temporary, target, recursive=True)
    return str(filesystem.unstrip_protocol(target))


def fetch_adapter(uri: str, destination: Path) -> Path:
    """Copy an adapter's two files from the store into `destination`, which appears by rename.

    Raises ArtifactError when a file is missing or too large.
    """
    try:
        filesystem, root = fsspec.core.url_to_fs(uri)
        sizes = [filesystem.size(f"{root}/{name}") for name in ADAPTER_FILES]
    except (OSError, ValueError, ImportError) as error:
        raise ArtifactError(f"{uri} is no adapter folder: it needs {' and '.join(ADAPTER_FILES)} ({error})") from error
    if sum(size or 0 for size in sizes) > MAXIMUM_ADAPTER_BYTES:
        raise ArtifactError(f"{uri} holds {sum(size or 0 for size in sizes)} bytes: no adapter is that large")
    temporary = destination.with_name(destination.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name in ADAPTER_FILES:
        filesystem.get_file(f"{root}/{name}", str(temporary / name))
    shutil.rmtree(destination, ignore_errors=True)
    temporary.rename(destination)
    return destination
