"""What a run needs and costs, estimated from shapes alone: memory of trainer and engine, tokens, time, price. Pure.

Every formula is stated where it stands. Estimates are for choosing a machine; a run's own steps say it better.
"""

from dataclasses import dataclass

from shared.contracts.planning import Hardware, MemoryLine, ModelShape, Plan
from shared.contracts.trainer import RunConfig

GIB = 2**30
OPTIMIZER_BYTES = 16
"""A LoRA parameter in float32: weight, gradient and Adam's two moments."""
RUNTIME_GIB = 2.5
"""CUDA context, NCCL and allocator fragmentation of one process; on the CPU its libraries."""
LOGITS_TOKENS = 1024
"""Logits are computed in parts of so many tokens, in float32, with their gradient."""
ADAPTER_SLOTS = 4
"""Of a run in the engine: its staleness, two in the making, one measured."""
ENGINE_OVERHEAD = 0.10
"""Share of the engine's memory for its own activations and CUDA graphs."""
DECODE_EFFICIENCY = 0.5
"""Of memory bandwidth that decoding with LoRA reaches."""
LEARN_EFFICIENCY = 0.3
"""Of peak arithmetic that the optimizer step reaches."""
ONE_ROW_EFFICIENCY = 0.15
"""The same where a micro-batch holds one reply, as linear attention needs (the published recipe's 9B)."""
LEARN_FLOPS = 6
"""A parameter and token with frozen weights: forward 2, gradient of activations 2, KL and log-probabilities 2."""
RECOMPUTE_FLOPS = 2
"""More where activations are recomputed."""
EVALUATION_TOKENS = 4096
"""Reply budget of evaluations (design section 9)."""


@dataclass(frozen=True)
class Lengths:
    """Typical tokens of a prompt and a reply."""

    prompt: float
    reply: float


def parameters(shape: ModelShape) -> int:
    """Weights of embeddings, attention and gated MLP; norms are left out."""
    embeddings = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    return embeddings + shape.layers * sum(rows * columns for rows, columns in _linear_layers(shape))


def lora_parameters(shape: ModelShape, rank: int) -> int:
    """r x (in + out) of every linear layer."""
    return shape.layers * sum(rank * (rows + columns) for rows, columns in _linear_layers(shape))


def kv_bytes(shape: ModelShape, dtype_bytes: int) -> int:
    """Of one token in the engine's cache: keys and values of every layer that keeps them."""
    layers = shape.layers if shape.full_attention_layers is None else shape.full_attention_layers
    return 2 * layers * shape.kv_heads * shape.head_dim * dtype_bytes


def activation_bytes(shape: ModelShape, dtype_bytes: int, *, recomputed: bool) -> int:
    """That one token keeps for the backward pass: inputs of every layer's parts, or of whole layers if recomputed.

    Per layer: two norms and residuals (6 h), queries, attention output and its projection's input (3 heads), keys and
    values (2 kv heads), gate, up, their product and its activation (4 mlp).
    """
    wide = shape.heads * shape.head_dim
    layer = 6 * shape.hidden + 3 * wide + 2 * shape.kv_heads * shape.head_dim + 4 * shape.mlp
    return dtype_bytes * (shape.layers * shape.hidden + layer if recomputed else shape.layers * layer)


def make_plan(config: RunConfig, shape: ModelShape, hardware: Hardware, lengths: Lengths, band_prompts: int) -> Plan:
    """The plan of a run."""
    dtype = 2 if hardware.gpus else 4
    recomputed = _recomputes(shape)
    memory = trainer_memory(config, shape, dtype) + _engine_memory(config, shape, hardware, dtype)
    used = {device: sum(line.gib for line in memory if line.device == device) for device in ("trainer", "engine")}
    if hardware.engine_share is not None or not hardware.gpus:
        needed, available = sum(used.values()), hardware.memory_gib
    else:
        needed, available = max(used.values()), hardware.memory_gib
    samples = config.prompts_per_step * config.k
    generation = _generation_seconds(config, shape, hardware, lengths, dtype)
    flops = LEARN_FLOPS + (RECOMPUTE_FLOPS if recomputed else 0)
    tokens = config.prompts_per_step * lengths.prompt + samples * lengths.reply
    reached = hardware.tflops * 1e12 * (ONE_ROW_EFFICIENCY if recomputed else LEARN_EFFICIENCY)
    learning = tokens * flops * parameters(shape) / (config.workers * reached)
    shared = hardware.engine_share is not None or hardware.gpus < 2
    step = generation + learning if shared or not config.run_ahead else max(generation, learning)
    hours = step * config.steps / 3600
    return Plan(
        parameters=parameters(shape),
        lora_parameters=lora_parameters(shape, config.lora.rank),
        hardware=hardware,
        memory=memory,
        needed_gib=needed,
        available_gib=available,
        fits=needed <= available,
        samples_per_step=samples,
        tokens_per_step=tokens,
        prompt_tokens=lengths.prompt,
        reply_tokens=lengths.reply,
        band_prompts=band_prompts,
        passes=config.steps * config.prompts_per_step / max(1, band_prompts),
        generation_seconds=generation,
        learning_seconds=learning,
        step_seconds=step,
        hours=hours,
        gpu_hours=hours * hardware.gpus,
        dollars=hours * hardware.gpus * hardware.price_per_gpu_hour,
        warnings=_warnings(config, needed, available, band_prompts),
    )


def trainer_memory(config: RunConfig, shape: ModelShape, dtype_bytes: int) -> list[MemoryLine]:
    """What one training worker holds."""
    longest = config.max_tokens + 1  # one reply at its longest has to fit; more are batched where there is room
    kept = activation_bytes(shape, dtype_bytes, recomputed=_recomputes(shape))
    parts = {
        "weights": parameters(shape) * dtype_bytes,
        "LoRA, gradients, optimizer": lora_parameters(shape, config.lora.rank) * OPTIMIZER_BYTES,
        "activations of one reply at its longest": longest * kept,
        "logits": LOGITS_TOKENS * shape.vocabulary * 4 * 3,
        "runtime": RUNTIME_GIB * GIB,
    }
    return [MemoryLine(device="trainer", part=part, gib=size / GIB) for part, size in parts.items()]


def _linear_layers(shape: ModelShape) -> list[tuple[int, int]]:
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = [(shape.hidden, wide), (shape.hidden, narrow), (shape.hidden, narrow), (wide, shape.hidden)]
    return [*attention, (shape.hidden, shape.mlp), (shape.hidden, shape.mlp), (shape.mlp, shape.hidden)]


def _recomputes(shape: ModelShape) -> bool:
    """Prompts are shared, and nothing recomputed, where the cache holds every layer's keys and values."""
    return shape.full_attention_layers is not None


def _engine_memory(config: RunConfig, shape: ModelShape, hardware: Hardware, dtype_bytes: int) -> list[MemoryLine]:
    """What one replica holds: at least one group at its longest must fit into its cache."""
    weights = parameters(shape) * dtype_bytes
    parts = {
        "weights": weights,
        "KV cache of one group at its longest": config.k * (config.max_tokens + 1) * kv_bytes(shape, dtype_bytes),
        "adapters": ADAPTER_SLOTS * lora_parameters(shape, config.lora.rank) * dtype_bytes,
        "runtime": RUNTIME_GIB * GIB + ENGINE_OVERHEAD * weights,
    }
    if hardware.engine_share is not None:
        taken = hardware.engine_share * hardware.memory_gib * GIB  # the engine takes its share at its start
        parts["rest of its share: more cache"] = max(0.0, taken - sum(parts.values()))
    return [MemoryLine(device="engine", part=part, gib=size / GIB) for part, size in parts.items()]


def _generation_seconds(
    config: RunConfig, shape: ModelShape, hardware: Hardware, lengths: Lengths, dtype: int
) -> float:
    """Decoding is bound by memory: a token of every sequence costs one read of the weights and of all their caches."""
    weights, cache = parameters(shape) * dtype, kv_bytes(shape, dtype)
    share = hardware.engine_share if hardware.engine_share is not None else 0.9
    room = max(1.0, hardware.memory_gib * GIB * share - weights * (1 + ENGINE_OVERHEAD))
    context = lengths.prompt / config.k + lengths.reply  # a group's prompt is cached once
    replicas = 1 if hardware.engine_share is not None or hardware.gpus < 2 else hardware.gpus - hardware.trainer_gpus
    samples = config.prompts_per_step * config.k / max(1, replicas)
    together = max(1.0, min(samples, room / (context * max(1, cache))))
    read = weights + together * context * cache
    seconds_per_token = read / (hardware.bandwidth_gb_per_second * 1e9 * DECODE_EFFICIENCY)
    return samples / together * lengths.reply * seconds_per_token


def _warnings(config: RunConfig, needed: float, available: float, band_prompts: int) -> list[str]:
    found = []
    if needed > available:
        found.append(
            f"memory: {needed:.1f} GiB are needed, {available:.1f} are there: lower `max_tokens` or `lora.rank`, or "
            "take more GPUs"
        )
    if config.max_tokens < min(EVALUATION_TOKENS, config.evaluation.max_tokens):
        found.append(
            f"`max_tokens` {config.max_tokens} is under evaluation's {config.evaluation.max_tokens}: replies that "
            "evaluation lets finish are cut and masked in training"
        )
    passes = config.steps * config.prompts_per_step / max(1, band_prompts)
    if passes > 3:
        found.append(f"{passes:.1f} passes over {band_prompts} prompts: from the third on a policy memorises")
    if config.prompts_per_step * config.k < 128:
        found.append(f"{config.prompts_per_step * config.k} samples a step: the published recipe moved only with 512")
    return found
