"""Recompute a delta from the ledger's rows alone, sharing no code with sqlclimb (standard library only).

    sqlclimb up
    python scripts/recompute_delta.py --before ID… --after ID… [--json FILE written by `sqlclimb delta --json`]

Prints the paired pass@1 difference with its own bootstrap interval. With --json: exit 1 unless the point values agree
to 1e-9 and the interval's ends to 0.01, or to a tenth of its width where few tasks make it wide.
"""

import argparse
import json
import random
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

DRAWS = 2_000
POINT_TOLERANCE = 1e-9
END_TOLERANCE = 0.01
END_TOLERANCE_OF_WIDTH = 0.1
"""Two bootstraps of 2,000 draws with different generators differ by less than the larger of the two."""


def attach() -> tuple[str, str]:
    """URL of the rollout service and the token, as `sqlclimb status --json` tells any client."""
    printed = subprocess.run(
        [sys.executable, "-m", "cli.main", "status", "--json"], capture_output=True, text=True, check=True
    ).stdout
    status = json.loads(printed)
    if "rollout" not in status["services"]:
        raise SystemExit("the rollout service is not up: run `sqlclimb up` first")
    return status["services"]["rollout"]["url"], Path(status["token_file"]).read_text()


def rows(url: str, token: str, sampling: str) -> Iterator[dict[str, object]]:
    """Every row of a sampling, from its NDJSON."""
    request = urllib.request.Request(
        f"{url}/v1/samplings/{sampling}/rows", headers={"authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        for line in answer:
            if line.strip():
                yield json.loads(line)


def pass_rates(samplings: Iterable[Iterable[dict[str, object]]]) -> dict[str, float]:
    """Task id to the share of its scored rows that match, in all samplings; unscorable rows do not count."""
    outcomes: dict[str, list[int]] = defaultdict(list)
    for found in samplings:
        seen = set()
        for row in found:
            key = (row["task_id"], row["sample_index"])
            if key in seen:
                raise SystemExit(f"row {key} is there twice")
            seen.add(key)
            if row["status"] != "unscorable":
                outcomes[str(row["task_id"])].append(int(row["status"] == "match"))
    return {task: sum(hits) / len(hits) for task, hits in outcomes.items()}


def main() -> None:
    """Print, compare, exit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", action="append", required=True, help="a sampling; again for each repeat")
    parser.add_argument("--after", action="append", required=True, help="a sampling; again for each repeat")
    parser.add_argument("--json", type=Path, help="the delta to agree with")
    arguments = parser.parse_args()
    url, token = attach()
    before = pass_rates(rows(url, token, sampling) for sampling in arguments.before)
    after = pass_rates(rows(url, token, sampling) for sampling in arguments.after)
    shared = sorted(before.keys() & after.keys())
    differences = [after[task] - before[task] for task in shared]
    value = sum(differences) / len(differences)
    generator = random.Random(20_26)
    means = sorted(sum(generator.choices(differences, k=len(shared))) / len(shared) for _ in range(DRAWS))
    low, high = means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS) - 1]
    print(f"recomputed from rows: {len(shared)} tasks, {value:+.4f} [{low:+.4f}, {high:+.4f}]")
    if arguments.json is None:
        return
    line = json.loads(arguments.json.read_text())["lines"][0]
    claimed = line["delta"]
    ends = f"[{claimed['low']:+.4f}, {claimed['high']:+.4f}]"
    print(f"claimed by `delta`:   {line['tasks']} tasks, {claimed['value']:+.4f} {ends}")
    agree = (
        line["tasks"] == len(shared)
        and abs(claimed["value"] - value) <= POINT_TOLERANCE
        and max(abs(claimed["low"] - low), abs(claimed["high"] - high))
        <= max(END_TOLERANCE, END_TOLERANCE_OF_WIDTH * (high - low))
    )
    print("they agree" if agree else "THEY DIFFER")
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
