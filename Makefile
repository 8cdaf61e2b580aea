# Everything sets itself up: Python 3.11+, make and git are enough.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
WORKERS ?= 3
STORY ?= gang
# Tests start hundreds of processes; without byte code each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup demo check test test-all unit bench differential chaos soak playground kind clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup: $(VENV)/.installed ## Make the virtual environment with everything that is needed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || { rm -rf $(VENV); \
	  $(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); $(PYTHON) -m virtualenv -q $(VENV) 2>/dev/null; } \
	  || { echo "$(PYTHON) cannot make a virtual environment: install python3-venv (Debian, Ubuntu) or virtualenv"; exit 1; }; }
	@echo "installing dependencies into $(VENV) (about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup ## Play a story on the embedded control plane (STORY=gang, queues or racks)
	@$(BIN)/muster demo --story $(STORY)

check: setup ## Lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check controlplane browser ## Everything that an issue needs before it lands: unit, properties, scenarios, contract, real API server
	$(PYTEST) -n $(WORKERS) --dist loadgroup -m "not slow and not kubelet and not alone"
	$(PYTEST) -n 2 --dist loadfile -m "(kubelet or alone) and not slow"

test-all: check controlplane browser ## test on new random examples, and what takes longer
	EXPLORE=1 $(PYTEST) -n $(WORKERS) --dist loadgroup -m "not kubelet and not alone"
	EXPLORE=1 $(PYTEST) -n 2 --dist loadfile -m "kubelet or alone"

.PHONY: controlplane
controlplane: setup ## Build the real control plane and helm for tests (cached outside the tree; minutes the first time)
	@$(BIN)/python -m tests.controlplane.build
	@$(BIN)/python -m tests.controlplane.oracle
	@$(BIN)/python -m tests.deploy.helm build
	@$(BIN)/python -m tests.deploy.prometheus build

.PHONY: browser
browser: setup ## Install Chromium for tests of the page (as root on Debian; else say how)
	@$(BIN)/python -m tests.e2e.browser

CASES ?= 20000
GANGS ?= 2000
SEED ?= 1000000
differential: controlplane ## Compare with kube-scheduler's own plugins on 20,000 random cases (CASES, GANGS, SEED)
	$(BIN)/python -m tests.differential.run --cases $(CASES) --gangs $(GANGS) --seed $(SEED)

MINUTES ?= 10
chaos: controlplane ## A busy day of faults on the real API server, checked from outside (MINUTES, SEED to live one again, SPLIT=1)
	$(BIN)/python -m tests.chaos.run --minutes $(MINUTES) $(if $(filter command line environment,$(origin SEED)),--seed $(SEED)) $(if $(SPLIT),--split)

HOURS ?= 12
soak: controlplane ## Twelve hours of gangs in compressed time: does anything grow? (HOURS)
	$(BIN)/python -m tests.chaos.soak --hours $(HOURS)

unit: setup ## Fast tests only
	$(PYTEST) tests/unit tests/dialects tests/properties

kind: ## A cluster in Docker (docker, kind, kubectl, helm) with Muster in it, and the story of one gang
	deploy/kind/up.sh

bench: controlplane ## Print the table of speed and memory
	$(BIN)/python -m tests.perf.bench

playground: setup ## An embedded control plane with fake nodes, until Ctrl-C
	@$(BIN)/muster playground

clean: ## Remove what setup made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
