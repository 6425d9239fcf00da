"""Adapter layouts: where each LoRA pair of a file belongs in the served base. Pure.

The base's names are those of its checkpoint: vLLM maps them onto its own modules, for weights and adapters alike. An
adapter may name the same layer otherwise: trained on the text model alone or on the multimodal wrapper, saved by
transformers 4 or 5, with the adapter's name inside (`lora_A.default`), with q, k, v (gate, up) fused or apart.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.inference.adapters.base_model import Linear
from services.inference.adapters.safetensors_header import Tensor

LORA_PREFIX = "base_model.model."
"""What PEFT puts before a module's name."""

TEXT_STACKS = ("model.layers.", "model.language_model.layers.", "language_model.model.layers.")
"""How the layers of the text model begin: alone, in a wrapper of transformers 5 (4.52 on), in an older wrapper."""

FUSED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Fused projection to its parts, in the order of their rows (Phi-3's checkpoints and vLLM's modules agree)."""

MAXIMUM_REPEATS = 3
MAXIMUM_GROUPS = 4
"""In a pattern of a configuration: what matching may try grows with the power of either. PEFT's have one or two."""

_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"(?<!\\)(?:[*+{]|(?<!\()\?)")
_FUSED_OF = {part: fused for fused, parts in FUSED.items() for part in parts}
_LORA_TENSOR = re.compile(r"^(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight$")


class Unplaceable(ValueError):
    """The pairs cannot be arranged as the base needs them; the message is the reason."""


@dataclass(frozen=True)
class Pair:
    """One LoRA pair of a file: `delta W = scale * B @ A`."""

    module: str
    """As the file names it, without PEFT's prefix: rank and alpha patterns speak of it."""
    a: Tensor
    """(rank, inputs)."""
    b: Tensor
    """(outputs, rank)."""
    names: tuple[str, str]
    """The two tensors' names in the file."""

    @property
    def rank(self) -> int:
        """0 for an A that is no matrix."""
        return self.a.shape[0] if len(self.a.shape) == 2 else 0


@dataclass(frozen=True)
class Placement:
    """What one linear layer of the base gets."""

    module: str
    """As the base's checkpoint names it."""
    outputs: int
    """Rows of the layer."""
    parts: tuple[tuple[int, Pair], ...]
    """First row of the layer, and the pair whose B begins there."""
    rows: tuple[int, int] | None = None
    """Of the one pair's B, when it was fused over several layers; None: all of them."""
    fused: bool = False
    """The pairs are of parts of the layer: block-diagonal, their ranks add up."""


def text_stack(modules: Mapping[str, Linear]) -> str | None:
    """The one of TEXT_STACKS that the base's checkpoint uses; None for another family of names."""
    return next((stack for stack in TEXT_STACKS if any(name.startswith(stack) for name in modules)), None)


def servable(modules: Mapping[str, Linear]) -> dict[str, Linear]:
    """The layers that take an adapter: of a wrapper, the text model's (vLLM ignores adapters of its other parts)."""
    stack = text_stack(modules)
    return {name: linear for name, linear in modules.items() if stack is None or name.startswith(stack)}


def pair_up(tensors: Mapping[str, Tensor]) -> tuple[list[Pair], list[str]]:
    """The file's pairs by module, and the names that are no side of one. Raises Unplaceable for half a pair."""
    sides: dict[str, dict[str, str]] = {}
    strangers = []
    for name in sorted(tensors):
        match = _LORA_TENSOR.match(name)
        if match is None:
            strangers.append(name)
            continue
        found = sides.setdefault(match["module"], {})
        if match["side"] in found:
            raise Unplaceable(f"two tensors are lora_{match['side']} of {match['module']}")
        found[match["side"]] = name
    halves = [module for module, found in sides.items() if len(found) != 2]
    if halves and not strangers:
        raise Unplaceable(f"lora_A or lora_B is missing for {', '.join(halves[:3])}")
    pairs = [
        Pair(module, tensors[found["A"]], tensors[found["B"]], (found["A"], found["B"]))
        for module, found in sides.items()
        if len(found) == 2
    ]
    return pairs, strangers


def place(pairs: Sequence[Pair], modules: Mapping[str, Linear]) -> tuple[list[Placement], list[Pair]]:
    """Each pair's place among the base's `modules`, and the pairs that have none.

    Raises Unplaceable when two pairs want one place, or shapes do not allow a pair to be cut or pairs to be fused.
    """
    stack = text_stack(modules)
    placed: dict[str, Placement] = {}
    apart: dict[str, dict[str, Pair]] = {}
    homeless = []
    for pair in pairs:
        name = _rebase(pair.module, stack)
        parent, _, last = name.rpartition(".")
        if name in modules:
            _add(placed, Placement(name, modules[name].outputs, ((0, pair),)))
        elif last in FUSED and all(f"{parent}.{part}" in modules for part in FUSED[last]):
            for cut in _cut(pair, [f"{parent}.{part}" for part in FUSED[last]], modules):
                _add(placed, cut)
        elif last in _FUSED_OF and f"{parent}.{_FUSED_OF[last]}" in modules:
            siblings = apart.setdefault(f"{parent}.{_FUSED_OF[last]}", {})
            if last in siblings:
                raise Unplaceable(f"{siblings[last].module} and {pair.module} are the same layer of the base")
            siblings[last] = pair
        else:
            homeless.append(pair)
    for module, siblings in apart.items():
        _add(placed, _fuse(module, siblings, modules[module]))
    return list(placed.values()), homeless


def _rebase(module: str, stack: str | None) -> str:
    for other in TEXT_STACKS:
        if stack is not None and module.startswith(other):
            return stack + module.removeprefix(other)
    return module


def _add(placed: dict[str, Placement], new: Placement) -> None:
    if new.module in placed:
        first, second = placed[new.module].parts[0][1], new.parts[0][1]
        raise Unplaceable(f"{first.module} and {second.module} are the same layer of the base, {new.module}")
    placed[new.module] = new


def _cut(pair: Pair, targets: Sequence[str], modules: Mapping[str, Linear]) -> list[Placement]:
    """A is shared, B's rows are the parts' one after the other."""
    wanted = sum(modules[target].outputs for target in targets)
    if not pair.b.shape or pair.b.shape[0] != wanted:
        raise Unplaceable(
            f"{pair.module} has a lora_B of {pair.b.shape}; the base's {', '.join(targets)} have {wanted} rows together"
        )
    cuts, start = [], 0
    for target in targets:
        end = start + modules[target].outputs
        cuts.append(Placement(target, end - start, ((0, pair),), (start, end)))
        start = end
    return cuts


def _fuse(module: str, siblings: Mapping[str, Pair], linear: Linear) -> Placement:
    """Where each part's rows begin: gate and up are equally tall, and so are k and v."""
    order = FUSED[module.rpartition(".")[2]]
    heights = {part: pair.b.shape[0] for part, pair in siblings.items() if pair.b.shape}
    others = next((heights[part] for part in order[1:] if part in heights), None)
    first = heights.get(order[0])
    if len(order) == 2:
        first = others = linear.outputs // 2
    names = ", ".join(pair.module for pair in siblings.values())
    if first is None or others is None:
        raise Unplaceable(f"{names} alone does not tell how {module} is cut: adapt q_proj and one of k_proj, v_proj")
    expected = {part: others if index else first for index, part in enumerate(order)}
    if sum(expected.values()) != linear.outputs or any(heights.get(part) != expected[part] for part in siblings):
        raise Unplaceable(f"{names} have {sorted(heights.values())} rows, which do not fit {module} of the base")
    if len({pair.a.dtype for pair in siblings.values()}) > 1:
        raise Unplaceable(f"{names} are one layer in the base, and have several dtypes")
    starts = {part: sum(expected[before] for before in order[:index]) for index, part in enumerate(order)}
    parts = tuple((starts[part], siblings[part]) for part in order if part in siblings)
    return Placement(module, linear.outputs, parts, fused=True)


@dataclass(frozen=True)
class Scale:
    """PEFT's rank and alpha of one layer, and how they scale it."""

    rank: int
    alpha: float
    rank_stabilised: bool

    @property
    def factor(self) -> float:
        """alpha / rank, or alpha / sqrt(rank) for rsLoRA (arXiv 2312.03732)."""
        return float(self.alpha / (self.rank**0.5 if self.rank_stabilised else self.rank))

    def with_rank(self, rank: int) -> "Scale":
        """The same factor at another rank."""
        return replace(self, rank=rank, alpha=self.factor * (rank**0.5 if self.rank_stabilised else rank))


def scale_of(module: str, config: Mapping[str, Any]) -> Scale:
    """Of a module as the file names it. Raises Unplaceable for a pattern that is no regular expression."""
    rank = _matching(config.get("rank_pattern"), module, config["r"])
    alpha = _matching(config.get("alpha_pattern"), module, config["lora_alpha"])
    return Scale(int(rank), float(alpha), bool(config.get("use_rslora")))


def _matching(patterns: Mapping[str, float] | None, module: str, default: float) -> float:
    """PEFT's rule, and vLLM's: the first pattern that ends the name at a dot."""
    for pattern, value in (patterns or {}).items():
        if _takes_for_ever(pattern):
            raise Unplaceable(
                f"adapter_config.json: {pattern[:80]!r} repeats a group, or too much, and may take for ever to match"
            )
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except (re.error, RecursionError, OverflowError) as error:
            raise Unplaceable(f"adapter_config.json: {pattern[:80]!r} is no regular expression ({error})") from error
    return default


def _takes_for_ever(pattern: str) -> bool:
    """Python's matcher backtracks, and holds the interpreter while it does."""
    repeats, groups = len(_REPEAT.findall(pattern)), pattern.count("(")
    return bool(_REPEATED_GROUP.search(pattern)) or repeats > MAXIMUM_REPEATS or groups > MAXIMUM_GROUPS


def placement_scale(placement: Placement, config: Mapping[str, Any]) -> Scale:
    """Of what the layer gets. Raises Unplaceable when pairs to be fused are scaled differently."""
    scales = [scale_of(pair.module, config) for _, pair in placement.parts]
    if any(abs(scale.factor - scales[0].factor) > 1e-9 * abs(scales[0].factor) for scale in scales):
        names = ", ".join(pair.module for _, pair in placement.parts)
        raise Unplaceable(f"{names} are one layer in the base, and their alpha / rank differ")
    return scales[0].with_rank(sum(scale.rank for scale in scales)) if len(scales) > 1 else scales[0]
