# Every target makes what it needs: a virtual environment from plain `python3 -m venv`, then pip.
# PYTHON=python3.13 VENV=.venv313 make test   uses another interpreter beside the first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Isolated (-I): the current folder is never on the import path. A file of tests stays in one process.
JOBS ?= auto
PYTEST := $(BIN)/python -Im pytest --numprocesses $(JOBS) --dist loadfile

.PHONY: demo test check format soak bench clean

demo: $(VENV)/.installed-run
	$(BIN)/python -m examples.checkout.demo $(ARGS)

test: check
	$(PYTEST)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

soak: $(VENV)/.installed-dev
	STEPWELL_SOAK=1 $(PYTEST) $(ARGS)

# ARGS says what to measure, for instance:  make bench ARGS="workflow --scenario parallel"
bench: ARGS ?= workflow --scenario linear --mode embedded --executions 5000 --concurrency 128
bench: $(VENV)/.installed-run
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "stepwell needs Python 3.11 or newer; this is $$($(PYTHON) --version)." \
		"Say which one to use: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[examples]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[dev,examples]'
	touch $@ $(VENV)/.installed-run
