"""Writes an adapter as the served base needs it: names of its checkpoint, projections fused or apart as it has them."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import TensorSpec, serialize_file

from services.inference.adapters.layouts import LORA_PREFIX, Placement, placement_scale
from services.inference.adapters.safetensors_header import Tensor, read_words

DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The header's name of a type to the writer's."""

Words = npt.NDArray[np.unsignedinteger[Any]]


def is_served_layout(placements: Sequence[Placement]) -> bool:
    """True when the file already has the base's own names and projections."""
    return all(
        placement.rows is None
        and not placement.fused
        and [pair.names for _, pair in placement.parts]
        == [(tensor_name(placement.module, "A"), tensor_name(placement.module, "B"))]
        for placement in placements
    )


def tensor_name(module: str, side: str) -> str:
    """As PEFT names it, and vLLM reads it."""
    return f"{LORA_PREFIX}{module}.lora_{side}.weight"


def translate(folder: Path, placements: Sequence[Placement], config: Mapping[str, Any]) -> None:
    """Replace the adapter in `folder` by the same adapter in the served layout. The maps it computes are unchanged."""
    source = folder / "adapter_model.safetensors"
    written: dict[str, Words] = {}
    dtypes: dict[str, str] = {}
    for placement in placements:
        a, b = _matrices(source, placement)
        for side, matrix in (("A", a), ("B", b)):
            name = tensor_name(placement.module, side)
            written[name] = np.ascontiguousarray(matrix)
            dtypes[name] = DTYPES[placement.parts[0][1].a.dtype]
    specs = {
        name: TensorSpec(dtype=dtypes[name], shape=list(words.shape), data_ptr=words.ctypes.data, data_len=words.nbytes)
        for name, words in written.items()
    }
    serialize_file(specs, source.with_suffix(".new"), {"format": "pt"})
    source.with_suffix(".new").replace(source)
    (folder / "adapter_config.json").write_text(json.dumps(served_config(placements, config), indent=1))


def served_config(placements: Sequence[Placement], config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with targets and patterns in the base's names."""
    ranks, alphas = {}, {}
    for placement in placements:
        scale = placement_scale(placement, config)
        if scale.rank != config["r"]:
            ranks[re.escape(placement.module)] = scale.rank
        if scale.alpha != config["lora_alpha"]:
            alphas[re.escape(placement.module)] = scale.alpha
    targets = sorted({placement.module.rpartition(".")[2] for placement in placements})
    return {**config, "target_modules": targets, "rank_pattern": ranks, "alpha_pattern": alphas}


def _matrices(source: Path, placement: Placement) -> tuple[Words, Words]:
    """A (rank, inputs) and B (outputs, rank) as raw words."""
    parts = [(start, _matrix(source, pair.a), _matrix(source, pair.b)) for start, pair in placement.parts]
    if not placement.fused:
        _, a, b = parts[0]
        return a, b if placement.rows is None else b[slice(*placement.rows)]
    a = np.concatenate([part for _, part, _ in parts])
    b = np.zeros((placement.outputs, len(a)), a.dtype)
    column = 0
    for start, _, part in parts:
        b[start : start + part.shape[0], column : column + part.shape[1]] = part
        column += part.shape[1]
    return a, b


def _matrix(source: Path, tensor: Tensor) -> Words:
    return read_words(source, tensor).reshape(tensor.shape)
