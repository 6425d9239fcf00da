"""The served base's modules and their shapes, read from its checkpoint's headers: no torch, no weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.inference.adapters.safetensors_header import read_header

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"

NOT_LINEAR = ("embed_tokens", "lm_head", "norm")
"""Last parts of modules whose weight is a matrix, or looks like one, and is no linear layer of the transformer."""


class BaseUnreadable(Exception):
    """The base's folder is missing or holds no safetensors checkpoint; the message names the fix."""


@dataclass(frozen=True)
class Linear:
    """A linear layer."""

    outputs: int
    inputs: int


def read_modules(folder: Path) -> dict[str, Linear]:
    """Module name (e.g. `model.layers.0.self_attn.q_proj`) to shape, linear layers only. Raises BaseUnreadable."""
    try:
        if (folder / INDEX_FILE).exists():
            weight_map: Mapping[str, str] = json.loads((folder / INDEX_FILE).read_text())["weight_map"]
            files = sorted(set(weight_map.values()))
        else:
            files = [SINGLE_FILE]
        tensors = {name: tensor for file in files for name, tensor in read_header(folder / file).items()}
    except (OSError, ValueError, KeyError) as error:
        raise BaseUnreadable(f"SQLCLIMB_MODEL={folder} holds no safetensors checkpoint: {error}") from error
    modules = {}
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        if part == "weight" and len(tensor.shape) == 2 and not module.endswith(NOT_LINEAR):
            modules[module] = Linear(*tensor.shape)
    if not modules:
        raise BaseUnreadable(f"SQLCLIMB_MODEL={folder} has no linear layer in its checkpoint")
    return modules


def find_folder(model: str) -> Path:
    """The model's folder: itself, or the local Hugging Face cache's snapshot of a name. Raises BaseUnreadable."""
    if Path(model).is_dir():
        return Path(model)
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, local_files_only=True))
    except (ImportError, OSError, ValueError) as error:
        raise BaseUnreadable(
            f"SQLCLIMB_MODEL={model} is no folder and not in the Hugging Face cache "
            f"({type(error).__name__}); the engine fetches it when it starts"
        ) from error
