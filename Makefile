# Every target sets itself up: a virtual environment in .venv with the pinned versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# where this is set, each of the suite's many processes would compile jax and the others again: three seconds a start
export PYTHONDONTWRITEBYTECODE :=
BROWSER := chromium chromium-headless-shell chromium-browser google-chrome

.DEFAULT_GOAL := help
.PHONY: help demo test long browser coverage lint docs bench experiments mutations clean

help:  ## show this
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "highway-rl needs Python 3.11 or newer: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## two agents on a Gymnasium task that pays late: curves and a film, into demo/
	$(BIN)/highway-rl demo

test: $(READY) lint  ## lint, types and the test suite, without what takes long
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

long: $(READY) $(if $(CI),browser)  ## the tests that take long, which `make test` leaves out; CI runs both
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m long

browser:  ## a Chromium to test the report in, on Debian as root; without one these tests are skipped
	@for name in $(BROWSER); do command -v $$name && exit; done; \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
		|| echo "no Chromium here: the tests of the report in a browser are skipped"

coverage: $(READY)  ## the test suite with line and branch coverage
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered

lint: $(READY)  ## format, lint and type checks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(READY)  ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: $(READY)  ## speed, as ratios against other packages measured in the same run
	@for script in benchmarks/*.py; do $(BIN)/python $$script; done

experiments: $(READY)  ## every experiment at the paper's size, into results/
	$(BIN)/highway-rl run all --scale paper --out results

mutations: $(READY)  ## break the mathematics on purpose and see that the tests notice
	$(BIN)/python tests/mutations.py

clean:  ## remove what the targets made
	rm -rf $(VENV) site demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
