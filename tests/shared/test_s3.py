"""The artifact store in S3: adapters, uploads and checkpoints against a server that speaks its protocol.

s3fs and moto want older versions of what others pin, so they are installed elsewhere, without what the environment has:
`pip install --target FOLDER s3fs==2026.9.0 "moto[s3,server]"`, then FOLDER at the end of `sys.path`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import httpx
import pytest

from cli.stack.home import free_ports
from services.trainer.job.checkpoints import RunFolder
from services.trainer.job.copies import CheckpointCopies
from shared.artifacts import StoreUnavailable, adapter_digest, fetch_adapter, fetch_file, publish_folder, store_file
from tests.shared.test_artifacts import make_adapter
from tests.trainer.test_copies import copies_in, sealed

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

STORE = "s3://climb/team"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server with one bucket, found by the names that the chart sets."""
    s3fs = pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-a-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    httpx.post(f"http://127.0.0.1:{port}/moto-api/reset").raise_for_status()  # one memory for all servers of a process
    s3fs.S3FileSystem.clear_instance_cache()
    fsspec.filesystem("s3").mkdir("climb")
    yield
    server.stop()
    s3fs.S3FileSystem.clear_instance_cache()


def test_an_adapter_is_published_and_fetched(s3: None, tmp_path: Path) -> None:
    source, place = make_adapter(tmp_path / "trained"), ("runs", "night", "adapters", "night-s1-0123abcd")
    uri = publish_folder(source, STORE, *place)
    assert uri == f"{STORE}/{'/'.join(place)}" == publish_folder(source, STORE, *place)
    assert adapter_digest(fetch_adapter(uri, tmp_path / "cache")) == adapter_digest(source)
    assert sorted(path.rpartition("/")[2] for path in fsspec.filesystem("s3").find("climb")) == [
        *("adapter_config.json", "adapter_model.safetensors")
    ]


def test_an_upload_is_stored_and_fetched(s3: None, tmp_path: Path) -> None:
    (tmp_path / "sent.zip").write_bytes(b"adapter")
    fetch_file(store_file(tmp_path / "sent.zip", STORE, "uploads", "0123.zip"), tmp_path / "fetched.zip")
    assert (tmp_path / "fetched.zip").read_bytes() == b"adapter"


def test_a_run_goes_on_without_its_disk(s3: None, tmp_path: Path) -> None:
    folder, copies = RunFolder(tmp_path / "disk", "night", 1), CheckpointCopies(STORE, "night")
    copies.bring_newest(folder)
    assert folder.newest() is None
    assert [copies.begin(sealed(folder, step)) for step in (1, 2, 3)] == [""] * 3 and copies.finish() == ""
    assert copies_in(STORE) == {"2-1", "3-1"}
    shutil.rmtree(tmp_path / "disk")
    CheckpointCopies(STORE, "night").bring_newest(folder)
    newest = folder.newest()
    assert newest is not None and newest.order == (1, 3)
    assert (newest.folder / "nested" / "optimizer.pt").read_text() == "moments of 3"


def test_a_store_that_is_away_is_said(s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    type(fsspec.filesystem("s3")).clear_instance_cache()
    with pytest.raises(StoreUnavailable, match="checkpoints cannot be read from climb/team/runs/night/checkpoints"):
        CheckpointCopies(STORE, "night").bring_newest(RunFolder(tmp_path, "night", 1))
