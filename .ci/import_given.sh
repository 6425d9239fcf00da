#!/usr/bin/env bash
# Puts the given tasks (168 defog golds on six databases, 12 of the published recipe) through the gates, as a user does:
# `domain init`, `tasks import`. Prints each database's table of rejections by reason and every rejected row.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${1:-../shared/data}
export SQLCLIMB_HOME=$(mktemp -d /tmp/import-given.XXXX)
trap '.venv/bin/sqlclimb down >/dev/null; rm -rf "$SQLCLIMB_HOME"' EXIT
.venv/bin/sqlclimb up verifier author >/dev/null
cat "$data/shop-recipe/schema.sql" "$data/shop-recipe/seed.sql" > "$SQLCLIMB_HOME/shop-recipe.sql"
for name in academic broker car_dealership derm_treatment geography scholar shop-recipe; do
  sql=$data/defog/$name/$name.sql tasks=$data/defog/golds.jsonl
  [ "$name" = shop-recipe ] && sql=$SQLCLIMB_HOME/shop-recipe.sql tasks=$data/shop-recipe/tasks.sample.jsonl
  echo "== $name"
  .venv/bin/sqlclimb domain init "$name" --from-sql "$sql" >/dev/null
  .venv/bin/sqlclimb tasks import "$tasks" --domain "$name" --rejected "$SQLCLIMB_HOME/$name.jsonl"
  .venv/bin/python - "$SQLCLIMB_HOME/$name.jsonl" <<'EOF'
import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    print(f"  row {row['row']:>3} {row['reason']:<18} {row['question'][:110]!r}")
EOF
done
