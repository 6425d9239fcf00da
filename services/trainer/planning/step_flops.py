"""Arithmetic of one optimizer step that trains a LoRA on frozen weights, from shapes alone. Pure.

A forward costs 2 floating-point operations (one product, one sum) for each weight that a token passes, a backward as
many for the gradient of what went in and as many again for the weights' own (Kaplan et al. 2020, arXiv:2001.08361,
section 2.1: 6 in all). Frozen weights need no gradient of their own: 2 + 2 = 4, and 2 more where their forward is
recomputed in the backward pass. Attention has two products over each pair of tokens, 2 operations each for every
element of a head (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); both operands of both are activations, so its
backward costs twice its forward, frozen or not.
"""

from dataclasses import dataclass

from shared.contracts.planning import ModelShape


@dataclass(frozen=True)
class StepTokens:
    """One step's batch, in typical lengths."""

    prompt: float
    reply: float
    prompts: int
    """Distinct ones."""
    k: int
    """Replies of each."""
    shared: bool
    """A group's prompt is forwarded once, else with each of its replies."""

    @property
    def prompt_forwards(self) -> int:
        """How often a prompt is forwarded."""
        return self.prompts * (1 if self.shared else self.k)

    @property
    def scored(self) -> float:
        """Reply tokens: what passes the output head."""
        return self.prompts * self.k * self.reply

    @property
    def computed(self) -> float:
        """Tokens that pass the layers."""
        return self.prompt_forwards * self.prompt + self.scored

    @property
    def attended(self) -> float:
        """Pairs of a token and one before it, or itself: causal attention."""
        return self.prompt_forwards * self.prompt**2 / 2 + self.scored * (self.prompt + self.reply / 2)


def linear_layers(shape: ModelShape) -> list[tuple[int, int]]:
    """(in, out) of one layer's linear maps: queries, keys, values, output, gate, up, down."""
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = [(shape.hidden, wide), (shape.hidden, narrow), (shape.hidden, narrow), (wide, shape.hidden)]
    return [*attention, (shape.hidden, shape.mlp), (shape.hidden, shape.mlp), (shape.mlp, shape.hidden)]


def lora_parameters(shape: ModelShape, rank: int) -> int:
    """r x (in + out) of every linear layer."""
    return shape.layers * sum(rank * (rows + columns) for rows, columns in linear_layers(shape))


def attention_layers(shape: ModelShape) -> int:
    """Layers that attend to every token before; what linear attention adds to its linear maps is left out."""
    return shape.layers if shape.full_attention_layers is None else shape.full_attention_layers


def step_flops(shape: ModelShape, rank: int, tokens: StepTokens, *, recomputed: float, base_forwards: float) -> float:
    """Of forward, backward, and what is forwarded besides.

    `recomputed`: share of the layers' forward that the backward pass repeats. `base_forwards`: forwards of the batch
    without its adapter, for the KL to base, or the share of one.
    """
    weights = shape.layers * sum(rows * columns for rows, columns in linear_layers(shape)) * tokens.computed
    lora = lora_parameters(shape, rank) * tokens.computed
    head = shape.hidden * shape.vocabulary * tokens.scored
    attention = 4 * tokens.attended * shape.heads * shape.head_dim * attention_layers(shape)
    forward = 2 * (weights + lora) + attention
    backward = 2 * weights + 4 * lora + 2 * attention
    head_backward = 4 * head  # the fused head computes its logits again: they are too many to keep
    return (1 + recomputed + base_forwards) * forward + backward + (1 + base_forwards) * 2 * head + head_backward
