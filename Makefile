# `make app` and `make test` are all a newcomer needs; each builds .venv when it is not there.
#   TORCH_INDEX=https://download.pytorch.org/whl/cpu make app   # the small CPU build of torch
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH_INDEX ?=
TORCH := 'torch>=2.9,<3' 'torchvision>=0.24,<1'
HOST ?= 127.0.0.1
PORT ?= 7860
SHAPES ?= runs/shapes_soft
FLICKR8K ?= ../shared/flickr8k
RECIPE ?= runs/recipe
GRIDS_WORK ?= .cache/proof-grids
BOXES ?= ../shared/flickr30k_entities/flickr8k_boxes.json

.PHONY: app test lint slow proof-steer proof-kills proof-grids proof-recipe install clean

app: $(VENV)/.installed
	$(BIN)/showattend app --host $(HOST) --port $(PORT)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The checks that need ../shared, Java, a browser or minutes.
slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

# The tables of docs/steering.md; SHAPES is a model trained by configs/shapes_soft.yaml.
proof-steer: $(VENV)/.installed
	$(BIN)/python scripts/steer.py shapes --model $(SHAPES)
	for model in soft hard; do $(BIN)/python scripts/steer.py flickr8k --model $$model \
	  --root $(FLICKR8K) --boxes $(BOXES) || exit; done

# Twenty SIGKILLs over a run of two processes, each resumed: the weights are an unbroken run's.
proof-kills: $(VENV)/.installed
	$(BIN)/python scripts/kill_runs.py --kills 20 --epochs 60 --seed 2

# The tables of docs/grids.md; the second takes an hour or more, and GRIDS_WORK about 6 GB.
proof-grids: $(VENV)/.installed
	$(BIN)/python scripts/grids.py bytes
	MALLOC_MMAP_THRESHOLD_=8388608 MALLOC_TRIM_THRESHOLD_=268435456 OMP_NUM_THREADS=1 \
	  $(BIN)/python scripts/grids.py scale --root $(FLICKR8K) --work $(GRIDS_WORK)
	$(BIN)/python scripts/benchmark.py loading --root $(FLICKR8K)

# The shipped `soft` and `rewarded` anew, from grids to rewards; the same command goes on after a stop.
# glibc keeps its memory: the CNN is up to twice as fast as when each map is asked of the kernel anew.
proof-recipe: $(VENV)/.installed
	MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 \
	  $(BIN)/python scripts/recipe.py configs/flickr8k_soft.yaml configs/flickr8k_soft_finetuned.yaml \
	  configs/flickr8k_rewarded.yaml --run $(RECIPE) data.root=$(FLICKR8K)

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
