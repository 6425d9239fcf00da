"""Acceptance A1 of the first issue: the most memory that a demo's processes held at once, beside a running demo.

    python .ci/peak_memory.py --home FOLDER   # ends when the demo's last process does; prints a line at each new peak

Proportional set size (PSS): a page that several processes share counts once.
"""

import argparse
import os
import time
from pathlib import Path

import psutil

from cli.stack.home import HOME_VARIABLE

POLL_SECONDS = 2.0


def held_bytes(home: str) -> tuple[int, int]:
    """PSS in bytes and number of the processes whose environment names this home."""
    total = count = 0
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(HOME_VARIABLE) == home:
                total += process.memory_full_info().pss
                count += 1
        except psutil.Error:
            continue
    return total, count


def main() -> None:
    """Poll until the demo is gone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    home = str(parser.parse_args().home)
    peak = 0
    started = time.monotonic()
    while True:
        held, count = held_bytes(home)
        if count == 0 and peak > 0:
            return
        if held > 1.05 * peak:
            peak = held
            print(f"{time.monotonic() - started:6.0f} s: {held / 1e9:.1f} GB in {count} processes", flush=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
