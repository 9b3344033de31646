# make demo: set up and recommend for batch 80.  make test: set up and pass lint, types and tests.
PYTHON ?= python3
VENV ?= .venv
TRITON ?=
JOBS ?= 2
BIN := $(VENV)/bin

.PHONY: demo test lint types tests compile-tests setup setup-dev clean

demo: setup
	$(BIN)/occupancy recommend --batch 80

test: setup-dev lint types tests

setup: $(VENV)/.runtime
setup-dev: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e . $(if $(TRITON),triton==$(TRITON))
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[dev]' $(if $(TRITON),triton==$(TRITON))
	touch $@ $(VENV)/.runtime

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types:
	$(BIN)/mypy

tests:
	$(BIN)/python -m pytest -n $(JOBS)

# What depends on the Triton version alone: make compile-tests VENV=.venvs/3.6.0 TRITON=3.6.0
compile-tests: setup-dev
	$(BIN)/python -m pytest -n $(JOBS) -m compiles

clean:
	rm -rf .venv .venvs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
