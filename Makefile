# Everything a contributor types. `make test` on a fresh machine sets itself up first.

PYTHON ?= python3
TORCH  ?= 2.13.0

BIN   := .venv/bin
PIP   := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := .venv/.installed
CODE  := src tests $(wildcard benchmarks) setup.py $(wildcard dev/*.py)

NATIVE  := src/outdraft/engine/native
LIBRARY := $(NATIVE)/step-any.so
COMPILE  = $(or $(wildcard $(BIN)/python),$(PYTHON)) dev/compile_native.py

# Compiled code is kept: else every worker and every command that a test starts compiles it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup native tune demo check docs test test-wheel test-slow test-engines clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) $(LIBRARY)  ## make .venv and install everything (redone when pyproject.toml or C changes)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"outdraft needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}; run make PYTHON=python3.11 (or newer)")'
	@echo "setup: .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup: torch $(TORCH) (large: minutes on a slow line)"
	@$(PIP) "torch==$(TORCH)" || $(PIP) "torch>=2.11,<2.14"
	@echo "setup: outdraft and what it is developed with"
	@$(PIP) --editable ".[dev]"
	@touch $@

# Of this checkout, whichever .venv is installed from. Without a compiler the rest works.
$(LIBRARY): $(wildcard $(NATIVE)/*.[ch]) dev/compile_native.py
	@echo "setup: the engine's C library"
	@$(COMPILE) || true

native:  ## compile the engine's C library, or fail (setup does without)
	@$(COMPILE)

tune: setup  ## find the best settings for the default model on this machine (under 10 minutes)
	@$(BIN)/outdraft tune

demo: setup  ## one text with n-gram speculation, timed against off (fetches the model once)
	@$(BIN)/outdraft generate --method ngram --k 5 --compare "Repeat this letter word for word: \
	Dear neighbours, on Saturday the 14th of June the water will be turned off between nine and \
	eleven in the morning, because the old pipe under the courtyard is being replaced."

check: setup  ## ruff, mypy --strict, import layers, the rules of the tree
	@echo "check: ruff"
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --quiet --check $(CODE)
	@echo "check: mypy --strict"
	@$(BIN)/mypy --strict --no-error-summary
	@echo "check: import layers"
	@$(BIN)/lint-imports
	@echo "check: the tree"
	@$(BIN)/python -m pytest tests/test_tree.py

docs: setup  ## the site of docs/ with the reference of all commands, in site/ (broken links are errors)
	@echo "docs: site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --clean

test: setup  ## the fast suite with real llama.cpp (fetches the default model once, about 98 MB)
	@PYTHON=$(BIN)/python dev/engines/llamacpp.sh || echo "test: no llama.cpp here, it is skipped"
	@echo "test: the fast suite and real llama.cpp"
	@# Four for two cores: many tests wait for a server or a process.
	@$(BIN)/python -m pytest -m "not slow" -rsR --numprocesses 4 --dist loadfile --no-loadscope-reorder \
		$(addprefix --ignore=,$(filter-out $(wildcard tests/engines/test_*llamacpp*.py),$(wildcard tests/engines/test_*.py)))

test-wheel: setup  ## the wheel in clean environments, alone and with each extra (2 GB, removed after)
	@echo "test: the wheel"
	@$(BIN)/python dev/try_wheel.py

test-slow: setup  ## the long runs: exactness on the real model, statistics, properties with new examples
	@echo "test: the slow suite"
	@$(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile=new_examples

test-engines: setup  ## real llama.cpp and vLLM and SGLang's parser, each in its own environment (6 GB)
	@PYTHON=$(BIN)/python dev/engines/llamacpp.sh
	@PYTHON=$(BIN)/python dev/engines/vllm.sh
	@PYTHON=$(BIN)/python dev/engines/sglang.sh
	@echo "test: the real engines"
	@$(BIN)/python -m pytest -m engines -rs tests/engines

clean:  ## remove .venv, .engines, caches and build products (not the model cache)
	@rm -rf .venv .engines build dist out site tune-out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.hypothesis .import_linter_cache $(NATIVE)/*.so
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
