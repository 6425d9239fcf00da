"""Adapters as one zip or tar. Of one that comes, two named files are taken out, and nothing else is ever written."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from shared.artifacts import ADAPTER_FILES, COPY_BYTES, MAXIMUM_ADAPTER_BYTES, ArtifactError, StoreUnavailable

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")

ZIP_MAGIC, GZIP_MAGIC = b"PK\x03\x04", b"\x1f\x8b"

MAXIMUM_MEMBERS = 1000
"""An adapter's folder holds a dozen files."""


@dataclass(frozen=True)
class Member:
    """One entry of an archive."""

    name: str
    is_file: bool
    is_folder: bool


def is_archive(uri: str) -> bool:
    """By the end of its name."""
    return uri.lower().endswith(SUFFIXES)


class Bounded(io.RawIOBase):
    """A file that gives up on an archive whose headers ask for more than an adapter's can.

    `zipfile` and `tarfile` read a directory, a long name or a pax header of any size in one piece, and skip members by
    unpacking them: a few compressed megabytes would take all memory, or hours.
    """

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Raises ArtifactError for more than `COPY_BYTES` at once."""
        if size <= COPY_BYTES:
            found = self._file.read(size if size >= 0 else COPY_BYTES + 1)
            if len(found) <= COPY_BYTES:
                return found
        raise ArtifactError(f"a header of the archive has over {COPY_BYTES} bytes: no adapter's has")

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Raises ArtifactError for a place that no adapter's archive has."""
        if whence == io.SEEK_SET and offset > MAXIMUM_ADAPTER_BYTES:
            raise ArtifactError(f"the archive has over {MAXIMUM_ADAPTER_BYTES} bytes: no adapter is so large")
        return self._file.seek(offset, whence)


def unpack(archive: Path, folder: Path) -> None:
    """Write the adapter's two files of an archive into `folder`, wherever in it they lie.

    Raises ArtifactError for an archive that is broken, holds a link or a name that leads out of it, or too much, and
    StoreUnavailable when this machine's disk fails.
    """
    folder.mkdir(parents=True)
    try:
        with _open(archive) as (members, read):
            found = _choose(members)
            remaining = MAXIMUM_ADAPTER_BYTES
            for name, member in found.items():
                with read(member) as source, (folder / name).open("wb") as target:
                    while part := source.read(COPY_BYTES):  # what a header says of its size is not believed
                        remaining -= target.write(part)
                        if remaining < 0:
                            raise ArtifactError(
                                f"its files have over {MAXIMUM_ADAPTER_BYTES} bytes: no adapter is so large"
                            )
    except ArtifactError:
        raise
    except Exception as error:  # what these parsers raise on bytes made to break them is no closed set
        if isinstance(error, OSError) and error.errno is not None:
            raise StoreUnavailable(f"the archive could not be unpacked here: {error}") from error
        raise ArtifactError(f"the archive cannot be read: {error}") from error


def pack(folder: Path, archive: Path) -> None:
    """A tar of the adapter's two files."""
    with tarfile.open(archive, "w") as tarred:
        for name in ADAPTER_FILES:
            tarred.add(folder / name, name)


def _choose(members: list[Member]) -> dict[str, str]:
    """File of an adapter to the member that holds it."""
    found: dict[str, str] = {}
    for member in members:
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in member.name:
            raise ArtifactError(f"the archive holds {member.name!r}, which leads out of it: refused whole")
        if not (member.is_file or member.is_folder):
            raise ArtifactError(f"the archive holds {member.name!r}, which is a link or a device: refused whole")
        if member.is_file and path.name in ADAPTER_FILES:
            if path.name in found:
                raise ArtifactError(f"the archive holds two {path.name}: which is the adapter?")
            found[path.name] = member.name
    missing = [name for name in ADAPTER_FILES if name not in found]
    if missing:
        raise ArtifactError(f"the archive has no {' and no '.join(missing)}")
    return found


class _Reader:
    """Opens a member of either kind of archive."""

    def __init__(self, archive: zipfile.ZipFile | tarfile.TarFile) -> None:
        self._archive = archive

    def __call__(self, name: str) -> IO[bytes]:
        if isinstance(self._archive, zipfile.ZipFile):
            return self._archive.open(name)
        file = self._archive.extractfile(name)
        assert file is not None, f"{name} was listed as a file"
        return file


@contextmanager
def _open(archive: Path) -> Iterator[tuple[list[Member], _Reader]]:
    with archive.open("rb") as file:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(Bounded(file)) as zipped:
                entries = zipped.infolist()[: MAXIMUM_MEMBERS + 1]
                yield (
                    _counted([Member(e.filename, not e.is_dir() and not _is_link(e), e.is_dir()) for e in entries]),
                    _Reader(zipped),
                )
            return
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        file.seek(0)
        with (
            gzip.GzipFile(fileobj=file) if packed else file as plain,
            tarfile.open(fileobj=Bounded(plain), mode="r:") as tarred,
        ):
            members = []
            for entry in tarred:
                members.append(Member(entry.name, entry.isfile(), entry.isdir()))
                if len(members) > MAXIMUM_MEMBERS:
                    break
            yield _counted(members), _Reader(tarred)


def _counted(members: list[Member]) -> list[Member]:
    if len(members) > MAXIMUM_MEMBERS:
        raise ArtifactError(f"the archive holds over {MAXIMUM_MEMBERS} files: no adapter does")
    return members


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return (entry.external_attr >> 28) == 0xA  # the upper 16 bits are st_mode, its type 0o12 for a link
