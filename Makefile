# hetsgd: `make` lists the targets. Everything runs inside .venv, which the targets make when it is missing
# or older than constraints.txt or pyproject.toml.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The interpreter that makes .venv; another one: make PYTHON=python3.12 .venv
PYTHON ?= python3
BIN := .venv/bin
STUDY := studies/quickstart.toml
REPORT := out/quickstart

# An activated environment or a PYTHONHOME of the caller must not leak into .venv.
unexport PYTHONHOME
unexport VIRTUAL_ENV

.PHONY: help study test test-slow check lint wheel-check bench gpu-check format clean distclean

help:  ## show this list
	@echo 'hetsgd: heterogeneous CPU+GPU SGD, simulated and real'
	@echo
	@grep -E '^[a-z.-]+:.*## ' Makefile | sed -E 's/^([a-z.-]+):.*## (.*)/  make \1\t\2/' | expand -t 22
	@echo
	@echo 'New here? `make study` answers a first question on this machine; `make test` checks the installation.'

.venv: .venv/.stamp  ## make or renew the virtual environment (minutes the first time)

# torch comes first and by its exact version, so that whichever build of that version the configured package
# index prefers (CPU or CUDA) is taken and nothing later replaces it. The build tools are installed from the
# same pins, hence --no-build-isolation. The stamp is touched last: an interrupted installation is repeated.
.venv/.stamp: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"hetsgd needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}; name another one: make PYTHON=python3.12 .venv")'
	@echo 'hetsgd: installing the pinned packages into .venv; the first time takes some minutes and up to a few GB' >&2
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(grep '^torch==' constraints.txt)"
	@echo 'hetsgd: torch is in; the other packages follow' >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--no-build-isolation --editable '.[dev,search,cluster,gpu,notebook]'
	@touch $@
	@echo 'hetsgd: .venv is ready' >&2

study: .venv  ## run the quick-start study on the embedded data and say where the report is
	@$(BIN)/hetsgd study run $(STUDY) --out $(REPORT)
	@echo
	@echo 'Report: $(REPORT)/report.html (open it in a browser) and $(REPORT)/report.md'

test: .venv  ## run the default tests and the doctests
	$(BIN)/pytest

test-slow: .venv  ## run every test, the slow ones and those for an accelerator too
	$(BIN)/pytest -m ''

check: lint wheel-check  ## format, lint, import rules, types, then the built wheel in a clean environment

lint: .venv  ## the checks of `check` that read the sources only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy --strict src tests benchmarks

wheel-check: .venv  ## build the wheel and smoke-test it in a clean environment
	$(BIN)/python tests/packaging/wheel_check.py

bench: .venv  ## measure speed against bare loops: simulator, start-up, replay, lanes, hybrid runs
	$(BIN)/python -m benchmarks.run

gpu-check: .venv  ## check the executor on an accelerator in less than 8 minutes (OUT=folder, DEVICE=cuda:0)
	@$(BIN)/python -m hetsgd.studies.gpu_check --out $(or $(OUT),out/gpu-check) $(if $(DEVICE),--accelerator $(DEVICE))

format: .venv  ## format the sources and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove caches, built packages and study output; keep .venv
	rm -rf out dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find sim real models studies tests src -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf .venv
