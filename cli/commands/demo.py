"""`demo`: the whole climb, by the public commands alone."""

from typing import Annotated

import typer

from cli.climb import FULL, SMOKE, Climb


def demo(
    domain: Annotated[str, typer.Option()] = "shop",
    seed: Annotated[int, typer.Option()] = 0,
    smoke: Annotated[bool, typer.Option(help="tiny sizes, every real part, under four minutes")] = False,
    keep: Annotated[bool, typer.Option(help="leave the stack up at the end")] = False,
) -> None:
    """The whole climb on this machine: tasks, base, band, training, serving, paired delta.

    Runs the commands you would type, and prints each. Killed at any point, the same command continues.
    """
    Climb(domain, seed, SMOKE if smoke else FULL).run(keep)
