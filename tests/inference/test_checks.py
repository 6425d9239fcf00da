"""Adapters with planted faults, refused from their files alone: no engine, no torch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from services.inference.adapters.base_model import BaseUnreadable, Linear, read_modules
from services.inference.adapters.checks import AdapterRefused, check_adapter, check_config
from services.inference.adapters.fetching import Fetcher
from shared.artifacts import adapter_digest
from shared.contracts.inference import AdapterKind, AdapterRequest
from shared.egress import EgressRule

Tensors = dict[str, npt.NDArray[Any]]

MODULES = {
    "model.layers.0.self_attn.q_proj": Linear(outputs=12, inputs=8),
    "model.layers.0.mlp.down_proj": Linear(outputs=8, inputs=20),
}
CONFIG: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "target_modules": ["q_proj"]}
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def good_tensors(rank: int = 4, b: float = 0.5) -> Tensors:
    """An adapter of every module of MODULES."""
    tensors: Tensors = {}
    for module, linear in MODULES.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = np.ones((rank, linear.inputs), np.float32)
        tensors[f"base_model.model.{module}.lora_B.weight"] = np.full((linear.outputs, rank), b, np.float32)
    return tensors


def write(folder: Path, tensors: Tensors, config: dict[str, Any] | None = None) -> Path:
    """An adapter folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG if config is None else config))
    return folder


def write_base(folder: Path) -> Path:
    """A base checkpoint with MODULES and what is no linear layer."""
    folder.mkdir()
    tensors = {f"{module}.weight": np.ones((m.outputs, m.inputs), np.float32) for module, m in MODULES.items()}
    tensors["model.embed_tokens.weight"] = np.ones((30, 8), np.float32)
    tensors["lm_head.weight"] = np.ones((30, 8), np.float32)
    save_file(tensors | {"model.norm.weight": np.ones(8, np.float32)}, folder / "model.safetensors")
    return folder


def reason(folder: Path, kind: AdapterKind = AdapterKind.TRAINED) -> str:
    """Why it is refused."""
    with pytest.raises(AdapterRefused) as caught:
        check_adapter(folder, MODULES, 8, kind)
    return str(caught.value)


def renamed(old: str, new: str) -> Tensors:
    return {name.replace(old, new): tensor for name, tensor in good_tensors().items()}


def test_good_adapter_places_every_tensor(tmp_path: Path) -> None:
    assert check_adapter(write(tmp_path, good_tensors()), MODULES, 8, AdapterKind.TRAINED).tensors == 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("model.layers", "transformer.h", "4 of 4 tensors name no linear layer of the base: base_model.model.tran"),
        ("self_attn", "attention", "2 of 4 tensors name no linear layer of the base: base_model.model.model.layers.0"),
        ("model.model.", "model.model.encoder.", "4 of 4 tensors name no linear layer"),
        ("layers.0.mlp", "layers.7.mlp", "2 of 4 tensors name no linear layer of the base: base_model.model.model.l"),
        ("lora_A.weight", "lora_A.other.weight", "2 of 4 tensors name no linear layer"),
        ("layers.0.self_attn.q_proj", "layers.0.self_attn.qkv_proj", "2 of 4 tensors name no linear layer"),
        ("model.layers.0.self_attn.q_proj", "lm_head", "embeddings and lm_head are not served"),
        ("self_attn.q_proj.lora_B.weight", "self_attn.q_proj.lora_magnitude_vector", "does not apply DoRA"),
    ],
)
def test_tensor_that_names_no_module_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert words in reason(write(tmp_path, renamed(old, new)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "trained biases"),
        ({"lora_bias": True}, "a bias in LoRA layers"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "changes the base's weights"),
        ({"peft_type": "LOHA"}, "only LORA is served"),
        ({"r": 16}, "rank 16 is above the engine's limit of 8"),
        ({"rank_pattern": {"q_proj": 32}}, "rank 32 is above"),
        ({"lora_alpha": 10**400}, "needs a rank and an alpha"),
        ({"r": 2}, "has rank 4, adapter_config.json says r=2"),
        ({"lora_alpha": None}, "needs a rank and an alpha"),
    ],
)
def test_configuration_the_engine_would_ignore_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    assert words in reason(write(tmp_path, good_tensors(), CONFIG | change))


def test_rank_above_the_limit_is_refused_whatever_the_configuration_says(tmp_path: Path) -> None:
    assert "rank 16, above" in reason(write(tmp_path, good_tensors(rank=16), CONFIG | {"rank_pattern": {"x": 1}}))


def test_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    tensors = good_tensors() | {f"{Q}.lora_A.weight": np.ones((4, 9), np.float32)}
    assert "is this the base it was trained on?" in reason(write(tmp_path, tensors))


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    tensors = good_tensors()
    del tensors[f"{Q}.lora_B.weight"]
    assert "lora_A or lora_B is missing for model.layers.0.self_attn.q_proj" in reason(write(tmp_path, tensors))


def test_trained_bias_in_the_tensors_is_refused(tmp_path: Path) -> None:
    tensors = good_tensors() | {f"{Q}.bias": np.ones(12, np.float32)}
    assert f"1 of 5 tensors name no linear layer of the base: {Q}.bias" in reason(write(tmp_path, tensors))


def test_empty_adapter_is_refused(tmp_path: Path) -> None:
    assert "holds no tensor" in reason(write(tmp_path, {}))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_b_zero_is_refused_as_trained_and_accepted_as_a_control(tmp_path: Path, zero: float) -> None:
    folder = write(tmp_path, good_tensors(b=zero))
    assert "every lora_B is zero" in reason(folder)
    assert check_adapter(folder, MODULES, 8, AdapterKind.CONTROL).tensors == 4


def test_trained_adapter_is_no_control(tmp_path: Path) -> None:
    assert "is no control" in reason(write(tmp_path, good_tensors()), AdapterKind.CONTROL)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_value_that_is_no_number_is_refused(tmp_path: Path, value: float, dtype: type[np.floating[Any]]) -> None:
    tensors = {name: tensor.astype(dtype) for name, tensor in good_tensors().items()}
    tensors[f"{Q}.lora_A.weight"][1, 1] = value
    assert "infinite or not numbers" in reason(write(tmp_path, tensors))


def test_integers_are_refused(tmp_path: Path) -> None:
    tensors = good_tensors() | {f"{Q}.lora_A.weight": np.ones((4, 8), np.int32)}
    assert "save as float32" in reason(write(tmp_path, tensors))


@given(share=st.floats(min_value=0.0, max_value=0.999))
def test_file_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    folder = write(tmp_path_factory.mktemp("cut"), good_tensors())
    path = folder / "adapter_model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "no complete safetensors file" in reason(folder)


@given(
    config=st.dictionaries(st.sampled_from([*CONFIG, "rank_pattern", "use_dora"]), st.none() | st.text() | st.floats())
)
def test_any_configuration_is_accepted_or_refused_with_a_reason(config: dict[str, Any]) -> None:
    try:
        check_config(config, 8)
    except AdapterRefused as refused:
        assert str(refused)
    else:
        assert config["peft_type"] == "LORA"


def test_pickle_in_place_of_safetensors_is_refused_unread(tmp_path: Path) -> None:
    folder = write(tmp_path, good_tensors())
    (folder / "adapter_model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'false'\ntR.")
    assert "no complete safetensors file" in reason(folder)


def test_base_modules_are_its_linear_layers_from_one_file_or_an_index(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    assert read_modules(base) == MODULES
    (base / "model.safetensors").rename(base / "part.safetensors")
    with pytest.raises(BaseUnreadable):
        read_modules(base)
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "part.safetensors"}}))
    assert read_modules(base) == MODULES


async def test_fetch_verifies_the_digest_uses_new_folders_and_leaves_nothing_refused(tmp_path: Path) -> None:
    adapter, cache = write(tmp_path / "adapter", good_tensors()), tmp_path / "cache"
    fetcher = Fetcher(cache, str(write_base(tmp_path / "base")), max_rank=8, egress=EgressRule((), "S"))
    request = AdapterRequest(uri=adapter.as_uri(), base="base", digest=adapter_digest(adapter))
    first, second = await fetcher.fetch("run-s1-00000000", request), await fetcher.fetch("run-s1-00000000", request)
    assert first.folder != second.folder
    assert first.tensors_placed == 4
    with pytest.raises(AdapterRefused, match="the tensors' digest is"):
        await fetcher.fetch("run-s1-00000000", request.model_copy(update={"digest": "0" * 64}))
    assert sorted(cache.iterdir()) == sorted([first.folder, second.folder])
