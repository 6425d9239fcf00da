"""What is wrong with an adapter, found in its files before vLLM sees it. vLLM accepts most of these and serves base."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.inference.base_model import Linear
from services.inference.safetensors_header import EXPONENT_MASKS, Tensor, is_finite, is_zero, read_header
from shared.artifacts import ArtifactError
from shared.contracts.inference import AdapterKind

NAMED = 3
"""How many faulty tensors a reason names."""

_LORA_TENSOR = re.compile(r"^base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight$")
_FUSED = ("qkv_proj", "gate_up_proj")

UNSUPPORTED: dict[str, str] = {
    "use_dora": "DoRA",
    "lora_bias": "a bias in LoRA layers",
    "modules_to_save": "whole modules beside LoRA (modules_to_save)",
    "layer_replication": "layer replication",
    "alora_invocation_tokens": "activated LoRA",
    "use_qalora": "QALoRA",
    "use_bdlora": "block-diagonal LoRA",
    "target_parameters": "LoRA on bare parameters",
    "trainable_token_indices": "trained token embeddings",
    "fan_in_fan_out": "transposed weights (fan_in_fan_out)",
}
"""Switches of a PEFT configuration that the engine does not apply."""

PLAIN_INITIALISERS = ("gaussian", "eva", "orthogonal")
"""Initialisers by name that leave the base's weights alone."""


class AdapterRefused(Exception):
    """The adapter cannot be served as it was trained; the message is the reason."""


def check_adapter(folder: Path, modules: Mapping[str, Linear], max_rank: int, kind: AdapterKind) -> int:
    """Number of tensors placed: all of them. Raises AdapterRefused, naming the first faults."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        path = folder / "adapter_model.safetensors"
        tensors = read_header(path)
    except (ArtifactError, OSError, ValueError) as error:
        raise AdapterRefused(str(error)) from error
    if not isinstance(config, dict):
        raise AdapterRefused("adapter_config.json is no JSON object")
    check_config(config, max_rank)
    if not tensors:
        raise AdapterRefused("the adapter holds no tensor")
    pairs = place(tensors, modules)
    check_shapes(pairs, modules, config, max_rank)
    check_values(path, pairs, kind)
    return len(tensors)


def check_config(config: Mapping[str, Any], max_rank: int) -> None:
    """Refuse what the engine would ignore. Raises AdapterRefused."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise AdapterRefused(f"adapter_config.json says peft_type {kind!r}: only LORA is served")
    found = [words for switch, words in UNSUPPORTED.items() if config.get(switch)]
    if config.get("bias", "none") != "none":
        found.append(f"trained biases (bias={config['bias']!r})")
    initialiser = config.get("init_lora_weights", True)
    if isinstance(initialiser, str) and initialiser.lower() not in PLAIN_INITIALISERS:
        found.append(f"init_lora_weights={initialiser!r}, which changes the base's weights")
    if found:
        raise AdapterRefused(f"the engine does not apply {', '.join(found)}: train plain LoRA")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise AdapterRefused(f"adapter_config.json needs a rank and an alpha, has r={rank!r}, lora_alpha={alpha!r}")
    largest = max([rank, *(config.get("rank_pattern") or {}).values()])
    if largest > max_rank:
        raise AdapterRefused(f"rank {largest} is above the engine's limit of {max_rank} (SQLCLIMB_MAX_LORA_RANK)")


def place(tensors: Mapping[str, Tensor], modules: Mapping[str, Linear]) -> dict[str, dict[str, Tensor]]:
    """Module to its A and B. Raises AdapterRefused unless every tensor is one side of a module of the base."""
    pairs: dict[str, dict[str, Tensor]] = {}
    unplaced = []
    for name in sorted(tensors):
        match = _LORA_TENSOR.match(name)
        if match is None or match["module"] not in modules:
            unplaced.append(name)
        else:
            pairs.setdefault(match["module"], {})[match["side"]] = tensors[name]
    if unplaced:
        raise AdapterRefused(
            f"{len(unplaced)} of {len(tensors)} tensors name no linear layer of the base: "
            f"{', '.join(unplaced[:NAMED])}{', …' if len(unplaced) > NAMED else ''}{_hint(unplaced, modules)}"
        )
    halves = sorted(module for module, sides in pairs.items() if len(sides) != 2)
    if halves:
        raise AdapterRefused(f"lora_A or lora_B is missing for {', '.join(halves[:NAMED])}")
    return pairs


def _hint(unplaced: list[str], modules: Mapping[str, Linear]) -> str:
    first = unplaced[0]
    if ".default." in first:
        return "; the adapter's name is inside the tensor names: save with PEFT's save_pretrained"
    if any(part in name for name in unplaced for part in ("lm_head", "embed_tokens")):
        return "; embeddings and lm_head are not served: train the linear layers of the transformer only"
    if any(part in name for name in unplaced for part in _FUSED):
        return "; fused projections: save q, k, v (and gate, up) apart, as the checkpoint has them"
    return f"; the base's layers are named like {next(iter(sorted(modules)))}"


def check_shapes(
    pairs: Mapping[str, Mapping[str, Tensor]],
    modules: Mapping[str, Linear],
    config: Mapping[str, Any],
    max_rank: int,
) -> None:
    """A is (rank, inputs), B is (outputs, rank), and the rank is the one alpha is divided by. Raises AdapterRefused."""
    for module, sides in pairs.items():
        a, b, linear = sides["A"], sides["B"], modules[module]
        rank = a.shape[0] if a.shape else 0
        if a.shape != (rank, linear.inputs) or b.shape != (linear.outputs, rank):
            raise AdapterRefused(
                f"{module} is ({linear.outputs}, {linear.inputs}) in the base; its lora_A {a.shape} and lora_B "
                f"{b.shape} do not fit: is this the base it was trained on?"
            )
        if rank > max_rank:
            raise AdapterRefused(
                f"{module} has rank {rank}, above the engine's limit of {max_rank} (SQLCLIMB_MAX_LORA_RANK)"
            )
        if not config.get("rank_pattern") and rank != config["r"]:
            raise AdapterRefused(f"{module} has rank {rank}, adapter_config.json says r={config['r']}")


def check_values(path: Path, pairs: Mapping[str, Mapping[str, Tensor]], kind: AdapterKind) -> None:
    """Finite numbers; B all zero for a control and for nothing else. Raises AdapterRefused."""
    for module, sides in pairs.items():
        for side, tensor in sides.items():
            if tensor.dtype not in EXPONENT_MASKS:
                raise AdapterRefused(f"{module}.lora_{side} is {tensor.dtype}: save as float32, float16 or bfloat16")
            if not is_finite(path, tensor):
                raise AdapterRefused(f"{module}.lora_{side} holds values that are infinite or not numbers")
    moved = [module for module, sides in pairs.items() if not is_zero(path, sides["B"])]
    if kind is AdapterKind.TRAINED and not moved:
        raise AdapterRefused("every lora_B is zero: the adapter is the base; a control is published as kind=control")
    if kind is AdapterKind.CONTROL and moved:
        raise AdapterRefused(f"kind=control, but lora_B of {moved[0]} is not zero: it is no control")
