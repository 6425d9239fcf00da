"""An adapter in any layout is the same map after it was put into the base's: exact arithmetic on its own files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from services.inference.adapters.base_model import Linear
from services.inference.adapters.checks import AdapterRefused, check_adapter
from services.inference.adapters.layouts import LORA_PREFIX, TEXT_STACKS, scale_of
from services.inference.adapters.safetensors_header import read_header
from services.inference.adapters.translation import is_served_layout, translate
from shared.contracts.inference import AdapterKind

Matrix = npt.NDArray[Any]
INPUTS = 6
HEIGHTS = {"q_proj": 8, "k_proj": 4, "v_proj": 4, "gate_proj": 5, "up_proj": 5}
FUSED = {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}
TOWER = {"vision_tower.encoder.layers.0.self_attn.q_proj": Linear(8, INPUTS)}


def base(stack: str, fused: bool) -> dict[str, Linear]:
    """One layer of attention and MLP projections, fused or apart, and a vision tower beside a wrapped text model."""
    layer = f"{stack}0."
    if fused:
        found = {layer + name: Linear(sum(HEIGHTS[p] for p in parts), INPUTS) for name, parts in FUSED.items()}
    else:
        found = {
            f"{layer}{name.partition('.')[0]}.{part}": Linear(HEIGHTS[part], INPUTS)
            for name, parts in FUSED.items()
            for part in parts
        }
    return found if stack == TEXT_STACKS[0] else found | TOWER


def write(folder: Path, tensors: Mapping[str, Matrix], config: Mapping[str, Any]) -> Path:
    """An adapter's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "bias": "none", **config}))
    return folder


def draw_adapter(modules: Mapping[str, Linear], rank: int, seed: int, rename: str) -> dict[str, Matrix]:
    """Random pairs of all modules; small integers, so that products are exact."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for module, linear in modules.items():
        for side, shape in (("A", (rank, linear.inputs)), ("B", (linear.outputs, rank))):
            tensors[rename.format(module=module, side=side)] = draw.integers(-3, 4, shape).astype(np.float32)
    return tensors


def updates(folder: Path) -> dict[str, Matrix]:
    """`scale * B @ A` of each projection that a folder's adapter adapts, fused ones cut: what is really added."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    found = {}
    for name, a in tensors.items():
        if ".lora_A" not in name:
            continue
        module = name.removeprefix(LORA_PREFIX).partition(".lora_A")[0]
        delta = scale_of(module, config).factor * tensors[name.replace("lora_A", "lora_B")] @ a
        short = ".".join(module.split(".")[-2:])
        start = 0
        for part in FUSED.get(short, (short.partition(".")[2],)):
            rows = delta[start : start + HEIGHTS[part]]
            start += HEIGHTS[part]
            if rows.any():
                found[part] = rows
    return found


def served(folder: Path, modules: Mapping[str, Linear]) -> set[str]:
    """Translate in place; the modules that the served files name."""
    checked = check_adapter(folder, modules, 64, AdapterKind.TRAINED)
    translate(folder, checked.placements, checked.config)
    names = read_header(folder / "adapter_model.safetensors")
    assert all(name.startswith(LORA_PREFIX) for name in names)
    return {name.removeprefix(LORA_PREFIX).partition(".lora_")[0] for name in names}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    trained_on=st.sampled_from(TEXT_STACKS),
    served_on=st.sampled_from(TEXT_STACKS),
    was_fused=st.booleans(),
    is_fused=st.booleans(),
    stabilised=st.booleans(),
    spelling=st.sampled_from(
        [
            "base_model.model.{module}.lora_{side}.weight",
            "base_model.model.{module}.lora_{side}.default.weight",
            "{module}.lora_{side}.weight",
        ]
    ),
    left_out=st.sampled_from([(), ("k_proj",), ("v_proj", "gate_proj"), ("up_proj",)]),
    seed=st.integers(0, 99),
)
def test_every_layout_is_the_same_map_in_the_served_one(
    tmp_path: Path,
    trained_on: str,
    served_on: str,
    was_fused: bool,
    is_fused: bool,
    stabilised: bool,
    spelling: str,
    left_out: tuple[str, ...],
    seed: int,
) -> None:
    trained = {
        n: m for n, m in base(trained_on, was_fused).items() if n not in TOWER and n.split(".")[-1] not in left_out
    }
    config = {"r": 2, "lora_alpha": 6, "use_rslora": stabilised, "target_modules": ["x"]}
    folder = write(tmp_path, draw_adapter(trained, 2, seed, spelling), config)
    before = updates(folder)
    modules = base(served_on, is_fused)
    assert served(folder, modules) <= modules.keys() - TOWER.keys()
    after = updates(folder)
    assert after.keys() == before.keys()
    for part, delta in before.items():
        np.testing.assert_allclose(after[part], delta, rtol=1e-6)


def test_the_bases_own_layout_is_left_as_it_is(tmp_path: Path) -> None:
    modules = base(TEXT_STACKS[0], fused=False)
    tensors = draw_adapter(modules, 2, 0, "base_model.model.{module}.lora_{side}.weight")
    checked = check_adapter(write(tmp_path, tensors, {"r": 2, "lora_alpha": 4}), modules, 8, AdapterKind.TRAINED)
    assert is_served_layout(checked.placements)
    assert checked.tensors == len(tensors)


def test_rank_and_alpha_patterns_follow_their_layers(tmp_path: Path) -> None:
    tensors = draw_adapter(base("model.layers.", fused=False), 2, 1, "base_model.model.{module}.lora_{side}.weight")
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{side}.weight"
    tensors[name.format(side="A")] = np.ones((4, INPUTS), np.float32)
    tensors[name.format(side="B")] = np.ones((8, 4), np.float32)
    patterns = {"rank_pattern": {"model.layers.0.self_attn.q_proj": 4}, "alpha_pattern": {r"self_attn\.[qk]_proj": 32}}
    folder = write(tmp_path, tensors, {"r": 2, "lora_alpha": 4, **patterns})
    before = updates(folder)
    served(folder, base("model.language_model.layers.", fused=False))
    for part, delta in updates(folder).items():
        np.testing.assert_allclose(delta, before[part])
    np.testing.assert_allclose(before["q_proj"], np.full((8, INPUTS), 32.0))  # 4 of rank, times 32 / 4


def test_bfloat16_survives_a_cut_bit_for_bit(tmp_path: Path) -> None:
    modules = base(TEXT_STACKS[1], fused=False)
    fused = {n: m for n, m in base(TEXT_STACKS[0], fused=True).items() if "qkv" in n}
    tensors = draw_adapter(fused, 2, 3, "base_model.model.{module}.lora_{side}.weight")
    folder = write(tmp_path, tensors, {"r": 2, "lora_alpha": 4})
    path = folder / "adapter_model.safetensors"
    as_bfloat16(path, tensors)
    raw = {name: (tensor.view(np.uint32) >> 16).astype(np.uint16) for name, tensor in tensors.items()}
    served(folder, modules)
    assert {tensor.dtype for tensor in read_header(path).values()} == {"BF16"}
    b = raw["base_model.model.model.layers.0.self_attn.qkv_proj.lora_B.weight"]
    assert b[8:12].tobytes() in path.read_bytes()


def as_bfloat16(path: Path, tensors: Mapping[str, Matrix]) -> None:
    """Rewrite as bfloat16: numpy has no such type, torch does."""
    import torch
    from safetensors.torch import save_file as save_torch

    save_torch({name: torch.from_numpy(tensor).bfloat16() for name, tensor in tensors.items()}, path)


@pytest.mark.parametrize(
    ("modules", "adapter", "config", "words"),
    [
        (
            base(TEXT_STACKS[0], False),
            {"model.layers.0.self_attn.qkv_proj": Linear(15, INPUTS)},
            {},
            "have 16 rows toge",
        ),
        (base(TEXT_STACKS[0], True), {"model.layers.0.self_attn.k_proj": Linear(3, INPUTS)}, {}, "alone does not tell"),
        (
            base(TEXT_STACKS[0], True),
            {f"model.layers.0.self_attn.{p}": Linear(HEIGHTS[p] + 1, INPUTS) for p in ("q_proj", "v_proj")},
            {},
            "rows, which do not fit model.layers.0.self_attn.qkv_proj",
        ),
        (
            base(TEXT_STACKS[0], True),
            {f"model.layers.0.self_attn.{p}": Linear(HEIGHTS[p], INPUTS) for p in ("q_proj", "k_proj", "v_proj")},
            {"alpha_pattern": {"k_proj": 9}},
            "alpha / rank differ",
        ),
        (
            base(TEXT_STACKS[0], False),
            {"model.layers.0.self_attn.k_proj": Linear(4, INPUTS)},
            {"rank_pattern": {"(.*)*k_proj": 2}},
            "may take for ever",
        ),
        *(
            (
                base(TEXT_STACKS[0], False),
                {"model.layers.0.self_attn.k_proj": Linear(4, INPUTS)},
                {"alpha_pattern": {pattern: 2}},
                "may take for ever",
            )
            for pattern in (".*" * 20 + "z", ".?" * 40 + "z", "(.|.)" * 40 + "z")
        ),
        (base(TEXT_STACKS[1], False), TOWER, {}, "leave the vision part out of target_modules"),
        (
            base(TEXT_STACKS[1], False),
            {f"{stack}0.self_attn.q_proj": Linear(8, INPUTS) for stack in TEXT_STACKS[:2]},
            {},
            "are the same layer of the base",
        ),
    ],
    ids=[
        "cut of another height",
        "one part alone",
        "parts too tall",
        "scales differ",
        "endless pattern",
        "many repeats",
        "many options",
        "many groups",
        "vision tower",
        "two for one place",
    ],
)
def test_what_has_no_one_place_is_refused(
    tmp_path: Path, modules: dict[str, Linear], adapter: dict[str, Linear], config: dict[str, Any], words: str
) -> None:
    tensors = draw_adapter(adapter, 2, 0, "base_model.model.{module}.lora_{side}.weight")
    folder = write(tmp_path, tensors, {"r": 2, "lora_alpha": 4, **config})
    with pytest.raises(AdapterRefused, match=words):
        check_adapter(folder, modules, 64, AdapterKind.TRAINED)


def test_projections_that_are_fused_in_the_base_add_their_ranks(tmp_path: Path) -> None:
    apart = base(TEXT_STACKS[0], fused=False)
    folder = write(
        tmp_path, draw_adapter(apart, 4, 0, "base_model.model.{module}.lora_{side}.weight"), {"r": 4, "lora_alpha": 8}
    )
    with pytest.raises(AdapterRefused, match=r"q_proj, k_proj, v_proj are one layer .* need rank 12 there"):
        check_adapter(folder, base(TEXT_STACKS[0], fused=True), 8, AdapterKind.TRAINED)
