"""Archives whose bytes were made to break whoever opens them: refused at once, in little memory, nothing written."""

import gzip
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from services.inference.adapters.archives import unpack
from shared.artifacts import ADAPTER_FILES, MAXIMUM_ADAPTER_BYTES, ArtifactError, StoreUnavailable

MEBIBYTE = 1024**2
BOMB_MEBIBYTES = 64
"""Unpacked; packed it has some hundred kilobytes, and nothing but time limits how much an attacker sends."""


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def zip_of(path: Path, files: dict[str, bytes]) -> bytearray:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return bytearray(path.read_bytes())


def refusal(path: Path) -> str:
    """Why it is refused, after checking what that took."""
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError) as caught:
            unpack(path, path.with_name("unpacked"))
        assert tracemalloc.get_traced_memory()[1] < 32 * MEBIBYTE
    finally:
        tracemalloc.stop()
    assert not isinstance(caught.value, StoreUnavailable)
    return str(caught.value)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_that_unpacks_to_more_than_memory_is_not_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(header("x", BOMB_MEBIBYTES * MEBIBYTE, kind))
        for _ in range(BOMB_MEBIBYTES):
            file.write(bytes(MEBIBYTE))
    assert "a header of the archive has over" in refusal(path)


def test_a_member_larger_than_any_adapter_is_not_skipped_by_unpacking_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(header("big", MAXIMUM_ADAPTER_BYTES + 1) + bytes(4096)))
    assert f"has over {MAXIMUM_ADAPTER_BYTES} bytes" in refusal(path)


def test_a_member_of_negative_size_does_not_loop_for_ever(tmp_path: Path) -> None:
    raw = bytearray(header("x", 0))
    raw[124:136] = b"\xff" * 4 + struct.pack(">q", -512)
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    (tmp_path / "a.tar").write_bytes(raw * 4 + bytes(1024))
    assert "the archive h" in refusal(tmp_path / "a.tar")  # too many files, or not the right ones: Pythons differ


def test_a_directory_of_a_hundred_thousand_members_is_not_read(tmp_path: Path) -> None:
    entries = 100_000
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, *[0] * 7, 1, *[0] * 6) + b"a"
    directory = entry * entries
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), 0)
    where = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 47, 0, 0)
    (tmp_path / "a.zip").write_bytes(directory + wide + where + end)
    assert "a header of the archive has over" in refusal(tmp_path / "a.zip")


def test_bytes_that_no_parser_expects_are_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    files = dict.fromkeys(ADAPTER_FILES, b"{}" * 1000)
    deflated = zip_of(path, files)
    start = deflated.index(b"adapter_config.json") + len("adapter_config.json")
    deflated[start : start + 8] = b"\xff" * 8
    path.write_bytes(deflated)
    assert "cannot be read" in refusal(path)
    (tmp_path / "unpacked").rename(tmp_path / "first")
    named = zip_of(path, files)
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = named.index(signature)
        named[at + flags : at + flags + 2] = struct.pack("<H", 0x800)  # says that its name is UTF-8
    path.write_bytes(named.replace(b"adapter_config", b"\xff\xfe_pter_config"))
    assert "cannot be read" in refusal(path)


WITH_NO_ROOM = """
import pathlib, resource, sys
from services.inference.adapters.archives import unpack
from shared.artifacts import StoreUnavailable
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    unpack(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
except StoreUnavailable as error:
    print(error)
"""


def test_a_disk_that_takes_no_more_is_no_fault_of_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    zip_of(path, dict.fromkeys(ADAPTER_FILES, bytes(1000)))
    done = subprocess.run(
        [sys.executable, "-c", WITH_NO_ROOM, path, tmp_path / "unpacked"], check=True, capture_output=True, text=True
    )
    assert "could not be unpacked here: [Errno 27] File too large" in done.stdout
