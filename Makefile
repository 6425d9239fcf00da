# sqlclimb: `make` explains, every target says what it does, each may be run again.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export SQLCLIMB_HOME ?= $(CURDIR)/.sqlclimb

.PHONY: help install demo test lint bench clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 18

install: $(VENV)/.installed ## the one environment (about 3 GB, 2 to 5 minutes the first time)

$(VENV)/.installed: pyproject.toml scripts/install.sh scripts/constraints.txt
	@PYTHON=$(PYTHON) VENV=$(VENV) bash scripts/install.sh
	@touch $@

demo: install ## the whole climb on this machine: tasks, base, band, GRPO, serving, paired delta (under 15 minutes)
	@$(BIN)/sqlclimb demo $(DEMO)

test: install ## every test CI runs, with the real services, and the smoke demo (under 15 minutes)
	@$(BIN)/python -m pytest -n 3 $(TESTS)

lint: install ## ruff and mypy --strict on our packages
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: install ## the benchmarks, each against its stated rival, in one run
	@set -e; for script in $(wildcard benchmarks/*.py); do echo "== $$script"; $(BIN)/python $$script; done

clean: ## stop the stack of this checkout and remove its data; the environment stays
	@if [ -x $(BIN)/sqlclimb ]; then $(BIN)/sqlclimb down; fi
	@rm -rf .sqlclimb
