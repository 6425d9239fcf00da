"""Adapters with planted faults, made from a good one: what training code and careless exports really produce."""

import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.inference.bases import rename

WEIGHTS = "adapter_model.safetensors"
Change = Callable[[Path], None]


def copy(adapter: Path, folder: Path, *changes: Change) -> Path:
    """A copy with these changes made to it."""
    shutil.copytree(adapter, folder)
    for change in changes:
        change(folder)
    return folder


def names(renames: Mapping[str, str]) -> Change:
    """Tensor names with each key replaced by its value."""

    def change(folder: Path) -> None:
        save_file(rename(load_file(folder / WEIGHTS), renames), folder / WEIGHTS)

    return change


def config(**fields: Any) -> Change:
    """adapter_config.json with these fields."""

    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def tensors(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """The tensors, edited."""

    def change(folder: Path) -> None:
        save_file(edit(load_file(folder / WEIGHTS)), folder / WEIGHTS)

    return change


def truncated(folder: Path) -> None:
    """The file ends early."""
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def pickled(folder: Path) -> None:
    """The weights are a pickle under PEFT's other name."""
    (folder / WEIGHTS).unlink()
    (folder / "adapter_model.bin").write_bytes(pickle.dumps({"weight": 1}))


def raised_rank(found: dict[str, Any]) -> dict[str, Any]:
    """Rank 64: padded with zeros."""
    return {
        name: np.pad(t, ((0, 64 - t.shape[0]), (0, 0)) if "lora_A" in name else ((0, 0), (0, 64 - t.shape[1])))
        for name, t in found.items()
    }


def other_base(found: dict[str, Any]) -> dict[str, Any]:
    """Of a base that is twice as wide."""
    return {name: np.concatenate([t, t], axis=1) if "lora_A" in name else t for name, t in found.items()}


def with_bias(found: dict[str, Any]) -> dict[str, Any]:
    """Each adapted layer's bias beside it."""
    biases = {
        name.replace("lora_B.weight", "bias"): np.ones(t.shape[0], np.float32)
        for name, t in found.items()
        if "lora_B" in name
    }
    return found | biases


def with_magnitudes(found: dict[str, Any]) -> dict[str, Any]:
    """DoRA's vectors beside each pair."""
    vectors = {
        name.replace("lora_B.weight", "lora_magnitude_vector"): np.ones(t.shape[0], np.float32)
        for name, t in found.items()
        if "lora_B" in name
    }
    return found | vectors


def with_head(found: dict[str, Any]) -> dict[str, Any]:
    """An adapted lm_head."""
    return found | {
        "base_model.model.lm_head.lora_A.weight": np.ones((8, 64), np.float32),
        "base_model.model.lm_head.lora_B.weight": np.ones((515, 8), np.float32),
    }


def zero_b(found: dict[str, Any]) -> dict[str, Any]:
    """Not trained at all."""
    return {name: t * 0 if "lora_B" in name else t for name, t in found.items()}


BROKEN: dict[str, tuple[tuple[Change, ...], str]] = {
    "wrong prefix": ((names({".model.layers": ".transformer.h"}),), "name no linear layer of the base"),
    "layer that does not exist": ((names({"layers.1.": "layers.7."}),), "name no linear layer of the base"),
    "wrong module": ((names({"self_attn": "attention"}),), "name no linear layer of the base"),
    "rank above the limit": ((tensors(raised_rank), config(r=64)), "rank 64 is above the engine's limit of 32"),
    "DoRA": ((tensors(with_magnitudes), config(use_dora=True)), "does not apply DoRA"),
    "DoRA, unsaid": ((tensors(with_magnitudes),), "does not apply DoRA"),
    "trained bias": ((tensors(with_bias), config(bias="lora_only")), "trained biases"),
    "trained bias, unsaid": ((tensors(with_bias),), ".bias"),
    "modules_to_save": ((config(modules_to_save=["lm_head"]),), "modules_to_save"),
    "lm_head": ((tensors(with_head),), "embeddings and lm_head are not served"),
    "alpha missing": ((config(lora_alpha=None),), "needs a rank and an alpha"),
    "truncated file": ((truncated,), "no safetensors file"),
    "pickle": ((pickled,), "is a pickle, which is never loaded"),
    "zero B": ((tensors(zero_b),), "every lora_B is zero"),
    "wrong base": ((tensors(other_base),), "is this the base it was trained on?"),
}
"""Name to what is changed, and what the refusal says."""
