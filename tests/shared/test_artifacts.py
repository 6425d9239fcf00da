from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from shared.artifacts import ArtifactError, adapter_digest, fetch_adapter, publish_folder, store_file


def make_adapter(folder: Path, value: float = 1.0, order: tuple[str, ...] = ("b", "a")) -> Path:
    folder.mkdir(parents=True)
    tensors = {name: np.full((2, 3), value, dtype=np.float32) for name in order}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"made": order[0]})
    (folder / "adapter_config.json").write_text("{}")
    return folder


def test_the_digest_depends_on_tensors_only(tmp_path: Path) -> None:
    first = adapter_digest(make_adapter(tmp_path / "1"))
    assert first == adapter_digest(make_adapter(tmp_path / "2", order=("a", "b")))
    assert first != adapter_digest(make_adapter(tmp_path / "3", value=1.5))
    assert first != adapter_digest(make_adapter(tmp_path / "4", order=("a", "c")))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    file = make_adapter(tmp_path / "1") / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ArtifactError, match="no safetensors"):
        adapter_digest(file.parent)


def test_publish_and_fetch_carry_an_adapter_through_a_store(tmp_path: Path) -> None:
    source = make_adapter(tmp_path / "source")
    store = (tmp_path / "store").as_uri()
    uri = publish_folder(source, store, "runs", "r", "adapters", "r-s1-0123abcd")
    assert publish_folder(source, store, "runs", "r", "adapters", "r-s1-0123abcd") == uri
    fetched = fetch_adapter(uri, tmp_path / "cache" / "r-s1-0123abcd")
    assert adapter_digest(fetched) == adapter_digest(source)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_publishing_that_was_cut_short_is_completed_by_the_next(tmp_path: Path) -> None:
    source, store = make_adapter(tmp_path / "trained"), (tmp_path / "artifacts").as_uri()
    place = ("runs", "r", "adapters", "r-s1-0123abcd")
    store_file(source / "adapter_config.json", store, *place, "adapter_config.json")
    assert adapter_digest(fetch_adapter(publish_folder(source, store, *place), tmp_path / "c")) == adapter_digest(
        source
    )


def test_a_missing_adapter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"nowhere.*adapter_model.safetensors"):
        fetch_adapter((tmp_path / "nowhere").as_uri(), tmp_path / "cache")
