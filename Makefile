# make train    learn to cover landmarks, and see a picture of it
# make results  the pages of studies/results from the records in studies/records
# make test     every test but the slow ones, which `make test-slow` runs
#
# Both work in a fresh clone with nothing but Python 3.11 or newer and make: what they need is installed into .venv, once.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# STEPS, or any flags of `shoal train`, for example: make train FLAGS="--steps 1e6 --seeds 4"
STEPS ?=
FLAGS ?=
# Processes that share the tests, a file at a time: each compiles on a core of its own.
WORKERS ?= 2
# In the order of their names: sorted by their number of tests, the files with few and long tests would come last.
DIST := --dist loadfile --no-loadscope-reorder
# Some of the tests, for example: make test TESTS="tests/equations -k gae"
TESTS ?=

.DEFAULT_GOAL := train
.PHONY: build train results test test-slow test-install test-floor test-learning lint format types layers docs clean

train: $(VENV)/.run
	$(BIN)/shoal train mappo mpe/simple_spread $(if $(STEPS),--steps $(STEPS)) $(FLAGS)

# The pages of all studies, from their records alone.
results: $(VENV)/.run
	$(BIN)/shoal results

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) $(DIST) $(TESTS)

test-slow: $(VENV)/.slow
	$(BIN)/python -m pytest -n $(WORKERS) $(DIST) -m slow $(TESTS)

# Five short runs against recorded scores; make test-learning PYTHON=python3.13 VENV=.venv-newest for another JAX.
test-learning: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) -m 'slow or not slow' tests/training/test_learned.py

# The sdist and, from it, the wheel, in dist/.
build: $(VENV)-build/.made
	rm -f dist/shoal_marl-*
	$(VENV)-build/bin/python -m build --outdir dist .

# A test of the built wheel in an environment of its own, outside the checkout, with what pip installs today.
test-install: build
	$(PYTHON) -m venv --clear $(VENV)-install
	$(VENV)-install/bin/python -m pip install --quiet dist/shoal_marl-*.whl
	cp tests/smoke.py tests/installed.py $(VENV)-install
	cd $(VENV)-install && bin/python -P smoke.py mappo && bin/python -P installed.py

# The same in place, with the lowest versions of all dependencies that pyproject.toml allows.
test-floor: $(VENV)-floor/.made
	$(VENV)-floor/bin/python tests/smoke.py

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.dev
	$(BIN)/pyright

layers: $(VENV)/.dev
	$(BIN)/lint-imports

# The documentation site, in build/site; a warning, for example of a broken link, is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --write-all --conf-dir docs \
		--doctree-dir build/doctrees . build/site
	@echo "The site is in build/site: open build/site/index.html"

clean:
	rm -rf $(VENV) $(VENV)-*

# Stamps. The code is installed in place, so only a change of pyproject.toml installs anything again.

$(VENV)/.run: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.run

$(VENV)/.slow: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[dev,mlflow,notebooks,wandb]'
	@touch $@ $(VENV)/.dev $(VENV)/.test $(VENV)/.run

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.test $(VENV)/.run

$(VENV)/.docs: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.run

$(VENV)-build/.made:
	$(PYTHON) -m venv --clear $(VENV)-build
	$(VENV)-build/bin/python -m pip install --quiet build
	@touch $@

$(VENV)-floor/.made: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)-floor
	$(PYTHON) .ci/floors > $(VENV)-floor/floors.txt
	$(VENV)-floor/bin/python -m pip install --quiet --editable . --requirement $(VENV)-floor/floors.txt
	@touch $@

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON); name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Shoal needs Python 3.11 or newer, not $$($(PYTHON) -V 2>&1); name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "$(PYTHON) lacks its venv module; on Debian and Ubuntu that is the package python3-venv." >&2; exit 1; }
	@echo "Installing Shoal and what it needs into $(VENV); the first time that takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@touch $@
