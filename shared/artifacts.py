"""Artifacts behind fsspec: adapters as folders of two files, named by the digest of their tensors."""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
from safetensors import SafetensorError, safe_open

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
MAXIMUM_ADAPTER_BYTES = 2 * 1024**3
"""An adapter of rank 64 on a 70B model stays under this; anything larger is not an adapter."""


SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "az", "abfs", "http", "https", "hf")
"""Stores an adapter may come from."""

COPY_BYTES = 4 * 1024**2
"""Read from a store at once."""


class ArtifactError(ValueError):
    """An artifact is missing, too large or not what it claims to be."""


class StoreUnavailable(ArtifactError):
    """The store did not answer: the same call may work later."""


def adapter_digest(folder: Path) -> str:
    """SHA-256 over the sorted tensors of `adapter_model.safetensors`: name, dtype, shape, bytes. Needs no torch.

    Raises ArtifactError.
    """
    path = folder / "adapter_model.safetensors"
    digest = hashlib.sha256()
    try:
        with safe_open(path, framework="numpy"):  # validates the header before it is parsed here, offsets and sizes
            pass
        with path.open("rb") as file:
            body = 8 + int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(body - 8))
            for name in sorted(header.keys() - {"__metadata__"}):
                entry = header[name]
                start, end = entry["data_offsets"]
                digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
                file.seek(body + start)
                digest.update(file.read(end - start))
    except (OSError, ValueError, SafetensorError) as error:
        raise ArtifactError(f"{path} is no safetensors file: {error}") from error
    return digest.hexdigest()


def publish_folder(source: Path, store: str, *parts: str) -> str:
    """Copy a folder's files into the artifact store under `parts`; returns the folder's URI.

    Each file appears whole. Publishing the same parts again adds what is missing and replaces nothing.
    """
    uris = [store_file(path, store, *parts, path.name) for path in sorted(source.iterdir()) if path.is_file()]
    return uris[0].rpartition("/")[0]


def store_file(source: Path, store: str, *parts: str) -> str:
    """Copy one file into the artifact store under `parts`, where it appears whole; its URI."""
    filesystem, root = fsspec.core.url_to_fs(store)
    target = "/".join([root.rstrip("/"), *parts])
    if not filesystem.exists(target):
        filesystem.makedirs(filesystem._parent(target), exist_ok=True)
        temporary = f"{target}.{secrets.token_hex(4)}.partial"
        try:
            filesystem.put_file(str(source), temporary)
            filesystem.mv(temporary, target)
        except BaseException:
            with suppress(Exception):  # the store may be away, and the first error is the one to tell
                filesystem.rm_file(temporary)
            raise
    return str(filesystem.unstrip_protocol(target))


def fetch_adapter(uri: str, destination: Path, **options: Any) -> Path:
    """Copy an adapter's two files from the store into `destination`, which appears by rename.

    `options` are of the store's fsspec file system.

    Raises ArtifactError when a file is missing or too large, StoreUnavailable when the store does not answer.
    """
    temporary = destination.with_name(destination.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with _store(uri, options) as (filesystem, root):
            remaining = MAXIMUM_ADAPTER_BYTES
            for name in ADAPTER_FILES:
                try:
                    remaining -= _copy(filesystem, f"{root}/{name}", temporary / name, remaining)
                except FileNotFoundError as error:
                    if _is_outage(error):
                        raise
                    raise ArtifactError(f"{uri} is no adapter folder: {_missing(filesystem, root, name)}") from error
        shutil.rmtree(destination, ignore_errors=True)
        temporary.rename(destination)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return destination


def fetch_file(uri: str, destination: Path, **options: Any) -> None:
    """Copy one file from the store. Raises as `fetch_adapter`."""
    with _store(uri, options) as (filesystem, path):
        if not filesystem.isfile(path):
            raise ArtifactError(f"{uri} is no file")
        _copy(filesystem, path, destination, MAXIMUM_ADAPTER_BYTES)


@contextmanager
def _store(uri: str, options: dict[str, Any]) -> Iterator[tuple[fsspec.AbstractFileSystem, str]]:
    """The file system and path of a URI; what goes wrong inside becomes an ArtifactError, each store has its own."""
    scheme = uri.partition("://")[0] if "://" in uri else "file"
    if "::" in uri or scheme not in SCHEMES:
        raise ArtifactError(f"{uri} cannot be read: an address begins with one of {', '.join(SCHEMES)}")
    try:
        filesystem, path = fsspec.core.url_to_fs(uri, **options)
        if scheme == "file" and not filesystem.exists(path):
            path = unquote(path)  # as in `Path.as_uri`; fsspec takes and gives paths as they are
        yield filesystem, path.rstrip("/")
    except ArtifactError:
        raise
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError) as error:
        if not _is_outage(error):
            raise ArtifactError(f"{uri} cannot be read: {error}") from error
        raise StoreUnavailable(f"{uri}: its store does not answer ({error.__cause__})") from error
    except ImportError as error:
        raise ArtifactError(f"{uri} cannot be read here: {error}; install it, or use another store") from error
    except Exception as error:
        raise StoreUnavailable(f"{uri}: its store does not answer ({type(error).__name__}: {error})") from error


def _is_outage(error: Exception) -> bool:
    """fsspec's web store says "not found" of a server that cannot be reached too, and keeps the reason as the cause."""
    cause = error.__cause__
    return (
        isinstance(error, FileNotFoundError) and isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    )


def _missing(filesystem: fsspec.AbstractFileSystem, root: str, name: str) -> str:
    if filesystem.exists(f"{root}/adapter_model.bin"):
        return "adapter_model.bin is a pickle, which is never loaded; save with safe_serialization=True"
    return f"it has no {name}; it needs {' and '.join(ADAPTER_FILES)}"


def _copy(filesystem: fsspec.AbstractFileSystem, path: str, target: Path, maximum: int) -> int:
    """Bytes copied. A store may not know a file's size, or say a wrong one: what arrives is counted."""
    size = filesystem.size(path)
    copied = 0
    if (size or 0) <= maximum:
        with filesystem.open(path, "rb") as source, target.open("wb") as file:
            while copied <= maximum and (part := source.read(COPY_BYTES)):
                copied += file.write(part)
    if max(size or 0, copied) > maximum:
        raise ArtifactError(f"{path} has {size or 'more than ' + str(maximum)} bytes: no adapter is that large")
    return copied
