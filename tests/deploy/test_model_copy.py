"""A model comes out of an object store whole or not at all."""

from pathlib import Path

import pytest

from services.inference.engine.model_copy import copy_model


def test_a_model_is_copied_once(tmp_path: Path) -> None:
    source = tmp_path / "store" / "model"
    (source / "sub").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    (source / "sub" / "weights").write_bytes(b"1234")
    target = tmp_path / "models" / "mine"
    assert copy_model(f"file://{source}", target)
    assert (target / "config.json").read_text() == "{}" and (target / "sub" / "weights").read_bytes() == b"1234"
    (source / "config.json").write_text("changed")
    assert not copy_model(f"file://{source}", target)
    assert (target / "config.json").read_text() == "{}"


def test_what_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json"):
        copy_model(f"file://{tmp_path}/none", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_half_a_copy_of_a_killed_pod_is_thrown_away(tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.mkdir()
    (source / "config.json").write_text("{}")
    (tmp_path / "target.partial").mkdir()
    (tmp_path / "target.partial" / "old").write_text("half")
    assert copy_model(f"file://{source}", tmp_path / "target")
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["config.json"]
