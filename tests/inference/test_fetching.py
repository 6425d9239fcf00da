"""Where an adapter's files come from, and what of it is never believed: sizes, archives, pickles, addresses."""

import io
import json
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cli.stack.home import free_ports
from services.inference.adapters.checks import AdapterRefused
from services.inference.adapters.fetching import Fetcher
from services.inference.adapters.public_web import public_client
from shared import artifacts
from shared.artifacts import ADAPTER_FILES, StoreUnavailable, adapter_digest, fetch_adapter
from shared.contracts.inference import AdapterRequest, Layout
from shared.egress import PUBLIC, EgressRule

NAME = "run-s1-00000000"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter of `base`, trained on a text model alone."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    prefix = "base_model.model.model.layers.0.mlp.down_proj"
    tensors = {
        f"{prefix}.lora_A.weight": np.ones((2, 6), np.float32),
        f"{prefix}.lora_B.weight": np.ones((4, 2), np.float32),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["down_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    """For a base that is the text model of a wrapper."""
    base = tmp_path / "base"
    base.mkdir()
    weight = np.ones((4, 6), np.float32)
    save_file({"model.language_model.layers.0.mlp.down_proj.weight": weight}, base / "model.safetensors")
    return Fetcher(
        tmp_path / "cache", str(base), max_rank=8, egress=EgressRule((PUBLIC, "http://127.0.0.1"), "SETTING")
    )


async def reason(fetcher: Fetcher, uri: str) -> str:
    """Why what lies at `uri` is refused, after checking that nothing of it is left."""
    with pytest.raises(AdapterRefused) as caught:
        await fetcher.fetch(NAME, AdapterRequest(uri=uri, base="base", digest="0" * 64))
    assert not found_below(fetcher.cache)
    return str(caught.value)


def found_below(folder: Path) -> list[Path]:
    """Every file and folder."""
    return list(folder.rglob("*"))


def zipped(adapter: Path, archive: Path, *more: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    """A zip of the adapter's folder and more members."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ADAPTER_FILES:
            file.write(adapter / name, f"checkpoint-40/{name}")
        for member, content in more:
            file.writestr(member, content)
    return archive


def tarred(adapter: Path, archive: Path, *more: tarfile.TarInfo) -> Path:
    """A compressed tar of the adapter's folder and more members."""
    with tarfile.open(archive, "w:gz") as file:
        file.add(adapter, "checkpoint-40")
        for member in more:
            file.addfile(member, io.BytesIO(b"x" * member.size))
    return archive


@pytest.mark.parametrize("pack", [zipped, tarred])
async def test_archive_is_fetched_as_its_folder(
    adapter: Path, fetcher: Fetcher, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    archive = pack(adapter, tmp_path / ("a.zip" if pack is zipped else "a.tar.gz"))
    request = AdapterRequest(uri=archive.as_uri(), base="base", digest=adapter_digest(adapter))
    files = await fetcher.fetch(NAME, request)
    assert (files.tensors_placed, files.translated) == (2, True)
    assert sorted(path.name for path in files.folder.iterdir()) == sorted(ADAPTER_FILES)


async def test_archive_that_leads_out_of_its_folder_is_refused_whole(
    adapter: Path, fetcher: Fetcher, tmp_path: Path
) -> None:
    for evil in ("../../evil.json", "/etc/evil.json", "a\\..\\..\\evil.json", "C:/evil.json"):
        assert "leads out of it" in await reason(fetcher, zipped(adapter, tmp_path / "a.zip", (evil, b"x")).as_uri())
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    assert "a link or a device" in await reason(fetcher, zipped(adapter, tmp_path / "l.zip", (link, b"/etc")).as_uri())
    symlink = tarfile.TarInfo("adapter_config.json")
    symlink.type, symlink.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert "a link or a device" in await reason(fetcher, tarred(adapter, tmp_path / "l.tar.gz", symlink).as_uri())
    assert "evil" not in str(found_below(tmp_path))


async def test_archive_that_is_none_or_holds_too_much_is_refused(
    adapter: Path, fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 and then nothing")
    assert "cannot be read" in await reason(fetcher, (tmp_path / "no.zip").as_uri())
    twice = zipped(adapter, tmp_path / "twice.zip", ("other/adapter_config.json", b"{}"))
    assert "holds two adapter_config.json" in await reason(fetcher, twice.as_uri())
    many = zipped(adapter, tmp_path / "many.zip", *((f"{n}", b"") for n in range(1001)))
    assert "holds over 1000 files" in await reason(fetcher, many.as_uri())
    monkeypatch.setattr("services.inference.adapters.archives.MAXIMUM_ADAPTER_BYTES", 1000)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("adapter_config.json", b"{}")
        file.writestr("adapter_model.safetensors", bytes(10_000_000))
    assert "no adapter is so large" in await reason(fetcher, bomb.as_uri())


async def test_ten_gigabytes_are_refused_unread(adapter: Path, fetcher: Fetcher) -> None:
    with (adapter / "adapter_model.safetensors").open("r+b") as file:
        file.truncate(10 * 1024**3)  # sparse: it takes no room
    assert "has 10737418240 bytes: no adapter is that large" in await reason(fetcher, adapter.as_uri())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[" * 100_000, "cannot be read"),
        (" " * 5_000_000, "adapter_config.json has over"),
        ("\ud800", "cannot be read"),
    ],
    ids=["nested too deep", "megabytes of it", "no UTF-8"],
)
async def test_configuration_that_no_json_reader_takes_is_refused(
    adapter: Path, fetcher: Fetcher, config: str, words: str
) -> None:
    (adapter / "adapter_config.json").write_text(config, errors="surrogatepass")
    with pytest.raises(AdapterRefused, match=words):
        await fetcher.fetch(NAME, AdapterRequest(uri=adapter.as_uri(), base="base", digest=adapter_digest(adapter)))
    assert not found_below(fetcher.cache)


@contextmanager
def web(files: dict[str, bytes], endless: bool = False) -> Iterator[str]:
    """A web server of these files; endless ones never stop and never say how long they are."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            content = files.get(self.path.rpartition("/")[2])
            self.send_response(404 if content is None else 200)
            self.end_headers()
            if content is not None and self.command == "GET":
                self.wfile.write(content)
                while endless:
                    self.wfile.write(bytes(100_000))

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/runs/1"
    finally:
        server.shutdown()
        server.server_close()


async def test_store_that_never_stops_sending_is_cut_off(
    adapter: Path, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MAXIMUM_ADAPTER_BYTES", 300_000)
    monkeypatch.setattr(artifacts, "COPY_BYTES", 65_536)
    with web({name: (adapter / name).read_bytes() for name in ADAPTER_FILES}, endless=True) as uri:
        assert "more than 300000 bytes" in await reason(fetcher, uri)


async def test_web_store_serves_an_adapter_and_its_outage_is_no_refusal(adapter: Path, fetcher: Fetcher) -> None:
    request = AdapterRequest(uri="", base="base", digest=adapter_digest(adapter))
    with web({name: (adapter / name).read_bytes() for name in ADAPTER_FILES}) as uri:
        files = await fetcher.fetch(NAME, request.model_copy(update={"uri": uri}))
    assert files.tensors_placed == 2
    await fetcher.discard(files.folder)
    away = f"http://127.0.0.1:{free_ports(1)[0]}/runs/1"
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await fetcher.fetch(NAME, request.model_copy(update={"uri": away}))
    assert not found_below(fetcher.cache)


async def test_web_store_whose_name_or_redirect_leads_inside_is_not_connected_to(adapter: Path, tmp_path: Path) -> None:
    files = {name: (adapter / name).read_bytes() for name in ADAPTER_FILES}
    # as if its name had been public when it was checked
    with web(files) as uri, pytest.raises(StoreUnavailable, match="not public"):
        fetch_adapter(uri, tmp_path / "fetched", get_client=public_client)
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("name", ["a, b (c)", "100%20", "ü"])
async def test_folder_of_any_name_is_found_by_its_address(
    adapter: Path, fetcher: Fetcher, tmp_path: Path, name: str
) -> None:
    shutil.move(adapter, tmp_path / name)
    request = AdapterRequest(uri="", base="base", digest=adapter_digest(tmp_path / name))
    for uri in ((tmp_path / name).as_uri(), f"file://{tmp_path / name}"):
        files = await fetcher.fetch(NAME, request.model_copy(update={"uri": uri}))
        assert files.tensors_placed == 2


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file:///nowhere/at/all", "it has no adapter_config.json"),
        ("file:///nowhere/adapter.zip", "is no file"),
        ("simplecache::file:///etc", "an address begins with one of"),
        ("reference://x", "an address begins with one of"),
        ("ssh://root@host/x", "an address begins with one of"),
        ("http://169.254.169.254/latest", "not https: only what SETTING lists"),
        ("https://169.254.169.254/latest/a.zip", "not public"),
        ("https://localhost:8200/v1/secret", "not public"),
        ("https://[::1", "no address of a server"),
    ],
)
async def test_address_that_leads_nowhere_is_refused(fetcher: Fetcher, uri: str, words: str) -> None:
    assert words in await reason(fetcher, uri)


async def test_files_are_handed_out_as_trained_or_as_served(adapter: Path, fetcher: Fetcher, tmp_path: Path) -> None:
    request = AdapterRequest(uri=adapter.as_uri(), base="base", digest=adapter_digest(adapter))
    for layout, names in ((Layout.PEFT, "model.layers."), (Layout.VLLM, "model.language_model.layers.")):
        archive = await fetcher.archive(NAME, request, layout)
        with tarfile.open(archive) as file:
            file.extractall(tmp_path / layout, filter="data")
        assert f"base_model.model.{names}".encode() in (tmp_path / layout / "adapter_model.safetensors").read_bytes()
        archive.unlink()
    assert adapter_digest(tmp_path / Layout.PEFT) == request.digest
    assert not found_below(fetcher.cache)
