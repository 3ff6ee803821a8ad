# Each target sets itself up in .venv; nothing but python3, venv and make is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-more test-slow test-lowest lint bench docs lock audit clean

demo: .venv/installed
	$(BIN)/focusfl demo

# Three at a time on two cores: tests of deployments wait. A file of tests stays together,
# as its tests share what they made and compiled.
PYTEST := $(BIN)/pytest -n 3 --dist loadfile
SLOW :=

# mypy is one of the tests.
test: .venv/installed-tests
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(PYTEST)

# What needs the real data (FOCUSFL_DATA) or a program beside Python.
test-more: .venv/installed-tests
	$(PYTEST) -m "needs and not slow"

# Fleets through kills, every script in small, the README from the wheel: half an hour.
# Some of them: make test-slow SLOW="tests/deploy -k kill"
test-slow: .venv/installed-tests
	$(PYTEST) -m slow $(SLOW)

# The core tests with the lowest versions that pyproject.toml allows.
test-lowest: .venv/installed-tests
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/lowest
	$(BIN)/uv pip install --quiet --python .venv/lowest/bin/python \
	  --resolution lowest-direct --requirements pyproject.toml \
	  --extra pandas --extra plots --group core
	$(BIN)/uv pip install --quiet --python .venv/lowest/bin/python \
	  --no-deps --editable .
	.venv/lowest/bin/python -m pytest -n 0 tests/test_contract.py \
	  tests/test_identities.py tests/simulation/test_engines_agree.py \
	  tests/simulation/test_simulate.py tests/test_cli.py

lint: .venv/installed-tests
	$(BIN)/ruff check --fix . && $(BIN)/ruff format . && $(BIN)/mypy

bench: .venv/installed
	$(BIN)/python benchmarks/guard.py

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The versions that are installed here, and so were tested: pip install -c constraints.txt
lock: .venv/installed-tests
	echo "# Tested on Linux with Python 3.11. Made by make lock." > constraints.txt
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//' >> constraints.txt

# Is a version known to be vulnerable? Skipped, in one line, where nobody can be asked.
# With a reason: make audit AUDIT="--ignore-vuln ID".
audit: .venv/audit/installed
	.venv/audit/bin/python tools/audit.py $(AUDIT)

.venv/audit/installed: pyproject.toml
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet --upgrade "pip>=25.1"
	.venv/audit/bin/pip install --quiet --group audit
	touch $@

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --editable ".[pandas,plots]"
	touch $@

.venv/installed-tests: .venv/installed
	$(BIN)/pip install --quiet --group tests
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/pip install --quiet --group docs
	touch $@

clean:
	rm -rf .venv runs dist build .jax_cache .mypy_cache .pytest_cache
