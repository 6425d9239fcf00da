"""What is wrong with an adapter, found in its files before vLLM sees it. vLLM accepts most of these and serves base."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from services.inference.adapters.base_model import Linear
from services.inference.adapters.layouts import (
    Pair,
    Placement,
    Unplaceable,
    pair_up,
    place,
    placement_scale,
    scale_of,
    servable,
)
from services.inference.adapters.safetensors_header import EXPONENT_MASKS, Tensor, is_finite, is_zero, read_header
from shared.artifacts import ArtifactError
from shared.contracts.inference import AdapterKind

NAMED = 3
"""How many faulty tensors a reason names."""

WEIGHTS = "adapter_model.safetensors"

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


LARGEST_ALPHA = 1e9
"""Beyond any that was trained with, and far from overflow."""


class AdapterRefused(Exception):
    """The adapter cannot be served as it was trained; the message is the reason."""


@dataclass(frozen=True)
class Checked:
    """An adapter that can be served."""

    tensors: int
    """All of the file's, each placed."""
    placements: Sequence[Placement]
    config: Mapping[str, Any]


def check_adapter(folder: Path, modules: Mapping[str, Linear], max_rank: int, kind: AdapterKind) -> Checked:
    """Every tensor placed, and values worth serving. Raises AdapterRefused, naming the first faults."""
    config, tensors = _read(folder)
    check_config(config, max_rank)
    if not tensors:
        raise AdapterRefused("the adapter holds no tensor")
    layers = servable(modules)
    try:
        pairs, unplaced = pair_up(tensors)
        placements, homeless = place(pairs, layers)
        unplaced += [name for pair in homeless for name in pair.names]
        if unplaced:
            raise AdapterRefused(
                f"{len(unplaced)} of {len(tensors)} tensors name no linear layer of the base: "
                f"{', '.join(sorted(unplaced)[:NAMED])}{', …' if len(unplaced) > NAMED else ''}"
                f"{_hint(unplaced, modules, layers)}"
            )
        for placement in placements:
            check_shapes(placement, layers[placement.module], config, max_rank)
    except Unplaceable as error:
        raise AdapterRefused(str(error)) from error
    check_values(folder / WEIGHTS, pairs, kind)
    return Checked(len(tensors), placements, config)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = read_header(folder / WEIGHTS)
    except (ArtifactError, OSError, ValueError, RecursionError) as error:
        raise AdapterRefused(f"adapter_config.json or {WEIGHTS} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise AdapterRefused("adapter_config.json is no JSON object")
    return config, tensors


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
    if not _is_rank(rank) or not _is_number(alpha):
        raise AdapterRefused(f"adapter_config.json needs a rank and an alpha, has r={rank!r}, lora_alpha={alpha!r}")
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    for field, patterns, fits in (("rank_pattern", ranks, _is_rank), ("alpha_pattern", alphas, _is_number)):
        if not isinstance(patterns, dict) or not all(fits(value) for value in patterns.values()):
            raise AdapterRefused(f"adapter_config.json: {field} maps module names to numbers, not {patterns!r}")
    largest = max([rank, *ranks.values()])
    if largest > max_rank:
        raise AdapterRefused(f"rank {largest} is above the engine's limit of {max_rank} (SQLCLIMB_MAX_LORA_RANK)")


def _is_rank(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_ALPHA


def _hint(unplaced: Sequence[str], modules: Mapping[str, Linear], layers: Mapping[str, Linear]) -> str:
    if any(part in name for name in unplaced for part in ("lm_head", "embed_tokens", "lora_embedding")):
        return "; embeddings and lm_head are not served: train the linear layers of the transformer only"
    if any("lora_magnitude_vector" in name for name in unplaced):
        return "; the engine does not apply DoRA: train plain LoRA"
    others = modules.keys() - layers.keys()
    if any(other in name for name in unplaced for other in others):
        return "; the engine applies no adapter outside the text model: leave the vision part out of target_modules"
    return f"; the base's layers are named like {next(iter(sorted(layers)))}"


def check_shapes(placement: Placement, linear: Linear, config: Mapping[str, Any], max_rank: int) -> None:
    """A is (rank, inputs), B is (outputs, rank), and the rank is the one alpha is divided by.

    Raises AdapterRefused; Unplaceable when scales differ that must not.
    """
    for _, pair in placement.parts:
        rank, whole = pair.rank, placement.rows is None and not placement.fused
        outputs = linear.outputs if whole else pair.b.shape[0]  # rows of cut and fused pairs fit, else no placement
        if rank < 1 or pair.a.shape != (rank, linear.inputs) or pair.b.shape != (outputs, rank):
            raise AdapterRefused(
                f"{placement.module} is ({linear.outputs}, {linear.inputs}) in the base; {pair.module} has a lora_A of "
                f"{pair.a.shape} and a lora_B of {pair.b.shape}: is this the base it was trained on?"
            )
        if rank > max_rank:
            raise AdapterRefused(
                f"{pair.module} has rank {rank}, above the engine's limit of {max_rank} (SQLCLIMB_MAX_LORA_RANK)"
            )
        declared = scale_of(pair.module, config).rank
        if rank != declared:
            raise AdapterRefused(f"{pair.module} has rank {rank}, adapter_config.json says r={declared}")
    together = placement_scale(placement, config).rank
    if together > max_rank:
        names = ", ".join(pair.module.rpartition(".")[2] for _, pair in placement.parts)
        raise AdapterRefused(
            f"{names} are one layer in the base, {placement.module}, and need rank {together} there, above the "
            f"engine's limit of {max_rank} (SQLCLIMB_MAX_LORA_RANK)"
        )


def check_values(path: Path, pairs: Sequence[Pair], kind: AdapterKind) -> None:
    """Finite numbers; B all zero for a control and for nothing else. Raises AdapterRefused."""
    for pair in pairs:
        for side, tensor in (("A", pair.a), ("B", pair.b)):
            if tensor.dtype not in EXPONENT_MASKS or pair.a.dtype != pair.b.dtype:
                raise AdapterRefused(
                    f"{pair.module}.lora_{side} is {tensor.dtype}: save as float32, float16 or bfloat16, A as B"
                )
            if not is_finite(path, tensor):
                raise AdapterRefused(f"{pair.module}.lora_{side} holds values that are infinite or not numbers")
    moved = [pair.module for pair in pairs if not is_zero(path, pair.b)]
    if kind is AdapterKind.TRAINED and not moved:
        raise AdapterRefused("every lora_B is zero: the adapter is the base; a control is published as kind=control")
    if kind is AdapterKind.CONTROL and moved:
        raise AdapterRefused(f"kind=control, but lora_B of {moved[0]} is not zero: it is no control")
