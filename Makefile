# make demo: install, run the tour, write reports/00_tour.html.  make test: install and run the tests.
# Another interpreter: make demo PYTHON=python3.12.  Another torch: make demo TORCH='torch==2.11.0'.

PYTHON ?= python3
# The torch that this is tested with. It stands on the package's pip command line: one resolution, one download.
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NOTEBOOKS := $(wildcard notebooks/*.ipynb)

.PHONY: demo test test-deep check lint lab clean

demo: $(STAMP)
	$(BIN)/blockserve report 00_tour --out reports
	@echo "Open reports/00_tour.html in a browser: it plays without a network."

test: $(STAMP)
	$(BIN)/python -m pytest

# The scheduler's invariants on 100,000 random examples instead of 1,000 (about 20 minutes).
test-deep: $(STAMP)
	BLOCKSERVE_EXAMPLES=100000 $(BIN)/python -m pytest tests/unit/test_scheduler_properties.py

check: lint test

lint: $(STAMP)
	$(BIN)/ruff check blockserve viz tests notebooks
	$(BIN)/ruff format --check blockserve viz tests
ifneq ($(NOTEBOOKS),)
	$(BIN)/nbstripout --verify --keep-id --extra-keys 'metadata.widgets metadata.papermill' $(NOTEBOOKS)
endif

lab: $(STAMP)
	$(BIN)/blockserve lab

clean:
	rm -rf $(VENV) reports build dist .pytest_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "BlockServe needs Python 3.11 or later, and '$(PYTHON)' is not that; try: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): a few minutes the first time"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check '$(TORCH)' -e '.[dev]'
	@touch $@
