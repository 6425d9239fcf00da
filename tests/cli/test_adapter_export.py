"""An adapter's folder for others: the model card, and a push to a stand-in of the hub."""

import base64
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.adapter_export import Measured, model_card, push_folder, unpack, write_card
from cli.context import UsageError
from cli.stack.stack import StackError
from shared.contracts.inference import Adapter, AdapterKind, AdapterState, Layout, ProbeResult
from shared.contracts.measuring import Delta, DeltaLine, DeltaVerdict, Estimate
from shared.contracts.rollout import Progress, Sampling, SamplingRequest, SamplingState

ADAPTER = Adapter(
    name="night-s40-0123abcd",
    run_id="night",
    step=40,
    uri="file:///store/night",
    base="base",
    digest="0123abcd" + "0" * 56,
    kind=AdapterKind.TRAINED,
    state=AdapterState.READY,
    probe=ProbeResult(served_minus_publisher=2e-6, base_minus_publisher=0.2, served_minus_base=0.2, tokens=64),
)


def measured() -> Measured:
    """A delta that moved."""
    estimate = Estimate(value=0.083, low=0.056, high=0.110)
    line = DeltaLine(slice="all", metric="pass@1", tasks=500, before=0.561, after=0.643, delta=estimate, p_value=0.0005)
    delta = Delta(
        before=["shop-base"],
        after=["shop-after"],
        before_policy="base",
        after_policy="night@40",
        verdict=DeltaVerdict.MOVED,
        sentence="More reliable.",
        differences=[],
        detectable_effect=0.031,
        lines=[line],
        gained=[],
        lost=[],
    )
    sampling = Sampling(
        sampling_id="shop-after",
        request=SamplingRequest(sampling_id="shop-after", domain="shop", policy="night@40"),
        state=SamplingState.DONE,
        progress=Progress(
            wanted=2000, landed=2000, rerolled=0, lost={}, rows_per_second=1, tokens_per_second=1, eta_seconds=None
        ),
        policy_name=ADAPTER.name,
        adapter_digest=ADAPTER.digest,
        task_set_digest="ab" * 32,
        prompt_hash="cd" * 32,
        created_at=datetime.now(UTC),
    )
    return Measured(delta, sampling)


def test_card_says_of_what_it_was_made_what_it_gains_and_how_that_was_measured() -> None:
    card = model_card(ADAPTER, "Qwen/Qwen3-4B", Layout.VLLM, 16, measured())
    assert card.startswith("---\nbase_model: Qwen/Qwen3-4B\nlibrary_name: peft\n")
    for words in (
        ADAPTER.digest,
        "| run, step | `night`, 40 |",
        "**moved**: More reliable.",
        "| all | pass@1 | 500 | 0.561 | 0.643 | +0.083 [+0.056, +0.110] | 0.0005 |",
        "domain `shop`, split `holdout`",
        "k 4, temperature 0.7",
        "task set `" + "ab" * 8,
        "--max-lora-rank 16 --lora-modules night-s40-0123abcd=",
        "served and trainer differ by 2.00e-06",
    ):
        assert words in card


def test_card_of_what_nobody_measured_claims_nothing() -> None:
    card = model_card(ADAPTER, "", Layout.PEFT, 4, None)
    assert "Not measured" in card
    assert "PeftModel.from_pretrained" in card
    assert "+0." not in card


def test_tar_that_leads_out_of_the_folder_writes_nothing_outside(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(content.getvalue(), tmp_path / "folder")
    assert not (tmp_path / "outside").exists()


class Hub:
    """What the stand-in was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, bytes] = {}
        self.tokens: set[str] = set()


@contextmanager
def hub() -> Iterator[tuple[str, Hub]]:
    """A stand-in that speaks as much of the hub's protocol as a small commit needs."""
    seen = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self._body()
            seen.tokens.add(self.headers["authorization"])
            if self.path.startswith("/api/repos/create"):
                seen.calls.append(("create", json.loads(body)))
                self._answer({"url": f"{url}/team/night", "id": "team/night"})
            elif "/preupload/" in self.path:
                names = [file["path"] for file in json.loads(body)["files"]]
                regular = {"uploadMode": "regular", "shouldIgnore": False}
                self._answer({"files": [{"path": name, **regular} for name in names]})
            elif self.path == "/api/validate-yaml":  # the card's front matter
                seen.calls.append(("validate", json.loads(body)))
                self._answer({"errors": [], "warnings": []})
            else:
                for line in body.splitlines():
                    entry = json.loads(line)
                    if entry["key"] == "file":
                        seen.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                commit = {"commitUrl": f"{url}/team/night/commit/1", "commitOid": "1", "commitMessage": "x"}
                self._answer({"success": True, **commit})

        def _body(self) -> bytes:
            if "content-length" in self.headers:
                return self.rfile.read(int(self.headers["content-length"]))
            parts = []
            while size := int(self.rfile.readline(), 16):  # chunked
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            return b"".join(parts)

        def do_GET(self) -> None:
            self._answer({"sha": "0", "id": "team/night", "siblings": []})

        def _answer(self, content: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url, seen
    finally:
        server.shutdown()
        server.server_close()


def test_folder_is_pushed_to_the_hub_with_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_card(tmp_path, model_card(ADAPTER, "m", Layout.PEFT, 8, None))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    with hub() as (url, seen):
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        assert push_folder(tmp_path, "team/night").startswith(f"{url}/team/night")
    assert seen.tokens == {"Bearer hf_secret"}
    calls = dict(seen.calls)
    assert calls["create"]["visibility"] == "private"
    assert "base_model: m" in calls["validate"]["content"]
    assert seen.files["adapter_model.safetensors"] == b"weights"
    assert seen.files["README.md"].startswith(b"---\nbase_model: m\n")


def test_push_without_a_token_or_a_hub_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(UsageError, match="HF_TOKEN"):
        push_folder(tmp_path, "team/night")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StackError, match="the folder was written") as caught:
        push_folder(tmp_path, "team/night")
    assert "hf_secret" not in str(caught.value)
    with pytest.raises(StackError, match="the folder was written"):
        push_folder(tmp_path, "not a name")
