PYTHON ?= python3
TORCH := 2.13.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two test workers on two cores: more threads each would only fight.
QUIETLY := OMP_NUM_THREADS=1 MPLBACKEND=Agg
PYTEST := $(QUIETLY) $(BIN)/python -m pytest -n 2

# Libraries that only tests/adapters needs, in environments that lie over .venv: what they hold goes
# before it. skpro has one of its own, since it wants an older pandas.
ADAPTERS := ngboost sbi lightning
SKPRO := skpro
OVER = "import sysconfig; print('import site; site.addsitedir(' + repr(sysconfig.get_path('purelib')) + ')')"

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "prerank needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) --version 2>&1`;" \
	    "name another one: make PYTHON=python3.12" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help venv demo bench test test-fast test-slow test-gpu fuzz test-browser test-adapters docs lint types layers house wheel format lock clean

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

test-fast: $(STAMP) ## fast tests, and the examples in the source, the documentation and the README
	$(PYTEST) tests src docs README.md

test-slow: $(STAMP) ## statistical tests that need minutes
	@$(PYTEST) -m "slow and not gpu" tests || { code=$$?; \
	  [ $$code -eq 5 ] || exit $$code; echo "there are no slow tests"; }

test-gpu: $(STAMP) ## tests that need a GPU
	$(PYTEST) -n 0 -m gpu tests

fuzz: $(STAMP) ## damaged files for every way in: CASES of them each (10000), from SEED (0)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz.run --cases $(or $(CASES),10000) --seed $(or $(SEED),0)

test-browser: $(STAMP) ## the report page in a real Chromium, which is installed where apt-get is
	@command -v chromium > /dev/null || said=$$({ apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } 2>&1) || { \
	  echo "$$said" >&2; echo "the browser tests need chromium on the PATH; on Debian, as root:" \
	    "apt-get install chromium" >&2; exit 1; }
	$(PYTEST) -m browser tests/browser

test-adapters: .venv-adapters/.installed .venv-skpro/.installed ## predictions of other libraries, each in its environment
	PRERANK_REQUIRED="$(ADAPTERS)" $(QUIETLY) .venv-adapters/bin/python -m pytest -n 2 tests/adapters
	PRERANK_REQUIRED="$(SKPRO)" $(QUIETLY) .venv-skpro/bin/python -m pytest -n 2 tests/adapters

docs: $(STAMP) ## the documentation, into build/docs/, and its tests
	@rm -rf build/docs
	$(QUIETLY) $(BIN)/sphinx-build --nitpicky --fail-on-warning --keep-going --quiet docs build/docs
	$(PYTEST) -n 0 -m site tests/docs

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

layers: $(STAMP) ## import-linter: who may import whom
	$(BIN)/lint-imports

house: $(STAMP) ## sizes of the packages, repeated blocks, import cycles, names of modules
	$(BIN)/python .ci/house.py

wheel: $(STAMP) ## build the wheel and try it in an environment of its own, without and with its app
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/python -m build --wheel --no-isolation --outdir "$$tmp/dist"; wheel=$$(echo "$$tmp"/dist/*.whl); \
	$(BIN)/python -m venv --without-pip "$$tmp/venv"; new="$$tmp/venv/bin/python"; \
	site=$$("$$new" -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	$(BIN)/python -m pip --python "$$new" install --quiet --no-deps --no-index "$$wheel"; \
	check="$$PWD/.ci/check_wheel.py"; mkdir "$$tmp/empty"; \
	for part in core app; do \
	  $(BIN)/python .ci/link_requirements.py "$$wheel" "$$site" $$([ $$part = core ] || echo $$part); \
	  (cd "$$tmp/empty" && "$$new" -I "$$check" $$part); \
	done

format: $(STAMP) ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Left out of the lock: pip, prerank, and the CUDA packages that only some builds of torch bring.
lock: ## write requirements*.txt anew from the newest releases
	@$(NEW_ENOUGH)
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install --quiet torch==$(TORCH) ".[dev]"; \
	sed -n '/^#/!q;p' requirements.txt > "$$tmp/lock"; \
	"$$tmp/venv/bin/python" -m pip freeze --all > "$$tmp/freeze"; \
	grep -Eiv '^(pip==|prerank |nvidia-|cuda-|triton)' "$$tmp/freeze" | sed 's/+[a-z0-9]*$$//' >> "$$tmp/lock"; \
	cp "$$tmp/lock" requirements.txt; \
	over() { \
	  "$$tmp/venv/bin/python" -m venv --without-pip "$$tmp/$$1"; \
	  "$$tmp/venv/bin/python" -c $(OVER) > "$$(echo "$$tmp/$$1"/lib/python*/site-packages)/over.pth"; \
	  "$$tmp/$$1/bin/python" -m pip install --quiet -c "$$2" $$3; \
	  sed -n '/^#/!q;p' "requirements-$$1.txt" > "$$tmp/$$1.txt"; \
	  "$$tmp/$$1/bin/python" -m pip freeze --local >> "$$tmp/$$1.txt"; \
	  cp "$$tmp/$$1.txt" "requirements-$$1.txt"; \
	}; \
	over adapters requirements.txt "$(ADAPTERS)"; \
	grep -v '^pandas==' requirements.txt > "$$tmp/any-pandas"; \
	over skpro "$$tmp/any-pandas" "$(SKPRO)"

clean: ## remove the environments, builds, caches and what the demonstration wrote
	rm -rf $(VENV) .venv-adapters .venv-skpro build dist prerank-demo benchmarks/results .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv-%/.installed: requirements-%.txt $(STAMP)
	rm -rf .venv-$*
	$(BIN)/python -m venv --without-pip .venv-$*
	$(BIN)/python -c $(OVER) > $$(echo .venv-$*/lib/python*/site-packages)/over.pth
	.venv-$*/bin/python -m pip install --quiet -r requirements-$*.txt
	.venv-$*/bin/python -m pip check
	@touch $@

$(STAMP): requirements.txt pyproject.toml
	@[ -x $(BIN)/python ] || { $(NEW_ENOUGH); }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
