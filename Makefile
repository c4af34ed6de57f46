PYTHON ?= python3
TORCH := 2.13.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two test workers on two cores: more threads each would only fight.
QUIETLY := OMP_NUM_THREADS=1 MPLBACKEND=Agg
PYTEST := $(QUIETLY) $(BIN)/python -m pytest -n 2

# Every file that pip takes is one of those in requirements*.txt, by its SHA-256.
INSTALL = -m pip install --quiet --no-deps --require-hashes

UV = $(BIN)/uv

# Environments that lie over .venv: what they hold goes before it. skpro and gluonts have ones of
# their own, since they want older versions of pandas.
ADAPTERS := ngboost sbi lightning torchmetrics
SKPRO := skpro
FORECASTS := gluonts darts arviz arviz_base numpyro bayesflow
OVER = "import sysconfig; print('import site; site.addsitedir(' + repr(sysconfig.get_path('purelib')) + ')')"

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "prerank needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) --version 2>&1`;" \
	    "name another one: make PYTHON=python3.12" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help venv demo bench test test-fast test-slow test-gpu fuzz chaos test-browser test-adapters test-compiled docs lint types layers house wheel dist format lock matrix sbom audit test-supply clean

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

chaos: $(STAMP) ## studies and models through kills, full disks and lost nodes: MINUTES (60), from SEED (0); 0 for each once
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m chaos.run --minutes $(or $(MINUTES),60) --seed $(or $(SEED),0) $(if $(ONLY),--only $(ONLY))

test-browser: $(STAMP) ## the report page in a real Chromium, which is installed where apt-get is
	@command -v chromium > /dev/null || said=$$({ apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } 2>&1) || { \
	  echo "$$said" >&2; echo "the browser tests need chromium on the PATH; on Debian, as root:" \
	    "apt-get install chromium" >&2; exit 1; }
	$(PYTEST) -m browser tests/browser

test-adapters: .venv-adapters/.installed .venv-skpro/.installed .venv-forecasts/.installed ## other libraries, each in its environment
	PRERANK_REQUIRED="$(ADAPTERS)" $(QUIETLY) .venv-adapters/bin/python -m pytest -n 2 tests/adapters tests/integrations
	PRERANK_REQUIRED="$(SKPRO)" $(QUIETLY) .venv-skpro/bin/python -m pytest -n 2 tests/adapters tests/integrations/test_proba_metric.py
	PRERANK_REQUIRED="$(FORECASTS)" $(QUIETLY) .venv-forecasts/bin/python -m pytest -n 2 --dist loadfile \
	  tests/adapters/test_trajectories.py tests/adapters/test_bayesian_libraries.py tests/adapters/test_libraries.py tests/adapters/test_examples.py tests/adapters/test_guide.py

test-compiled: .venv-compiled/.installed ## kernels in numba against their plain forms
	PRERANK_REQUIRED=numba $(QUIETLY) .venv-compiled/bin/python -m pytest -n 2 tests/numerics/test_cpu_kernels.py

docs: $(STAMP) ## the documentation, into build/docs/, and its tests
	@rm -rf build/docs docs/gallery
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

wheel: $(STAMP) ## build the wheel, again from the sdist, compare, and try it, without and with its app
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/python -m build --wheel --no-isolation --outdir "$$tmp/dist"; wheel=$$(echo "$$tmp"/dist/*.whl); \
	(umask 077; TZ=Asia/Tokyo $(BIN)/python -m build --no-isolation --outdir "$$tmp/again"); \
	cmp "$$wheel" "$$tmp"/again/*.whl; echo "two builds of the wheel have the same bytes"; \
	$(BIN)/python -m venv --without-pip "$$tmp/venv"; new="$$tmp/venv/bin/python"; \
	site=$$("$$new" -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	$(BIN)/python -m pip --python "$$new" install --quiet --no-deps --no-index "$$wheel"; \
	check="$$PWD/.ci/check_wheel.py"; mkdir "$$tmp/empty"; \
	for part in core app; do \
	  $(BIN)/python .ci/link_requirements.py "$$wheel" "$$site" $$([ $$part = core ] || echo $$part); \
	  (cd "$$tmp/empty" && "$$new" -I "$$check" $$part); \
	done

dist: $(STAMP) ## the sdist and the wheel of a release, into dist/; TAG has to be v and the version
	@set -eu; version=$$($(BIN)/python -c "import prerank; print(prerank.__version__)"); \
	test "$(TAG)" = "v$$version" || { \
	  echo "the version is $$version, so the tag of its release is v$$version, not '$(TAG)'" >&2; exit 1; }; \
	rm -rf dist; $(BIN)/python -m build --no-isolation

format: $(STAMP) ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(STAMP) ## write requirements*.txt anew from the newest releases; KEEP=1: from the same ones
	$(BIN)/python .ci/lock.py --uv $(UV) --torch $(TORCH) $(if $(KEEP),--keep)

matrix: $(STAMP) ## the fast tests on PYTHONS (3.11 3.12 3.13) with ENDS (lowest newest) of the versions
	$(BIN)/python .ci/matrix.py --uv $(UV) --out build/matrix \
	  --python $(or $(PYTHONS),3.11 3.12 3.13) --ends $(or $(ENDS),lowest newest)

sbom: .venv-supply/.installed ## what prerank runs with, as CycloneDX 1.6, into build/prerank.cdx.json
	@.venv-supply/bin/python .ci/sbom.py build/prerank.cdx.json

test-supply: .venv-supply/.installed ## tests of the lock, the bill of materials, the audit and the workflows
	$(QUIETLY) .venv-supply/bin/python -m pytest -W error tests/supply

audit: .venv-supply/.installed ## look known vulnerabilities of all locked packages up; 3 where that was not possible
	@.venv-supply/bin/python .ci/audit.py requirements*.txt

clean: ## remove the environments, builds, caches and what the demonstration wrote
	rm -rf $(VENV) .venv-adapters .venv-skpro .venv-forecasts .venv-compiled .venv-supply build dist docs/gallery prerank-demo benchmarks/results .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv-%/.installed: requirements-%.txt $(STAMP)
	rm -rf .venv-$*
	$(BIN)/python -m venv --without-pip .venv-$*
	$(BIN)/python -c $(OVER) > $$(echo .venv-$*/lib/python*/site-packages)/over.pth
	.venv-$*/bin/python $(INSTALL) --no-build-isolation -r requirements-$*.txt
	.venv-$*/bin/python -m pip check
	@touch $@

# torch first: a build in a folder that pip's settings name (find-links), or one that is in .venv
# already; else the registry's, with the CUDA packages that it needs on Linux, several GB.
$(STAMP): requirements.txt requirements-torch.txt requirements-cuda.txt pyproject.toml
	@[ -x $(BIN)/python ] || { $(NEW_ENOUGH); }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(INSTALL) --no-index -r requirements-torch.txt 2> /dev/null || { \
	  echo "no build of torch is at hand: the registry's is fetched"; \
	  $(BIN)/python $(INSTALL) -r requirements-torch.txt -r requirements-cuda.txt; }
	$(BIN)/python $(INSTALL) --only-binary :all: -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	@touch $@
