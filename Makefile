PYTHON ?= python3
TORCH := 2.13.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two test workers on two cores: more threads each would only fight.
PYTEST := OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -n 2

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "prerank needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) --version 2>&1`;" \
	    "name another one: make PYTHON=python3.12" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help venv demo bench test test-fast test-slow test-gpu test-browser lint types layers wheel format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## make .venv with the locked dependencies and prerank itself

demo: $(STAMP) ## train without and with a penalty, compare, and draw into prerank-demo/
	@$(BIN)/prerank demo

bench: $(STAMP) ## measure the speed, and set it beside the targets, into benchmarks/results/
	@rm -f benchmarks/results/*.json
	@$(BIN)/python benchmarks/run.py --out benchmarks/results/cpu.json
	@$(BIN)/python benchmarks/gpu.py --out benchmarks/results/gpu.json
	@$(BIN)/python benchmarks/report.py benchmarks/results/*.json --out benchmarks/results/speed.md

test: lint types layers wheel test-fast ## everything but the slow tests

test-fast: $(STAMP) ## fast tests, and the examples in the source and the README
	$(PYTEST) tests src README.md

test-slow: $(STAMP) ## statistical tests that need minutes
	@$(PYTEST) -m "slow and not gpu" tests || { code=$$?; \
	  [ $$code -eq 5 ] || exit $$code; echo "there are no slow tests"; }

test-gpu: $(STAMP) ## tests that need a GPU
	$(PYTEST) -n 0 -m gpu tests

test-browser: $(STAMP) ## the report page in a real Chromium, which is installed where apt-get is
	@command -v chromium > /dev/null || said=$$({ apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } 2>&1) || { \
	  echo "$$said" >&2; echo "the browser tests need chromium on the PATH; on Debian, as root:" \
	    "apt-get install chromium" >&2; exit 1; }
	$(PYTEST) -m browser tests/browser

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

layers: $(STAMP) ## import-linter: who may import whom
	$(BIN)/lint-imports

wheel: $(STAMP) ## build the wheel and try it in an environment of its own
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; \
	check="$$PWD/.ci/check_wheel.py"; \
	$(BIN)/python -m build --wheel --no-isolation --outdir "$$tmp/dist"; \
	$(BIN)/python -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install --quiet -c requirements.txt "$$tmp"/dist/*.whl; \
	mkdir "$$tmp/empty"; cd "$$tmp/empty"; \
	"$$tmp/venv/bin/python" -m prerank --version; \
	"$$tmp/venv/bin/python" -I "$$check"

format: $(STAMP) ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Left out of the lock: pip, prerank, and the CUDA packages that only some builds of torch bring.
lock: ## write requirements.txt anew from the newest releases
	@$(NEW_ENOUGH)
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install --quiet torch==$(TORCH) ".[dev]"; \
	sed -n '/^#/!q;p' requirements.txt > "$$tmp/lock"; \
	"$$tmp/venv/bin/python" -m pip freeze --all > "$$tmp/freeze"; \
	grep -Eiv '^(pip==|prerank |nvidia-|cuda-|triton)' "$$tmp/freeze" | sed 's/+[a-z0-9]*$$//' >> "$$tmp/lock"; \
	cp "$$tmp/lock" requirements.txt

clean: ## remove .venv, builds, caches and what the demonstration wrote
	rm -rf $(VENV) build dist prerank-demo benchmarks/results .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.txt pyproject.toml
	@[ -x $(BIN)/python ] || { $(NEW_ENOUGH); }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
