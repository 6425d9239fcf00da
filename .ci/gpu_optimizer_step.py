"""Acceptance A7 of issue 7: the optimizer step of a 4B Qwen3-shaped model on a GPU, ours against the plain batch.

    python .ci/gpu_optimizer_step.py                       # randomly initialised 4B, bf16, LoRA 16, (1200, 16, 300)
    python .ci/gpu_optimizer_step.py --size small --shape 64 4 16   # the same script, tried on a CPU

Under 8 minutes on one 80 GB GPU or larger. One group, samples at hand; the plain batch is stock TRL with as many rows
in a forward as fit, without checkpointing, and once with it. Prints for each: tokens of the plain batch per second,
model FLOP utilisation, peak memory; ends with a JSON line.

Model FLOPs: 2 for each weight that a token passes in a forward and 4 * width for each pair of tokens in each layer's
attention (Narayanan et al. 2021, https://arxiv.org/abs/2104.04473), as much again in the backward pass (frozen weights
have no gradient, the LoRA's own is left out), and for stock TRL one more forward, which its importance correction
takes. What a side has to compute counts: ours the prompt once. Recomputed activations do not count.
"""

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from support.optimizer_steps import Shape, Side, Stepper

from tests.models import make_tokenizer

SIZES = {
    "4b": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    },
    "small": {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
    },
}

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12}
"""Dense bf16, from the makers' data sheets."""

STEPS = 4
"""The first one is not counted."""


def write_model(folder: Path, size: dict[str, int]) -> None:
    """A random model of that size with a tokenizer, in bf16 where there is a GPU."""
    tokenizer = make_tokenizer(400)
    config = Qwen3Config(**size, tie_word_embeddings=True, max_position_embeddings=8192, pad_token_id=0, eos_token_id=2)
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(dtype)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def forward_flops(size: dict[str, int], shape: Shape, *, prompt_once: bool) -> float:
    """Of one forward of the batch, causal attention counted once."""
    width = size["num_attention_heads"] * size["head_dim"]
    keys = size["num_key_value_heads"] * size["head_dim"]
    layer = size["hidden_size"] * (2 * width + 2 * keys + 3 * size["intermediate_size"])
    prompts = 1 if prompt_once else shape.group
    computed = prompts * shape.prompt + shape.group * shape.completion
    weights = computed * layer * size["num_hidden_layers"]
    scored = shape.group * shape.completion * size["hidden_size"] * size["vocab_size"]
    pairs = prompts * shape.prompt**2 / 2 + shape.group * shape.completion * (shape.prompt + shape.completion / 2)
    return 2 * (weights + scored) + 4 * pairs * width * size["num_hidden_layers"]


def measured(side: Side, folder: Path, shape: Shape) -> tuple[float, float] | None:
    """(seconds, peak bytes) of a step; None when it does not fit."""
    try:
        stepper = Stepper(side, folder, shape)
        seconds = []
        for step in range(STEPS):
            if step == 1 and torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            seconds.append(stepper.step().wall)
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    except torch.OutOfMemoryError:
        return None
    finally:
        stepper = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return min(seconds[1:]), float(peak)


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="4b")
    parser.add_argument("--shape", type=int, nargs=3, default=(1200, 16, 300), help="prompt, G, completion")
    options = parser.parse_args()
    size, shape = SIZES[options.size], Shape(*options.shape)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    peak_flops = next((flops for name, flops in PEAK_FLOPS.items() if name in device), None)
    began = time.monotonic()
    speeds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_model(folder / "model", size)
        print(f"{options.size} on {device}, {shape}: model ready after {time.monotonic() - began:.0f} s", flush=True)
        plain = [Side(f"TRL, {rows} rows", micro_batch=rows) for rows in (16, 8, 4, 2) if shape.group % rows == 0]
        checkpointed = Side("TRL, checkpointing", micro_batch=plain[0].micro_batch, checkpointing=True)
        for side in (Side("ours"), checkpointed, *plain):
            found = measured(side, folder, shape)
            if found is None:
                print(f"{side.name}: out of memory", flush=True)
                continue
            seconds, peak = found
            ours = side.micro_batch == 0
            # forward, backward of the activations, and TRL's forward for the correction
            flops = forward_flops(size, shape, prompt_once=ours) * (2 if ours else 3)
            use = f"{flops / seconds / peak_flops:.1%}" if peak_flops else "unknown"
            speeds[side.name] = shape.tokens / seconds
            print(
                f"{side.name}: {shape.tokens / seconds:.0f} tokens/s ({seconds:.2f} s), utilisation {use}, "
                f"peak {peak / 2**30:.1f} GiB, {time.monotonic() - began:.0f} s so far",
                flush=True,
            )
            if side in plain:
                break  # the largest forward that fits
    rival = max(speed for name, speed in speeds.items() if name != "ours")
    result = {
        "name": "gpu_optimizer_step",
        "ours": round(speeds["ours"]),
        "rival": round(rival),
        "ratio": round(speeds["ours"] / rival, 2),
        "target": None,
        "unit": f"tokens/s, {options.size} on {device}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
