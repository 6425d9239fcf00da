"""One adapter saved in every layout that a base meets, each with what PEFT itself computes as the reference."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.inference import broken
from tests.inference.bases import Base
from tests.inference.broken import config, names, tensors
from tests.models import make_adapter

TEXT = ".model.layers."


@dataclass(frozen=True)
class Layout:
    """One way to save an adapter."""

    name: str
    reference: Path
    """As PEFT trains it on the text model alone."""
    saved: Path


def split_layouts(base: Base, folder: Path) -> Iterator[Layout]:
    """Of a base whose projections are apart."""
    plain = make_adapter(base.text, folder / "plain")
    wrapper = names({TEXT: ".model.language_model.layers."})
    for name, changes in {
        "PEFT on the text model": (),
        "PEFT on a wrapper, transformers 5": (wrapper,),
        "PEFT on a wrapper, transformers 4": (names({TEXT: ".language_model.model.layers."}),),
        "adapter's name inside (default)": (names({"lora_A.": "lora_A.default.", "lora_B.": "lora_B.default."}),),
        "without PEFT's prefix": (names({"base_model.model.": ""}),),
        "wrapper, default, bfloat16": (wrapper, names({"lora_A.": "lora_A.default."}), bfloat16),
    }.items():
        yield Layout(name, plain, broken.copy(plain, folder / name.replace(" ", "-"), *changes))
    stabilised = make_adapter(base.text, folder / "rslora", use_rslora=True, seed=2)
    yield Layout("rsLoRA on a wrapper", stabilised, broken.copy(stabilised, folder / "rslora-w", wrapper))
    patterns: dict[str, Any] = {
        "rank_pattern": {"layers.0.self_attn.q_proj": 4},
        "alpha_pattern": {"layers.1.mlp.down_proj": 64},
    }
    patterned = make_adapter(base.text, folder / "patterns", seed=3, **patterns)
    yield Layout(
        "rank and alpha patterns on a wrapper", patterned, broken.copy(patterned, folder / "patterns-w", wrapper)
    )
    shared = broken.copy(make_adapter(base.text, folder / "s", seed=4), folder / "shared", tensors(share_a))
    yield Layout(
        "fused qkv_proj, gate_up_proj", shared, broken.copy(shared, folder / "fused", tensors(fuse), all_targets)
    )
    yield Layout("fused, on a wrapper", shared, broken.copy(shared, folder / "fused-w", tensors(fuse), wrapper))


def fused_layouts(base: Base, folder: Path) -> Iterator[Layout]:
    """Of a base whose projections are fused: rank 24 there is three times rank 8 apart."""
    targets = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
    plain = make_adapter(base.text, folder / "plain", targets=targets)
    yield Layout("PEFT on the fused model", plain, plain)
    yield Layout(
        "fused, on a wrapper", plain, broken.copy(plain, folder / "w", names({TEXT: ".language_model.model.layers."}))
    )
    patterns = {"qkv_proj": 24, "gate_up_proj": 16}
    alphas = {name: 2 * rank for name, rank in patterns.items()}
    blocks = make_adapter(base.text, folder / "b", targets=targets, rank_pattern=patterns, alpha_pattern=alphas)
    reference = broken.copy(blocks, folder / "blocks", tensors(block_diagonal))
    apart = broken.copy(
        reference, folder / "apart", tensors(part), config(rank_pattern={}, alpha_pattern={}), all_targets
    )
    yield Layout("q, k, v and gate, up apart", reference, apart)


def all_targets(folder: Path) -> None:
    """What PEFT would have written for the modules that are there."""
    found = {name.partition(".lora_")[0].rpartition(".")[2] for name in load_file(folder / broken.WEIGHTS)}
    config(target_modules=sorted(found))(folder)


def bfloat16(folder: Path) -> None:
    """Half the bytes."""
    import torch
    from safetensors.torch import load_file as load_torch
    from safetensors.torch import save_file as save_torch

    path = folder / broken.WEIGHTS
    save_torch({name: tensor.to(torch.bfloat16) for name, tensor in load_torch(path).items()}, path)


PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
ROWS = {"q_proj": 64, "k_proj": 32, "v_proj": 32, "gate_proj": 128, "up_proj": 128}


def share_a(found: dict[str, Any]) -> dict[str, Any]:
    """One A for the parts of each projection, as training a fused one has it."""
    for first, *others in PARTS.values():
        for name in [name for name in found if f".{first}.lora_A" in name]:
            found |= {name.replace(first, other): found[name].copy() for other in others}
    return found


def fuse(found: dict[str, Any]) -> dict[str, Any]:
    """Parts with one A as one projection."""
    for fused, (first, *others) in PARTS.items():
        for name in [name for name in found if f".{first}." in name]:
            rest = [found.pop(name.replace(first, other)) for other in others]
            mine = found.pop(name)
            found[name.replace(first, fused)] = mine if "lora_A" in name else np.concatenate([mine, *rest])
    return found


def block_diagonal(found: dict[str, Any]) -> dict[str, Any]:
    """Each part's rows of B use rank 8 of their own."""
    for fused, parts in PARTS.items():
        for name in [name for name in found if f".{fused}.lora_B" in name]:
            mask, row = np.zeros_like(found[name]), 0
            for index, name_of_part in enumerate(parts):
                mask[row : row + ROWS[name_of_part], 8 * index : 8 * index + 8] = 1
                row += ROWS[name_of_part]
            found[name] = found[name] * mask
    return found


def part(found: dict[str, Any]) -> dict[str, Any]:
    """The blocks as adapters of their own."""
    for fused, parts in PARTS.items():
        for name in [name for name in found if f".{fused}." in name]:
            whole, row = found.pop(name), 0
            for index, name_of_part in enumerate(parts):
                ranks = slice(8 * index, 8 * index + 8)
                rows = slice(row, row + ROWS[name_of_part])
                cut = whole[ranks] if "lora_A" in name else whole[rows, ranks]
                found[name.replace(fused, name_of_part)] = cut.copy()
                row += ROWS[name_of_part]
    return found
