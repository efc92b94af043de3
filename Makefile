# Two commands do everything from a fresh clone, with nothing installed but git, make and some Python >= 3.12:
#   make demo   builds .venv and runs the main job on embedded data
#   make test   builds .venv with the test extras and runs the tests
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# tests run in so many processes, one file of tests in one of them
WORKERS ?= 2
# one BLAS thread: the models are small, and threads of several processes only get into each other's way
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test slow check lint types contracts notebooks bench docs lowest clean

# The first interpreter >= 3.12 among the usual names, pyenv's own folder included (.python-version names the tested one).
define find_python
for c in python3.13 python3.12 python3.14 python3 python "$$HOME"/.pyenv/versions/3.12*/bin/python "$$HOME"/.pyenv/versions/3.13*/bin/python; do \
  if command -v "$$c" >/dev/null 2>&1 && "$$c" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] < (3, 15))' >/dev/null 2>&1; \
  then echo "$$c"; exit 0; fi; done; \
echo "No Python from 3.12 to 3.14 was found. Install one (pyenv install 3.12, or your system's python3.12 with its venv package) and run make again; or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1
endef

$(BIN)/python:
	@python="$(PYTHON)"; if [ -z "$$python" ]; then python=$$( $(find_python) ) || exit 1; fi; \
	echo "Building $(VENV) with $$($$python --version)"; "$$python" -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.tested: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	@$(BIN)/adversary demo --out demo_output

test: $(VENV)/.tested
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/.tested
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell adversary models tests README.md CHANGELOG.md

types: $(VENV)/.tested
	$(BIN)/mypy

contracts: $(VENV)/.tested
	$(BIN)/lint-imports

notebooks: $(VENV)/.tested
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=120 notebooks -p no:cacheprovider

check: lint types contracts test notebooks

slow: $(VENV)/.tested
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow

bench: $(VENV)/.tested
	$(BIN)/python -m pytest tests/benchmarks --import-mode=importlib -q

docs: $(VENV)/.tested
	@$(BIN)/python docs/build_api.py --out build/docs

# the oldest versions that pyproject.toml admits, in an environment of their own; what they deprecate is not our business
lowest:
	@python="$(PYTHON)"; if [ -z "$$python" ]; then python=$$( $(find_python) ) || exit 1; fi; "$$python" -m venv --clear .venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[dask,readers,reconstruct]' \
	  hypothesis mpmath pytest
	@.venv-lowest/bin/python -m pytest tests -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) .venv-lowest demo_output dist build .pytest_cache .mypy_cache .ruff_cache
