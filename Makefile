# Two commands on a bare machine with Python 3.11+ and make:
#   make quickstart    install, train on the small stag hunt, score it, name the report
#   make test          install with dev extras, run the tests (make lint: style and types)
#   make test-whole    the same, with every member of the families of which a commit tries a sample

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export COPLAY_CACHE ?= $(CURDIR)/.cache

.PHONY: quickstart test test-whole lint fast docs mutants clean

quickstart: $(VENV)/installed
	@echo "training four independent PPO learners on the 4x4 stag hunt (ceiling 3.00, four scripts 2.83)"
	@rm -rf runs/quickstart
	$(BIN)/coplay train ppo_4h1s_4x4 --out runs/quickstart --steps 1000000
	$(BIN)/coplay evaluate runs/quickstart
	@echo "report: runs/quickstart/report.html    watch a game: $(BIN)/coplay replay runs/quickstart"

# Most tests run for an instant what takes seconds to compile, so they compile with little care (half the time).
COMPILE_FAST := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup

test: fast
	$(PYTEST) -m optimised

test-whole:
	$(MAKE) test SAMPLE=--whole

fast: $(VENV)/installed-dev
	XLA_FLAGS="$(COMPILE_FAST)" $(PYTEST) -m "not optimised" $(SAMPLE)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

# Every planted defect by a whole audit that knows nothing of it, then clean audits; stopped, it goes on where it was.
mutants: $(VENV)/installed-dev
	$(BIN)/python -m tests.audit.suite --part 0/2 & $(BIN)/python -m tests.audit.suite --part 1/2; wait
	$(BIN)/python -m tests.audit.suite --clean --part 0/2 & $(BIN)/python -m tests.audit.suite --clean --part 1/2; wait
	$(BIN)/python -m tests.audit.suite --table

docs: $(VENV)/installed-dev
	$(BIN)/python -m coplay.cli.settings_page > docs/settings.md

$(VENV)/installed: pyproject.toml constraints.txt
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .cache build dist src/*.egg-info
