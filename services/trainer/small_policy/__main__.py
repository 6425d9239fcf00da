"""`python -m services.trainer.small_policy --domain shop --out FOLDER --seed N`: build or reuse a small policy.

Progress goes to stdout; the last line is JSON: `{"path": "<folder>"}`. Exit 1 with one sentence on a failure that a
caller can act on.
"""

import asyncio
import json
import os
import sys

from services.trainer.small_policy.settings import PolicySettings
from shared.settings import load


def main() -> None:
    """Build or reuse, and print the path."""
    settings = load(PolicySettings)
    # OpenMP reads it when torch loads. Threads that spin at barriers cost three times the CPU on a busy laptop.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from services.trainer.small_policy.program import EXPECTED, run

    try:
        path = asyncio.run(run(settings))
    except EXPECTED as error:
        print(f"small policy: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    print(json.dumps({"path": str(path.resolve())}), flush=True)


if __name__ == "__main__":
    main()
