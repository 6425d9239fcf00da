#!/usr/bin/env bash
# Acceptance A1 of the first issue: three full demos with different seeds, each delta recomputed from rows alone, and
# the most memory that each held.
# Logs and results in $1 (default /tmp/sqlclimb-three-seeds).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-/tmp/sqlclimb-three-seeds}
mkdir -p "$out"
for seed in ${SEEDS:-0 1 2}; do
  export SQLCLIMB_HOME=$out/seed-$seed
  started=$SECONDS
  .venv/bin/python .ci/peak_memory.py --home "$SQLCLIMB_HOME" >"$out/seed-$seed.memory" &
  .venv/bin/sqlclimb demo --seed "$seed" --keep | tee "$out/seed-$seed.log"
  echo "seed $seed took $((SECONDS - started)) s"
  .venv/bin/python scripts/recompute_delta.py \
    --before "demo-shop-$seed-base" --before "demo-shop-$seed-base-again" \
    --after "demo-shop-$seed-after" --after "demo-shop-$seed-after-again" \
    --json "$SQLCLIMB_HOME/results/demo-shop-$seed-run.delta.json" | tee -a "$out/seed-$seed.log"
  .venv/bin/sqlclimb down
done
grep -H "^verdict" "$out"/seed-*.log
tail -n 1 "$out"/seed-*.memory
