# perfkit: `make` lists what can be done.

VENV := .venv
# The interpreter of a new environment; empty: python3.13, 3.12, 3.11 or another newer than these, whichever runs.
PYTHON ?=
# The torch build, as arguments of `pip install`; empty: the version in constraints.txt from your usual index.
TORCH ?=

RUN := $(VENV)/bin
# The interpreter of `make gpu-check`: one that has torch for CUDA.
GPU_PYTHON ?= $(if $(wildcard $(RUN)/python),$(RUN)/python,python3)
PYTEST := $(RUN)/python -m pytest
CONTENT := perfkit kernels workloads examples tools tests benchmarks setup.py
export PYTHON TORCH

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo test test-fast test-full lint format docs wheel bench gpu-check clean

help: ## list the targets
	@echo "usage: make TARGET [PYTHON=python3.12] [TORCH='torch==2.13.0 --index-url URL']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## make .venv and install perfkit with what a run needs
	@sh tools/install.sh $(VENV) run,data,traces

install-dev: ## the same, and what tests and checks need
	@sh tools/install.sh $(VENV) run,data,traces,ncu,agents,integrations,dev

demo: install ## run GPT-2 124M on eager and thunder-llmc over real text, and write the report
	@out=runs/demo-$$(date +%Y%m%d-%H%M%S) && \
	$(RUN)/perfkit run gpt2 --backend eager,thunder-llmc --skip-unavailable --steps 5 --batch-size 4 \
	  --sequence-length 64 --data docs/ --out $$out && \
	echo && echo "The report is in $(CURDIR)/$$out/report.html (open it in a browser)."

# The linters run beside the tests, and are printed after them.
LINT_BESIDE = log=$$(mktemp); trap 'rm -f "$$log"' EXIT; status=0; \
	$(MAKE) --no-print-directory lint >"$$log" 2>&1 & lint=$$!;
THEN_LINT = || status=1; wait $$lint || status=1; cat "$$log"; exit $$status

# Tests are compiled once, also where the environment says that Python shall keep no bytecode.
BYTECODE = PYTHONDONTWRITEBYTECODE=

# One thread for each of pytest's workers, which share the cores.
test: install-dev ## run the linters, the type checker and the tests, browser tests included
	@sh tools/chromium.sh
	@sh tools/sshd.sh
	@$(LINT_BESIDE) $(BYTECODE) OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist loadfile -m "not full" $(THEN_LINT)

test-full: install-dev ## the same with every sweep: all architectures, precisions and thousands of mutations
	@sh tools/chromium.sh
	@sh tools/sshd.sh
	@$(LINT_BESIDE) PERFKIT_TEST_FULL=1 $(BYTECODE) OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist loadfile $(THEN_LINT)

test-fast: install-dev ## the tests of the inner loop: under a minute
	@$(BYTECODE) $(PYTEST) -q -n auto --dist loadfile -m "not slow and not full and not browser and not network"

lint: install-dev ## check style, types and the table of rooms
	@status=0; \
	$(RUN)/ruff check $(wildcard $(CONTENT)) || status=1; \
	$(RUN)/ruff format --check $(wildcard $(CONTENT)) || status=1; \
	$(RUN)/lint-imports --no-logo || status=1; \
	$(RUN)/mypy || status=1; \
	exit $$status

format: install-dev ## rewrite the code in the project's style
	@$(RUN)/ruff check --fix $(wildcard $(CONTENT))
	@$(RUN)/ruff format $(wildcard $(CONTENT))

docs: ## build the documentation as a site into site/
	@sh tools/install.sh $(VENV) docs
	@$(RUN)/python tools/docs_site.py site

wheel: install-dev ## build the wheel and the sdist into dist/
	@$(RUN)/python -m build --no-isolation --outdir dist
	@rm -rf build

bench: install-dev ## run the measurements of benchmarks/, one after another
	@set -e; for script in $$(grep -l __main__ benchmarks/*.py benchmarks/*/*.py); do echo "== $$script"; $(RUN)/python $$script; done

gpu-check: ## check a GPU against independent witnesses, in at most six minutes; GPU_PYTHON chooses the interpreter
	@$(GPU_PYTHON) benchmarks/gpu_check.py

clean: ## remove builds and caches; runs and .venv stay
	@rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
