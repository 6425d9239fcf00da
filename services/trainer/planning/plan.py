"""What a run needs and costs, estimated from shapes alone: memory of trainer and engine, tokens, time, price. Pure.

Every formula is stated where it stands. Estimates are for choosing a machine; a run's own steps say it better.
"""

from dataclasses import dataclass

from services.trainer.learning.sizes import (
    CHECKPOINTING_PARAMETERS,
    CPU_BYTES,
    GPU_SHARE,
    KL_STRIDE,
    micro_batch_rows,
)
from services.trainer.planning.step_flops import (
    StepTokens,
    attention_layers,
    linear_layers,
    lora_parameters,
    step_flops,
)
from shared.contracts.planning import Hardware, MemoryLine, ModelShape, Plan
from shared.contracts.run_config import Method, RunConfig, SharedPrompt

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
"""Of peak arithmetic that the optimizer step reaches, what it recomputes counted."""
ONE_ROW_EFFICIENCY = 0.15
"""The same where a micro-batch holds one reply, as linear attention needs (the published recipe's 9B)."""
EVALUATION_TOKENS = 4096
"""Reply budget of evaluations (design section 9)."""
PROMPT_TOKENS = 1200
"""A schema with its notes, where nothing says otherwise."""


@dataclass(frozen=True)
class Lengths:
    """Typical tokens of a prompt and a reply."""

    prompt: float
    reply: float


def parameters(shape: ModelShape) -> int:
    """Weights of embeddings, attention and gated MLP; norms are left out."""
    embeddings = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    return embeddings + shape.layers * sum(rows * columns for rows, columns in linear_layers(shape))


def kv_bytes(shape: ModelShape, dtype_bytes: int) -> int:
    """Of one token in the engine's cache: keys and values of every layer that keeps them."""
    return 2 * attention_layers(shape) * shape.kv_heads * shape.head_dim * dtype_bytes


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
    memory = trainer_memory(config, shape, dtype, lengths.prompt) + _engine_memory(config, shape, hardware, dtype)
    used = {device: sum(line.gib for line in memory if line.device == device) for device in ("trainer", "engine")}
    if hardware.engine_share is not None or not hardware.gpus:
        needed, available = sum(used.values()), hardware.memory_gib
    else:
        needed, available = max(used.values()), hardware.memory_gib
    samples = config.prompts_per_step * config.k
    generation = _generation_seconds(config, shape, hardware, lengths, dtype)
    tokens = config.prompts_per_step * lengths.prompt + samples * lengths.reply
    flops = learning_flops(config, shape, hardware, lengths)
    one_row = _micro_batch_rows(config, shape) == 1
    reached = hardware.tflops * 1e12 * (ONE_ROW_EFFICIENCY if one_row else LEARN_EFFICIENCY)
    learning = flops / (config.workers * reached)
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
        learning_flops=flops,
        step_seconds=step,
        hours=hours,
        gpu_hours=hours * hardware.gpus,
        dollars=hours * hardware.gpus * hardware.price_per_gpu_hour,
        warnings=_warnings(config, needed, available, band_prompts),
    )


def learning_flops(config: RunConfig, shape: ModelShape, hardware: Hardware, lengths: Lengths) -> float:
    """A step's arithmetic, on all workers together."""
    tokens = StepTokens(
        lengths.prompt, lengths.reply, config.prompts_per_step, config.k, shared=shares_prompts(config, shape)
    )
    return step_flops(
        shape,
        config.lora.rank,
        tokens,
        recomputed=_recomputed_share(config, shape, hardware, lengths),
        base_forwards=1.0 if config.beta else 1 / KL_STRIDE,
    )


def shares_prompts(config: RunConfig, shape: ModelShape) -> bool:
    """Whether a group's prompt is forwarded once, as far as shapes tell: its cache holds every layer's keys and values.

    Not by SFT, whose prompts have one reply each. Not under FSDP2: the number of its forwards hangs on lengths, and
    workers must gather layers in step.
    """
    cached = shape.full_attention_layers is None
    wanted = config.method is Method.GRPO and config.shared_prompt is not SharedPrompt.OFF
    return wanted and cached and not config.shards_weights


def trainer_memory(
    config: RunConfig, shape: ModelShape, dtype_bytes: int, prompt_tokens: float = PROMPT_TOKENS
) -> list[MemoryLine]:
    """What one training worker holds."""
    weights = parameters(shape) * dtype_bytes
    # a prompt and one reply at its longest have to fit; more are batched where there is room
    longest = prompt_tokens + config.max_tokens + 1
    recomputed = not shares_prompts(config, shape) and _is_large(shape)
    parts: dict[str, float] = {
        "weights": weights,
        "LoRA, gradients, optimizer": lora_parameters(shape, config.lora.rank) * OPTIMIZER_BYTES,
        "activations of a prompt and its longest reply": longest
        * activation_bytes(shape, dtype_bytes, recomputed=recomputed),
        "logits": LOGITS_TOKENS * shape.vocabulary * 4 * 3,
        "runtime": RUNTIME_GIB * GIB,
    }
    if config.shards_weights:
        layer = sum(rows * columns for rows, columns in linear_layers(shape))
        parts["weights"] = weights / config.workers
        # the layer at work, the one fetched meanwhile, and the output head, which stays
        parts["gathered weights"] = (2 * layer + shape.hidden * shape.vocabulary) * dtype_bytes
    return [MemoryLine(device="trainer", part=part, gib=size / GIB) for part, size in parts.items()]


def _is_large(shape: ModelShape) -> bool:
    return parameters(shape) >= CHECKPOINTING_PARAMETERS


def _micro_batch_rows(config: RunConfig, shape: ModelShape) -> int:
    rows = config.prompts_per_step * config.k // config.workers
    unit = config.k if shares_prompts(config, shape) else 1
    return micro_batch_rows(rows, config.max_tokens, unit, config.micro_batch)


def _recomputed_share(config: RunConfig, shape: ModelShape, hardware: Hardware, lengths: Lengths) -> float:
    """Of a forward, what the backward pass repeats: with shared prompts what does not fit, else all or nothing."""
    if not shares_prompts(config, shape):
        return float(_is_large(shape))
    dtype = 2 if hardware.gpus else 4
    free = hardware.memory_gib * GIB * (1 - (hardware.engine_share or 0.0)) - parameters(shape) * dtype
    budget = GPU_SHARE * max(0.0, free) if hardware.gpus else CPU_BYTES
    token = activation_bytes(shape, dtype, recomputed=False)
    rows = _micro_batch_rows(config, shape)
    # every row's attention holds its prompt's keys and values once more
    waiting = rows / config.k * lengths.prompt + rows * (
        lengths.reply + lengths.prompt * kv_bytes(shape, dtype) / token
    )
    return max(0.0, 1 - budget / token / waiting)


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
