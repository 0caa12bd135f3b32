# Everything a newcomer or CI needs. `make` alone lists the targets.

VENV := .venv
BIN  := $(VENV)/bin
RUN  := $(VENV)/.installed-run
DEV  := $(VENV)/.installed-dev
CLASSES := $(CURDIR)/$(VENV)/spark-classes.jsa

# Processes that share the tests; each has a session of Spark, which uses two cores at times and waits at others.
JOBS ?= 3

# The pip package brings its own Spark, and Spark's workers must run the Python of this environment.
unexport SPARK_HOME
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

# Starts a command with a Java that can run Spark; tools/java.sh looks for one and installs it if it may.
WITH_JAVA = JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME &&

# Starts tests so that every Java that they start is quick at that: it compiles little, and has an archive of Spark's
# classes if there is one.
QUICK := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
WITH_QUICK_JAVA = $(WITH_JAVA) ARCHIVE=$$(test -f "$(CLASSES)" && echo "-XX:SharedArchiveFile=$(CLASSES)"); \
  export SPARK_LAUNCHER_OPTS="$(QUICK)" SPARK_SUBMIT_OPTS="$(QUICK) $$ARCHIVE" SPARK_DAEMON_JAVA_OPTS="$$ARCHIVE" &&

# Starts tests that keep one Java busy for hours: it compiles all that it can, and has memory to collect garbage seldom.
STEADY := -XX:+UseSerialGC -Xms2g -Xmn1g
WITH_STEADY_JAVA = $(WITH_JAVA) export SPARK_SUBMIT_OPTS="$(STEADY)" SPARK_DRIVER_MEMORY=3g &&

.DEFAULT_GOAL := help
.PHONY: help demo test test-ci test-all test-long chaos check bench format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(RUN)  ## set up and run a live job on generated bids (about two minutes)
	@$(WITH_JAVA) $(BIN)/midstream demo

test: $(DEV)  ## set up and run the test suite and the examples in the docstrings
	@$(BIN)/pytest -n $(JOBS) tests/unit && $(BIN)/pytest --doctest-modules src/midstream
	@$(WITH_QUICK_JAVA) $(BIN)/pytest -n $(JOBS) --dist worksteal -m "not slow and not long" --ignore=tests/unit

test-ci: $(DEV)  ## the slower proofs, which CI runs after the tests: drivers killed while they modify, chaos
	@$(WITH_QUICK_JAVA) $(BIN)/pytest -n 2 --dist worksteal -m slow tests/faults
	@$(MAKE) chaos SEED=500 ACTS=8

test-all: check $(DEV)  ## the checks and every test, the slow ones too, and last those of test-long
	@HYPOTHESIS_PROFILE=many $(BIN)/pytest -n $(JOBS) tests/unit && $(BIN)/pytest --doctest-modules src/midstream
	@$(WITH_QUICK_JAVA) $(BIN)/pytest -n $(JOBS) --dist worksteal -m "not long" --ignore=tests/unit --ignore=tests/s3
	@$(WITH_QUICK_JAVA) $(BIN)/pytest tests/s3
	@$(MAKE) test-long

test-long: $(DEV)  ## every query of Nexmark 18 times in a thousand epochs of a hundred rows: hours; ONLY="q3 or 100-1-17-5"
	@$(WITH_STEADY_JAVA) $(BIN)/pytest -v -n $(JOBS) --dist worksteal -m long -k "$(ONLY)" tests/nexmark

chaos: $(DEV)  ## jobs under random kills and changes, against an oracle; MINUTES=10 SEED=7 ACTS=20 CLUSTER=1
	@$(WITH_QUICK_JAVA) PYTHONPATH=src:. $(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(ACTS),--acts $(ACTS)) $(if $(CLUSTER),--cluster)

check: $(DEV)  ## lint, format, types, layers: what CI runs before the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest -q tests/unit/test_layers.py

bench: $(DEV)  ## run all benchmarks; records go to bench-results/
	@mkdir -p bench-results
	@$(WITH_JAVA) $(BIN)/midstream bench throughput --json bench-results/throughput.json \
	  && $(BIN)/midstream bench epoch --json bench-results/epoch.json \
	  && $(BIN)/midstream bench modify --json bench-results/modify.json \
	  && $(BIN)/midstream bench endurance --json bench-results/endurance.json \
	  && $(BIN)/midstream bench ingest --json bench-results/ingest.json \
	  && $(BIN)/midstream bench siege --json bench-results/siege.json \
	  && $(BIN)/midstream bench idle --json bench-results/idle.json \
	  && $(BIN)/midstream bench windows --json bench-results/windows.json \
	  && $(BIN)/midstream nexmark bench --json bench-results/nexmark.json \
	  && $(BIN)/midstream bench rescale --json bench-results/rescale.json --picture bench-results/rescale.png

format: $(DEV)  ## fix what ruff can fix, and format
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

clean:  ## remove all that was made here, the virtual environment too
	rm -rf $(VENV) build dist bench-results spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment is installed again whenever pyproject.toml changes. What `dev` installs includes what `run` needs.
$(RUN): pyproject.toml | $(BIN)/pip
	@echo "installing Midstream and PySpark into $(VENV) (takes about a minute)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/pip
	@echo "installing Midstream, PySpark and the test tools into $(VENV) (takes about a minute)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@echo "archiving the classes of Spark, so that each Java of the tests starts sooner (takes half a minute)"
	@$(WITH_JAVA) $(BIN)/python tools/classes.py "$(CLASSES)" >"$(CLASSES).log" 2>&1 \
	  || echo "that failed, see $(CLASSES).log: the tests will take longer"
	@touch $(RUN) $@

$(BIN)/pip:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	  if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then \
	    echo "making $(VENV) with $$($$python --version)"; \
	    exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "Midstream needs Python 3.10 or newer with its venv module, and found none." >&2; \
	echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv; Fedora: dnf install python3;" >&2; \
	echo "macOS: brew install python), or name one: make PYTHON=/path/to/python3 <target>" >&2; \
	exit 1
