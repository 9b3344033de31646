# make demo: set up and recommend for batch 80.  make test: set up and pass lint, types and tests.
# make gate: the project's own gate, on its kernels.
# make quick: the tests that compile nothing.  make sdist-tests: the same from an unpacked source distribution.
# make docs: the site, into build/site.  make shell: man page and completions, into build/shell.  make dist: wheel, sdist.
PYTHON ?= python3
VENV ?= .venv
TRITON ?=
OLDEST ?=
JOBS ?= 2
BIN := $(VENV)/bin
TRITON_PIN = $(if $(TRITON),triton==$(TRITON))
# With OLDEST=1, what pyproject.toml gives a lower bound for is installed in that version.
OLDEST_PINS = $(shell sed -n '/^dependencies = \[/,/^\]/s/^  "\([a-z]*\)>=\([0-9.]*\)",$$/\1==\2/p' pyproject.toml)

.PHONY: demo gate test lint types tests quick compile-tests sdist-tests docs shell dist setup setup-dev clean

demo: setup
	$(BIN)/occupancy recommend --batch 80

test: setup-dev lint types tests

setup: $(VENV)/.runtime
setup-dev: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e . $(TRITON_PIN)
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[dev]' $(TRITON_PIN) $(if $(OLDEST),$(OLDEST_PINS))
	touch $@ $(VENV)/.runtime

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/vulture

types:
	$(BIN)/mypy

tests:
	$(BIN)/python -m pytest -n $(JOBS) tests validation

# The project's own gate: its kernels against the GPU's cap, the budgets and the baseline in .ci.
gate: setup
	$(BIN)/occupancy check --config .ci/occupancy.toml

quick:
	$(BIN)/python -m pytest -n $(JOBS) -m "not compiles"

# The source distribution carries what its tests need.
sdist-tests: setup-dev
	rm -rf build/sdist
	$(BIN)/python -m build --quiet --sdist --outdir build/sdist
	tar -xzf build/sdist/*.tar.gz -C build/sdist
	cd build/sdist/*/ && $(abspath $(BIN))/python -m pytest -n $(JOBS) -m "not compiles"

# Built strictly: a link that leads nowhere is an error. What is built asks for nothing from elsewhere.
docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# For packagers; a user has them from `occupancy manual` and `occupancy completion SHELL`.
shell: setup
	mkdir -p build/shell
	$(BIN)/occupancy manual > build/shell/occupancy.1
	$(BIN)/occupancy completion bash > build/shell/occupancy.bash
	$(BIN)/occupancy completion zsh > build/shell/_occupancy
	$(BIN)/occupancy completion fish > build/shell/occupancy.fish

# The same commit gives the same bytes, wherever and whenever it is built (tests/test_packages.py).
dist: setup-dev
	$(BIN)/python -m build --quiet --outdir dist

# What depends on the Triton version: make compile-tests VENV=.venvs/3.6.0 TRITON=3.6.0
compile-tests: setup-dev
	$(BIN)/python -m pytest -n $(JOBS) -m "compiles and not one_triton"

clean:
	rm -rf .venv .venvs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
