# nscaching: set up, try out, check. Needs Python (with venv) and GNU make.

PYTHON ?= python3
EXTRAS ?= dev
JOBS   ?= 2

# The demo: how it is trained, and what it is asked. The answers are held out: training never sees them.
DEMO_OUT   ?= runs/world
DEMO_TRAIN ?=
DEMO_ASK_1 ?= --head "Uruguay" --relation "neighbour of"
DEMO_ASK_2 ?= --head "Switzerland" --relation "speaks"
DEMO_ASK_3 ?= --head "Ireland" --relation "has major city"
DEMO_K     ?= 6

BIN     := .venv/bin
RUNTIME := .venv/.runtime
READY   := .venv/.ready
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo site lint format types test fast clean

help: ## say what there is
	@echo "make setup   install everything for development into .venv (once)"
	@echo "make demo    train, evaluate and ask on the bundled graph 'world'"
	@echo "make site    build the documentation into site/ (open site/index.html)"
	@echo "make test    lint, format, types and all tests"
	@echo "make fast    only the quick tests"
	@echo "make lint    ruff: lint and format, nothing changed"
	@echo "make format  ruff: put the format right"
	@echo "make types   mypy"
	@echo "make clean   remove caches and builds (.venv and runs stay)"

setup: $(READY)
	@:

# What a user needs: enough for the demo. torch first and on its own, at the pinned version:
# everything after it then finds it in place.
$(RUNTIME): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "Making .venv with $(PYTHON) ..."; $(PYTHON) -m venv .venv; }
	@echo "Installing torch (the largest part; this may take minutes) ..."
	@$(PIP) torch
	@echo "Installing nscaching ..."
	@$(PIP) -e .
	@touch $@

# What a developer needs besides: made after the runtime, whichever of the two was asked for first.
$(READY): $(RUNTIME)
	@echo "Installing the tools of development ..."
	@$(PIP) -e '.[$(EXTRAS)]'
	@touch $@
	@echo "Ready."

demo: $(RUNTIME)
	@echo "== Training on 'world' =="
	@$(BIN)/nscaching train world $(DEMO_TRAIN) --out $(DEMO_OUT) --overwrite
	@echo "== How well does it predict facts it has not seen? =="
	@$(BIN)/nscaching evaluate $(DEMO_OUT)
	@echo '== predict $(DEMO_ASK_1) =='
	@$(BIN)/nscaching predict $(DEMO_OUT) $(DEMO_ASK_1) -k $(DEMO_K) --known
	@echo '== predict $(DEMO_ASK_2) =='
	@$(BIN)/nscaching predict $(DEMO_OUT) $(DEMO_ASK_2) -k $(DEMO_K) --known
	@echo '== predict $(DEMO_ASK_3) =='
	@$(BIN)/nscaching predict $(DEMO_OUT) $(DEMO_ASK_3) -k $(DEMO_K) --known

site: setup
	@echo "== mkdocs =="
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Built: site/index.html"

lint: setup
	@echo "== ruff =="
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup
	@echo "== mypy =="
	@$(BIN)/mypy

test: lint types
	@echo "== pytest: all tests =="
	@$(BIN)/python -m pytest -n $(JOBS)

fast: setup
	@echo "== pytest: quick tests =="
	@$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not data"

clean:
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage src/*.egg-info
	@find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Clean."
