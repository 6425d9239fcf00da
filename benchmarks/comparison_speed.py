"""How long comparing two results takes, against trying every order of the columns as published evaluators do.

First every hard case of `support.tables` at 20 columns × 1,000 rows, which no permutation search ends in a lifetime:
the best of three runs each, since neighbours only slow down. Then ours and the rival alternate on one case that the
rival can finish: 7 columns × 1,000 rows whose pairing is wrong, so that all 5,040 orders must be ruled out. The rival
is the plain way: for each permutation a multiset of rounded rows. Processor time, milliseconds.
"""

import itertools
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable

from support.tables import cases, golds, shuffled, table

from services.verifier.comparison import Table, compare

TARGET_MS = 50.0
ALTERNATIONS = 5
RIVAL_COLUMNS = 7


def milliseconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def permutations_equal(gold: Table, candidate: Table) -> bool:
    """The rival. Rounding stands for a tolerance, which spares it the matching."""
    mine, theirs = ([[round(float(cell), 2) for cell in row] for row in side.rows] for side in (gold, candidate))
    wanted = Counter(map(tuple, mine))
    return any(
        Counter(tuple(row[column] for column in order) for row in theirs) == wanted
        for order in itertools.permutations(range(len(gold.columns)))
    )


def main() -> None:
    worst: list[tuple[float, str]] = []
    for case in cases():
        best = min(milliseconds(lambda case=case: compare(case.gold, case.candidate, None)) for _ in range(3))
        found = compare(case.gold, case.candidate, None).equal
        assert case.same in (None, found), case.name
        worst.append((best, case.name))
        print(f"{best:8.1f} ms  {'same     ' if found else 'different'}  {case.name}")
    worst.sort(reverse=True)
    within = sum(best < TARGET_MS for best, _ in worst)
    slowest_ms, slowest = worst[0]
    print(f"20 x 1,000: {within} of {len(worst)} cases under {TARGET_MS:.0f} ms; worst {slowest_ms:.1f} ms: {slowest}")

    chance = random.Random(11)
    rows = golds(chance, columns=RIVAL_COLUMNS)["two decimals"]()
    others = chance.sample(rows, len(rows))
    wrong = [(other[0], *row[1:]) for row, other in zip(rows, others, strict=True)]
    gold, candidate = table(rows), table(shuffled(wrong, chance))
    ours, rival = [], []
    for _ in range(ALTERNATIONS):
        ours.append(milliseconds(lambda: compare(gold, candidate, None)))
        rival.append(milliseconds(lambda: permutations_equal(gold, candidate)))
    print(f"ours  {[round(value, 2) for value in ours]} ms, {RIVAL_COLUMNS} columns x 1,000 rows")
    print(f"rival {[round(value, 1) for value in rival]} ms")
    result = {
        "name": "comparison_speed",
        "ours": round(statistics.median(ours), 2),
        "rival": round(statistics.median(rival), 1),
        "ratio": round(statistics.median(rival) / statistics.median(ours), 1),
        "target": f"20 x 1,000 under {TARGET_MS:.0f} ms",
        "unit": "ms",
        "worst_20x1000_ms": round(slowest_ms, 1),
        "cases_under_target": f"{within}/{len(worst)}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
