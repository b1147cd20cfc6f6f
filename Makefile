# Everything is set up on first use; `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
IBPULSE := $(BIN)/ibpulse
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.DEFAULT_GOAL := help
.PHONY: help setup run workbench stack test contract coverage check check-format check-lint check-types check-imports check-sizes check-generated bench docs docs-site previews accuracy chart release generated format lock clean kubernetes

help: ## Show this list
	@sed -n 's/^\([a-z%-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(VENV)/dev.stamp ## Install what the tests need

run: $(VENV)/run.stamp ## Serve this node's fabric, or a simulated one where there is none (ARGS="--web.listen-address=:9000")
	@if ls /sys/class/infiniband/* >/dev/null 2>&1; then exec $(IBPULSE) serve $(ARGS); else exec $(IBPULSE) demo $(ARGS); fi

workbench: $(VENV)/workbench.stamp ## Install what recordings, reports, pictures and fleets need

stack: $(VENV)/workbench.stamp ## Run the demo of docker/compose.yaml without containers; needs Prometheus and Alertmanager (ARGS=--faults)
	@exec $(BIN)/python docker/stack.py $(ARGS)

test: ## Check everything that needs no hardware, in ten minutes (ARGS="tests/ring -k overwrite" runs some tests)
	@$(PYTHON) -m tests

campaign-%: $(VENV)/dev.stamp ## Run a check of up to 20 minutes: live faults vm pages prometheus chart cluster image packages fuzz accuracy bench mutants
	@$(BIN)/python -m tests.campaigns $*

campaign-packages: $(VENV)/docs.stamp $(VENV)/release.stamp

campaign-cluster: kubernetes

kubernetes: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.campaigns.cluster.programs

contract: $(VENV)/dev.stamp ## Write the goldens of tests/contract: what the program prints, answers and writes (ARGS=answers)
	@$(BIN)/python -m tests.contract $(ARGS)

coverage: $(VENV)/dev.stamp ## Run the unit tests and fail below 95 % of statements
	$(BIN)/python -m pytest tests --ignore=tests/smoke --ignore=tests/campaigns -n 2 --dist=loadfile --quiet --cov --cov-report=
	$(BIN)/coverage report

PYTHON_FILES := exporter tools tests bench docker docs/conf.py

check: check-format check-lint check-types check-imports check-sizes check-generated ## Check format, lint, types, import layers, sizes and generated files

check-format: $(VENV)/dev.stamp
	@$(BIN)/ruff format --quiet --check $(PYTHON_FILES)

check-lint: $(VENV)/dev.stamp
	@$(BIN)/ruff check --quiet $(PYTHON_FILES)

check-types: $(VENV)/dev.stamp
	@$(BIN)/mypy --no-error-summary

check-imports: $(VENV)/dev.stamp
	@found=$$($(BIN)/lint-imports) || { echo "$$found"; exit 1; }

check-sizes: $(VENV)/dev.stamp
	@$(BIN)/python -m tools.wings

# in a copy, because a check changes no file
check-generated: $(VENV)/dev.stamp
	@set -e; copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	  cp -r $(GENERATED) LICENSE "$$copy"; rm -f "$$copy"/$(BOARDS) "$$copy"/helm/ibpulse/files/$(BOARDS); \
	  $(MAKE) --silent --no-print-directory generated INTO="$$copy/"; \
	  for folder in $(GENERATED); do diff -r --brief "$$copy/$$folder" $$folder || changed=1; done; \
	  test -z "$$changed" || { echo 'Generated files differ: run `make generated` and commit what it writes.' >&2; exit 1; }

GENERATED := docs dashboards helm
# only the program knows which boards there are
BOARDS := dashboards/*.json

bench: $(VENV)/dev.stamp ## Measure every budget and write docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

accuracy: $(VENV)/dev.stamp ## Measure known schedules and clocks against their truth and fill in docs/accuracy.md
	$(BIN)/python -m bench.accuracy $(ARGS)

docs: $(VENV)/dev.stamp ## Write the generated pages of docs/, the rules and the dashboards
	$(BIN)/python -m tools.reference $(INTO)docs
	cat docs/runbooks/IBPulse*.md > exporter/ibpulse/gateway/runbooks.md
	$(BIN)/python -m tools.grafana rules $(INTO)dashboards/rules
	$(BIN)/python -m tools.grafana dashboards $(INTO)dashboards

docs-site: $(VENV)/docs.stamp ## Build the documentation site in build/site (ARGS="-D repository=https://HOST/OWNER/NAME")
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees $(ARGS) docs build/site

previews: $(VENV)/dev.stamp ## Draw the dashboards from a running Prometheus without Grafana; needs Node and Chromium (ARGS="--board=fleet")
	$(BIN)/python -m tools.previews $(ARGS)

chart: $(VENV)/dev.stamp ## Write the generated parts of the Helm chart
	$(BIN)/python -m tools.chart $(INTO).

release: $(VENV)/release.stamp ## Build all files of a release in build/release (REPOSITORY=https://HOST/OWNER/NAME IMAGE=REGISTRY/OWNER/NAME)
	@rm -rf build/release
	@$(BIN)/python -m tools.release build/release --repository=$(REPOSITORY) --image=$(IMAGE) $(ARGS)

generated: docs ## Write everything that is generated: `make docs`, then `make chart`, which copies the boards
	@$(MAKE) --no-print-directory chart

format: $(VENV)/dev.stamp ## Format the code
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/ruff check --fix $(PYTHON_FILES)

lock: $(VENV)/dev.stamp ## Pin the newest releases of all requirements
	$(BIN)/uv pip compile pyproject.toml --extra recording $(LOCK) -o requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml $(LOCK) -c requirements/run.txt -o requirements/base.txt
	$(BIN)/uv pip compile pyproject.toml --extra recording --extra pictures --extra fleet \
	  $(LOCK) -c requirements/run.txt -o requirements/all.txt
	$(BIN)/uv pip compile --group build $(LOCK) -o requirements/build.txt
	$(BIN)/uv pip compile --group release $(LOCK) -o requirements/release.txt
	$(BIN)/uv pip compile pyproject.toml --extra pictures --group dev $(LOCK) -o requirements/dev.txt
	$(BIN)/uv pip compile --group docs $(LOCK) -c requirements/dev.txt -o requirements/docs.txt

LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("ibpulse needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(VENV)/bin/python requirements/base.txt requirements/build.txt pyproject.toml
	$(PIP) --no-deps --require-hashes -r requirements/base.txt -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/workbench.stamp: $(VENV)/run.stamp requirements/all.txt
	$(PIP) --no-deps --require-hashes -r requirements/all.txt
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.txt
	$(PIP) --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/release.stamp: $(VENV)/run.stamp requirements/release.txt
	$(PIP) --no-deps --require-hashes -r requirements/release.txt
	@touch $@

# pip takes thirty times as long
$(VENV)/docs.stamp: $(VENV)/run.stamp requirements/docs.txt
	$(PIP) --no-deps --require-hashes -r requirements/docs.txt
	@touch $@
