"""Acceptance A1 of issue 3: the 168 given golds, all variants, against themselves and against each other.

    PYTHONPATH=. .venv/bin/python .ci/gold_matrix.py [--verbose]

Every variant of every gold (`;` alternatives, every choice of optional columns) must match itself. Then every variant
that has alternatives is judged against its list without itself. A miss is explained by what sets the two apart: other
columns were chosen, other rows or values are meant, another order is asked for. It is ours when trying every order of
columns and rows finds the results the same. Exits 1 when a variant misses itself or 5 % of the misses are ours.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from services.verifier.execution import Outcome
from services.verifier.resources import inline_bundle
from shared.contracts.verifier import Status, VerifyItem
from tests.verifier.conftest import temporary_folder
from tests.verifier.in_process import InProcess, workshop
from tests.verifier.oracle import same_result
from tests.verifier.reference import defog_alternatives, defog_bundle

OURS_LIMIT = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--verbose", action="store_true", help="print each miss with its first difference")
    verbose = parser.parse_args().verbose
    total: Counter[str] = Counter()
    print(f"{'database':16}{'golds':>6}{'variants':>9}{'match themselves':>18}{'match another':>15}  misses")
    with temporary_folder() as folder, workshop(folder) as place:
        for name, golds in defog_alternatives().items():
            counts: Counter[str] = Counter()
            with place.opened(inline_bundle(defog_bundle(name))) as judged:
                for gold in golds:
                    counts["golds"] += 1
                    counts += judge_variants(judged, [variant for texts in gold for variant in texts], verbose)
            misses = {kind: number for kind, number in counts.items() if kind.startswith("miss: ")}
            shown = ", ".join(f"{number} {kind.removeprefix('miss: ')}" for kind, number in sorted(misses.items()))
            row = f"{counts['golds']:6}{counts['variants']:9}{counts['itself']:18}{counts['another']:15}"
            print(f"{name:16}{row}  {shown}")
            total += counts
    missed = sum(number for kind, number in total.items() if kind.startswith("miss: "))
    ours = total["miss: ours"]
    kinds = {kind.removeprefix("miss: "): number for kind, number in total.items() if kind.startswith("miss: ")}
    print(f"{total['golds']} golds, {total['variants']} variants, {total['itself']} match themselves")
    print(
        f"{total['variants'] - total['alone']} have alternatives: {total['another']} match one, {missed} miss: {kinds}"
    )
    print(f"misses of ours: {ours} of {missed}")
    return int(total["itself"] < total["variants"] or ours >= OURS_LIMIT * missed)


def judge_variants(judged: InProcess, variants: Sequence[str], verbose: bool) -> Counter[str]:
    counts: Counter[str] = Counter(variants=len(variants))
    lists = [[*variants[:k], *variants[k + 1 :]] for k in range(len(variants))]
    itself = judged.verdicts([VerifyItem(sql=sql, gold=sql) for sql in variants])
    counts["itself"] = sum(verdict.status is Status.MATCH for verdict in itself)
    for sql, verdict in zip(variants, itself, strict=True):
        if verdict.status is not Status.MATCH:
            print(f"  NOT ITSELF ({verdict.reason}): {sql}")
    for sql, others in zip(variants, lists, strict=True):
        if not others:
            counts["alone"] += 1
            continue
        (verdict,) = judged.verdicts([VerifyItem(sql=sql, gold=others)])
        if verdict.status is Status.MATCH:
            counts["another"] += 1
            continue
        kind = why(judged, sql, others, verdict.reason)
        counts[f"miss: {kind}"] += 1
        if verbose or kind == "ours":
            print(f"  {kind}: {sql}\n    {judged.difference(others, sql)}")
    return counts


def why(judged: InProcess, sql: str, others: Sequence[str], reason: str) -> str:
    """What sets a variant apart from its nearest alternative."""
    mine, theirs = judged.outcome(sql), [judged.outcome(other) for other in others]
    if "order" in reason:
        return "another order"
    if any(same_result(other.rows, mine.rows) for other in theirs):
        return "ours"
    if any(overlaps(other, mine) for other in theirs):
        return "other columns"
    return "other rows"


def overlaps(gold: Outcome, candidate: Outcome) -> bool:
    """Whether the two have as many rows and share a column, or choose from the same: then columns set them apart."""
    if len(gold.rows) != len(candidate.rows) or len(gold.columns) == len(candidate.columns) == 1:
        return False
    return {*gold.columns} != {*candidate.columns}


if __name__ == "__main__":
    sys.exit(main())
