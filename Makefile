# Everything is set up on first use; `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
IBPULSE := $(BIN)/ibpulse
# parts of the tests (tests/conftest.py): those of the first five watch no clock, and yield to the others
STILL := $(foreach part,1 2 3 4 5,test-part-$(part))
WATCHING := test-machine $(foreach part,6 7 8,test-part-$(part))
AT_IDLE := $(shell chrt --idle 0 true 2>/dev/null && echo chrt --idle 0 || echo nice -n 19)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run stack test $(WATCHING) test-live $(STILL) check bench docs previews accuracy fuzz faults chart format lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: $(VENV)/run.stamp ## Serve this node's fabric, or a simulated one where there is none (ARGS="--web.listen-address=:9000")
	@if ls /sys/class/infiniband/* >/dev/null 2>&1; then exec $(IBPULSE) serve $(ARGS); else exec $(IBPULSE) demo $(ARGS); fi

stack: $(VENV)/run.stamp ## Run the demo of docker/compose.yaml without containers; needs Prometheus and Alertmanager (ARGS=--faults)
	@exec $(BIN)/python docker/stack.py $(ARGS)

test: check ## Run every check and every test, with the coverage gate
	$(BIN)/coverage erase
ifdef ARGS
	$(PYTEST) $(ARGS)
else
	$(MAKE) --no-print-directory --jobs --output-sync=target $(WATCHING) test-live $(STILL)
endif
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

test-machine:
	$(PYTEST) -m vm || $(call again,-m vm)

test-live:
	$(PYTEST) -m live || $(call again,-m live)

# two parts at a time that watch the clock, two that yield, and then the live tests alone
test-part-6: | test-machine
test-part-8: | test-part-7
test-live: | $(WATCHING) $(STILL)
test-part-5: | test-part-3
test-part-2: | test-part-5
test-part-4: | test-part-2

$(STILL): PYTEST := $(AT_IDLE) $(BIN)/coverage run -m pytest
$(STILL) $(filter-out test-machine,$(WATCHING)): test-part-%:
	$(PYTEST) $(PART) || $(call again,$(PART))

# each part remembers its own failures, because parts run at the same time
PART = -m "not vm and not live" --part=$* -o cache_dir=.pytest_cache/part-$*

PYTEST := $(BIN)/coverage run -m pytest
# a test may lose seconds to the machine's other work, so up to three of a run may fail once
again = { test $$? -eq 1 && $(PYTEST) $(1) --last-failed --last-failed-no-failures=none --again-at-most=3; }

check: $(VENV)/dev.stamp ## Check format, lint, types and import layers
	$(BIN)/ruff format --check exporter tools tests bench docker
	$(BIN)/ruff check exporter tools tests bench docker
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/dev.stamp ## Measure every budget and write docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

accuracy: $(VENV)/dev.stamp ## Measure known schedules and clocks against their truth and write docs/*accuracy.md
	$(BIN)/python -m bench.accuracy $(ARGS)
	$(BIN)/python -m bench.traffic_accuracy
	$(BIN)/python -m bench.gateway_accuracy

docs: $(VENV)/dev.stamp ## Write the generated pages of docs/, the rules and the dashboards
	$(BIN)/python -m tools.reference docs
	$(BIN)/python -m tools.grafana rules dashboards/rules
	$(BIN)/python -m tools.grafana dashboards dashboards

previews: $(VENV)/dev.stamp ## Draw the dashboards from a running Prometheus without Grafana; needs Node and Chromium (ARGS="--board=fleet")
	$(BIN)/python -m tools.previews $(ARGS)

fuzz: $(VENV)/dev.stamp ## Send a daemon 10,000 requests, open 120,000 damaged files and 10,000 job files (CASES=, FILES=, SEED=)
	FUZZ_CASES=$(CASES) FUZZ_FILES=$(FILES) FUZZ_SEED=$(SEED) \
	  $(BIN)/python -m pytest tests/web/test_fuzz.py tests/recordings/test_damaged_files.py \
	    tests/jobs/test_hostile_jobs.py -q -s $(ARGS)

CASES := 10000
FILES := 120000
SEED := $(shell date +%s)

faults: $(VENV)/dev.stamp ## Inject faults into a running daemon and check invariants (ARGS="--seed=1 --minutes=60", --calm)
	$(BIN)/python -m bench.faults $(ARGS)

chart: $(VENV)/dev.stamp ## Write the generated parts of the Helm chart
	$(BIN)/python -m tools.chart .

format: $(VENV)/dev.stamp ## Format the code
	$(BIN)/ruff format exporter tools tests bench docker
	$(BIN)/ruff check --fix exporter tools tests bench docker

lock: $(VENV)/dev.stamp ## Pin the newest releases of all requirements
	$(BIN)/uv pip compile pyproject.toml --extra recording --extra gateway $(LOCK) -o requirements/run.txt
	$(BIN)/uv pip compile --group build $(LOCK) -o requirements/build.txt
	$(BIN)/uv pip compile --group release $(LOCK) -o requirements/release.txt
	$(BIN)/uv pip compile pyproject.toml --extra pictures --group dev $(LOCK) -o requirements/dev.txt

LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("ibpulse needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(VENV)/bin/python requirements/run.txt requirements/build.txt pyproject.toml
	$(PIP) --no-deps --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.txt
	$(PIP) --no-deps --require-hashes -r requirements/dev.txt
	@touch $@
