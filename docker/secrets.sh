#!/usr/bin/env bash
# Makes docker/secrets for compose.yaml, once: tokens, the database's password, Ray's token. Never overwrites.
set -euo pipefail
cd "$(dirname "$0")"
umask 077
[ ! -e secrets ] || { echo "docker/secrets exists: nothing was changed" >&2; exit 1; }
mkdir -p secrets domains models
secret() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
password=$(secret)
printf '%s' "$password" > secrets/database-password
printf 'SQLCLIMB_DB=postgresql://sqlclimb:%s@database:5432/sqlclimb\n' "$password" > secrets/database.env
secret > secrets/ray-token
printf '{"admin": {"token": "%s", "scopes": ["admin"]}, "author": {"token": "%s", "scopes": ["author", "gold", "sample"]},\n "rollout": {"token": "%s", "scopes": ["sample", "gold"]}, "trainer": {"token": "%s", "scopes": ["train", "sample"]}}\n' \
  "$(secret)" "$(secret)" "$(secret)" "$(secret)" > secrets/tokens.json
# the containers' user reads them
chown -R 10001:10001 secrets 2>/dev/null || echo "run: sudo chown -R 10001:10001 docker/secrets" >&2
