# Each target sets up what it needs: on a fresh machine `make test` is enough.
PYTHON := .venv/bin/python
INTEGRATIONS := .venv-integrations
FUZZ_SECONDS ?= 60
DEMO_FLAGS := $(if $(filter 1,$(WEB)),--web)

# Tests start programs by the hundred, which would compile all modules anew: empty is as if it were not set.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-rest test-all test-agents test-install test-integrations test-templates test-engines fuzz attack load lint types format bench bench-model clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make or update .venv (the others do it by themselves)
	@scripts/bootstrap.sh

demo: ## run the demonstration; WEB=1 shows it in mitmweb
	@scripts/bootstrap.sh demo
	$(PYTHON) -m vtc demo $(DEMO_FLAGS)

test: setup ## run the test suite, in under four minutes on two quiet cores
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-rest: setup ## run the tests that take long and find little that no shorter one finds (some minutes)
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder --all -m rest

test-all: setup ## run both with each dialect, API and policy in each test, in about three times that
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder --all

test-agents: setup ## run the tests with real coding agents (needs Node)
	@command -v npm >/dev/null || { echo "make test-agents needs Node and npm: install Node 20 or newer" >&2; exit 1; }
	$(PYTHON) -m pytest -m agents tests/agents

test-install: setup ## install VTC in each documented way into fresh environments
	$(PYTHON) -m pytest -m install tests/install

test-engines: setup ## hold structural tags against xgrammar, without the torch that it asks for (90 MB)
	@$(PYTHON) -c 'import numpy, tvm_ffi' 2>/dev/null || { $(PYTHON) -m ensurepip >/dev/null && $(PYTHON) -m pip install \
	  --quiet --disable-pip-version-check --no-deps 'xgrammar>=0.2' apache-tvm-ffi numpy; }
	$(PYTHON) -m pytest -m engines tests/dialects/constrain

test-integrations: $(INTEGRATIONS)/made ## run examples/ with LiteLLM, FastAPI and the SDKs (installs them in an environment of their own)
	$(INTEGRATIONS)/bin/python -m pytest -c tests/integrations/integrations.ini --noconftest tests/integrations

# LiteLLM's proxy and mitmproxy need different versions of packages, and VTC as a library does not need mitmproxy.
$(INTEGRATIONS)/made: tests/integrations/requirements.txt | setup
	@rm -rf $(INTEGRATIONS)
	@$(PYTHON) -m venv $(INTEGRATIONS)
	@$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

test-templates: setup ## try conversations with the chat templates of real models, and response templates with Transformers
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m ensurepip >/dev/null
	$(PYTHON) -m pytest -m templates -s tests/exchange/asking/test_real_templates.py tests/cli/templates

fuzz: setup ## fuzz replies, requests and profiles for FUZZ_SECONDS (Linux only)
	@$(PYTHON) -c 'import atheris' 2>/dev/null || { $(PYTHON) -m ensurepip >/dev/null && \
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'; }
	$(PYTHON) -m fuzz $(FUZZ_TARGETS) --seconds $(FUZZ_SECONDS)

attack: setup ## try every attack again, and look for others by chance (minutes)
	$(PYTHON) -m pytest --hypothesis-profile=thorough tests/attacks
	$(MAKE) fuzz FUZZ_TARGETS=policies

load: setup ## run many streams through one mitmdump, and three workers of which one is killed; print figures
	$(PYTHON) -m pytest -m load tests/e2e/test_load.py tests/e2e/test_workers.py

lint: setup ## check style and format with ruff
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: setup ## check types with mypy
	$(PYTHON) -m mypy

format: setup ## put the code into the project's format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: setup ## run the benchmarks
	$(PYTHON) -m benchmarks

bench-model: setup ## let a small model do the tasks, free and constrained (needs Node; loads 0.5 GB once); MODEL=… is another
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m ensurepip >/dev/null
	$(PYTHON) -m benchmarks.tasks.model $(if $(MODEL),--model $(MODEL))

clean: ## remove .venv, caches and builds
	rm -rf .venv $(INTEGRATIONS) .uv .pytest_cache .hypothesis .mypy_cache .ruff_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
