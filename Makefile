# make fit     train and test the CIFAR experiment
# make test    run all tests
# make test-gpu    run the tests that need a CUDA GPU
# make lint    check formatting, style and types
# make schema  write the JSON schemas with which an editor checks configs
# make docs    build the docs as a site, build/docs/index.html
# make clean   remove the environment and build files; data/ and lightning_logs/ stay
# make test-oldest    run the tests with the oldest versions that pyproject.toml allows, in build/oldest
# make test-wheel    build the wheel, install it in build/wheel, and train with it
# All but clean and those in build/ create the environment first, if need be: with what training needs, and for tests,
# lint and docs with the rest. uv installs it where there is one, else pip.

VENV ?= .venv
TEST_PROCESSES ?= 3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
TOOLS := $(VENV)/tools
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

PIP := $(if $(shell command -v uv 2>/dev/null),uv pip install --python $(VENV),$(BIN)/pip install --disable-pip-version-check)
INSTALL := $(PIP) --constraint constraints.txt --editable

.PHONY: fit test test-gpu test-oldest test-wheel lint schema docs clean

# First a few steps, which tell how long it will take here.
fit: $(INSTALLED)
	$(BIN)/python -m project fit --config configs/cifar.yaml --check
	$(BIN)/python -m project fit --config configs/cifar.yaml

test: $(TOOLS)
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

test-gpu: $(TOOLS)
	$(BIN)/python -m pytest -m gpu

test-oldest:
	rm -rf build/oldest
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/pip install --disable-pip-version-check uv
	build/oldest/bin/uv pip install --python build/oldest --resolution lowest-direct --compile-bytecode --editable '.[dev]'
	build/oldest/bin/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

test-wheel:
	rm -rf build/wheel build/lib dist
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .
	build/wheel/bin/pip install --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd build && wheel/bin/python -m project fit --config ../configs/linear.yaml --trainer.max_epochs 1

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

schema: $(INSTALLED)
	$(BIN)/python -m project schema

docs: $(TOOLS)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky docs build/docs

# The environment is made anew only when pyproject.toml or constraints.txt has changed. The schemas are for editors: no
# mistake in the package may keep the rest from being installed.
$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 to 3.13 is needed; set PYTHON=/path/to/python3.12" >&2; exit 2; }
	@echo "Installing into $(VENV): a few minutes, about 6.5 GB on Linux (torch comes with CUDA)."
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	-$(BIN)/python -m project schema
	@touch $@

$(TOOLS): $(INSTALLED)
	$(INSTALL) '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
