"""How a batch is cut and what is recomputed: the learner goes by it, and a plan does. Loads no torch."""

MICRO_BATCH_TOKENS = 4_096
"""Upper bound of completion tokens in one micro-batch, were every reply as long as it may be."""

CHECKPOINTING_PARAMETERS = 1_000_000_000
"""From this size activations are recomputed in the backward pass, unless prompts are shared, which bounds them."""

KL_STRIDE = 8
"""The KL to base is measured on about one of so many replies, others each step: it costs a forward of its own."""

CPU_BYTES = 2**29
"""For activations of shared prompts without a GPU, beside an engine, the services and their users; what does not fit is
recomputed in the backward pass."""

GPU_SHARE = 0.5
"""Of a GPU's memory that is free once the model is loaded, for activations of shared prompts: the rest is for
gradients, logits and fragmentation."""


def micro_batch_rows(rows: int, max_tokens: int, unit: int = 1, at_most: int | None = None) -> int:
    """Rows in a micro-batch: a multiple of `unit` that divides `rows`, within MICRO_BATCH_TOKENS unless `unit` is not.

    `unit` divides `rows`. `at_most`: no more rows than that, where `unit` is not more.
    """
    fitting = max(unit, min(MICRO_BATCH_TOKENS // max_tokens, at_most or rows))
    return max(size for size in range(unit, rows + 1, unit) if rows % size == 0 and size <= fitting)
