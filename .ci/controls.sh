#!/usr/bin/env bash
# The controls of acceptance A1, on the stack and band of a finished full demo (SQLCLIMB_HOME, seed 0 by default):
# a run on shuffled rewards, and an adapter whose B is zero, must show no gain. Minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${1:-0}
run=demo-shop-$seed
.venv/bin/sqlclimb up
.venv/bin/sqlclimb train shop --run "$run-shuffled" --band "$run-band" --steps 40 --prompts 24 -k 8 \
  --learning-rate 3e-3 --schedule linear --advantages batch --seed "$seed" --run-ahead 0 --refills 0 \
  --rewards shuffled
.venv/bin/sqlclimb serve "$run-shuffled@40"
.venv/bin/sqlclimb sample shop --limit 1000 -k 4 --temperature 1 --top-p 1 --id "$run-shuffled-after" --policy "$run-shuffled@40"
echo "# shuffled rewards: must show no gain"
.venv/bin/sqlclimb delta --before "$run-base" --after "$run-shuffled-after"
.venv/bin/python scripts/publish_zero_adapter.py "$run-zero"
.venv/bin/sqlclimb sample shop --limit 1000 -k 4 --temperature 1 --top-p 1 --id "$run-zero-after" --policy "$run-zero@0"
echo "# B = 0: must show no change"
.venv/bin/sqlclimb delta --before "$run-base" --after "$run-zero-after"
