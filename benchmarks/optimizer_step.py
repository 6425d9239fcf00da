"""One optimizer step on samples at hand: tokens per second and peak memory against stock TRL (A3 of issue 7).

The same batch of one group, model (a small random Qwen3 with LoRA 16; attention is a third of its arithmetic at 1,000
tokens, a tenth of a 4B's), float32, threads, loss (dapo) and importance correction on both sides; ours also measures
the KL to base. The time is from the samples' arrival to the end of the step, tokens are the plain batch's. The rival is
stock `GRPOTrainer` with the group in one forward, without checkpointing; a second row: with it; with `--all` also two
rows in a forward, and no correction. In turn, raw series printed; a first round is not counted. On a busy machine the
processor's seconds say more than the wall's: both are printed. Peak memory: one step in a process of its own, its
resident set's high-water mark less what it was before the step. The last line is the JSON (wall) of the shape that is
nearest to its target.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from support.optimizer_steps import Seconds, Shape, Side, Stepper

from tests.models import make_model

TARGETS = {Shape(1000, 16, 100): 3.0, Shape(1000, 16, 1000): 1.5}
"""The ratios that issue 7 asks for."""

OURS = Side("ours")
TRL = Side("TRL", micro_batch=16)
CHECKPOINTED = Side("TRL, checkpointing", micro_batch=16, checkpointing=True)
SIDES = (OURS, TRL, CHECKPOINTED)
MORE = (
    Side("TRL, two rows in a forward", micro_batch=2),
    Side("TRL, no correction", micro_batch=16, corrected=False),
)


def measure(folder: Path, shape: Shape, sides: Sequence[Side], alternations: int) -> dict[str, list[Seconds]]:
    """Seconds of every side's steps, in turn."""
    steppers = {side.name: Stepper(side, folder, shape) for side in sides}
    series: dict[str, list[Seconds]] = {name: [] for name in steppers}
    for alternation in range(alternations + 1):
        for name, stepper in steppers.items():
            took = stepper.step()
            note = "" if alternation else "  (not counted)"
            print(f"{shape} {name}: {took.wall:.1f} s wall, {took.cpu:.1f} s of processor{note}", flush=True)
            if alternation:
                series[name].append(took)
    return series


def median_speed(shape: Shape, series: Sequence[Seconds], clock: str) -> float:
    """Tokens per second of `wall` or `cpu`."""
    return shape.tokens / statistics.median(getattr(took, clock) for took in series)


def peak_megabytes(folder: Path, shape: Shape, side: Side, threads: int) -> float:
    """What one step adds to a fresh process's resident memory at its highest."""
    argv = [sys.executable, __file__, "--memory-of", side.name, "--folder", str(folder), "--threads", str(threads)]
    argv += ["--shape", *map(str, (shape.prompt, shape.group, shape.completion))]
    return float(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def print_memory(name: str, folder: Path, shape: Shape) -> None:
    """In that process."""
    stepper = Stepper(next(side for side in SIDES if side.name == name), folder, shape)
    before = high_water_megabytes()
    stepper.step()
    print(high_water_megabytes() - before)


def high_water_megabytes() -> float:
    """The most that has been resident. Not getrusage's, which begins with that of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shape", type=int, nargs=3, help="only this one: prompt, G, completion")
    parser.add_argument("--all", action="store_true", help="two more ways to run the rival")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shapes = [Shape(*options.shape)] if options.shape else list(TARGETS)
    if options.memory_of:
        print_memory(options.memory_of, options.folder, shapes[0])
        return
    medians: dict[Shape, tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_model(folder / "model", hidden=128, layers=4, mlp=512, heads=2)
        for shape in shapes:
            series = measure(folder, shape, SIDES + MORE if options.all else SIDES, options.alternations)
            for clock in ("wall", "cpu"):
                ours = median_speed(shape, series[OURS.name], clock)
                for name, taken in series.items():
                    raw = [round(shape.tokens / getattr(took, clock)) for took in taken]
                    ratio = ours / median_speed(shape, taken, clock)
                    print(f"{shape} {name}, tokens per second of {clock}: {raw}; ours is {ratio:.2f}x")
            for side in SIDES:
                print(f"{shape} {side.name}: peak {peak_megabytes(folder, shape, side, options.threads):.0f} MB")
            medians[shape] = tuple(median_speed(shape, series[side.name], "wall") for side in (OURS, TRL))
    shape, (ours, rival) = min(medians.items(), key=lambda found: found[1][0] / found[1][1] / TARGETS.get(found[0], 1))
    result = {
        "name": "optimizer_step",
        "ours": round(ours),
        "rival": round(rival),
        "ratio": round(ours / rival, 2),
        "target": TARGETS.get(shape),
        "unit": f"tokens/s at (prompt, G, completion) = {(shape.prompt, shape.group, shape.completion)}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
