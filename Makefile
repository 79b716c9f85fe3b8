# `make app` and `make test` are all a newcomer needs; each builds .venv when it is not there.
#   TORCH_INDEX=https://download.pytorch.org/whl/cpu make app   # the small CPU build of torch
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH_INDEX ?=
TORCH := 'torch>=2.9,<3' 'torchvision>=0.24,<1'
HOST ?= 127.0.0.1
PORT ?= 7860

.PHONY: app test lint slow install clean

app: $(VENV)/.installed
	$(BIN)/showattend app --host $(HOST) --port $(PORT)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The checks that need ../shared, Java, a browser or minutes.
slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

install: $(VENV)/.installed

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "showattend needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: $(VENV)/bin/python
	if [ -n "$(TORCH_INDEX)" ]; then \
	  $(BIN)/python -m pip install --index-url "$(TORCH_INDEX)" $(TORCH); fi
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
