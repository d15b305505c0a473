# Every target makes its own .venv and installs what it needs into it; the
# machine needs only Python 3.11 or later with pip and venv, and make.

PYTHON ?= python3
ARGS ?=
# Of chaos. Without a seed it chooses one, and says which.
MINUTES ?= 10
SEED ?=
DATABASE ?= postgres

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-
PYENV := $(or $(PYENV_ROOT),$(HOME)/.pyenv)
# The newest Python may be neither on PATH nor of pyenv: then it comes from a Debian in a folder.
NEWEST := 3.14
PYTHONS := .pythons
INTERPRETERS := $(abspath $(PYTHONS)/bin) $(foreach minor,11 12 13 14,$(wildcard $(PYENV)/versions/3.$(minor).*/bin))

# Every version that is installed, so that no release of others turns a check red; tox takes the
# newest. `make upgrade` renews it.
CONSTRAINTS := .ci/constraints.txt
# What each target installs: extras of setup.cfg.
EXTRAS_demo := demo,web,postgres
EXTRAS_embedded := embedded
EXTRAS_servers := servers
EXTRAS_dask := dask
EXTRAS_engines := dask,ray
EXTRAS_test := test,web,postgres
EXTRAS_lint := lint
EXTRAS_docs := docs
EXTRAS_tox := tox

empty :=
space := $(empty) $(empty)
comma := ,

.DEFAULT_GOAL := help
.PHONY: help demo test chaos lint format bench screenshots docs tox dist upgrade clean
# Two installations into one .venv would disturb each other.
.NOTPARALLEL:

help: ## say what there is
	@echo "Usage: make TARGET [ARGS=…] [PYTHON=python3.12]"
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | \
	    while IFS='|' read -r target what; do printf '%-18s %s\n' "$$target" "$$what"; done

# The demo needs the embedded server only with --postgres.
EMBEDDED = $(if $(findstring --postgres,$(ARGS)),$(STAMP)embedded)
DASK = $(if $(filter --dask,$(ARGS)),$(STAMP)dask)

demo: $(STAMP)demo $(EMBEDDED) $(DASK) ## run tasks on real terrain until Ctrl-C; ARGS: --exit, --postgres, --dask, --help
	@$(BIN)/python -m demo_project $(ARGS)

# Only with --all are there tests on the engines of executors.
ENGINES = $(if $(filter --all,$(ARGS)),$(STAMP)engines)

test: $(STAMP)test $(ENGINES) ## run the tests on SQLite and PostgreSQL; ARGS: --all, --quick, --help, and those of pytest
	@$(BIN)/python -m tests.run $(ARGS)

chaos: $(STAMP)test ## break things while tasks run, check every promise; MINUTES, SEED, DATABASE, ARGS
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) --database $(DATABASE) \
	    $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: $(STAMP)lint ## check style, format and types
	$(BIN)/ruff check $(ARGS)
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)lint ## mend style and format
	$(BIN)/ruff check --fix $(ARGS)
	$(BIN)/ruff format

bench: $(STAMP)demo $(STAMP)embedded $(STAMP)servers ## measure; ARGS: drain, enqueue, latency, peers, --database, --json, --help
	@$(BIN)/python -m benchmarks $(ARGS)

screenshots: $(STAMP)test ## take the pictures of the pages that the docs show
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

# All of it anew: what has not changed would not warn again, and each warning is an error.
docs: $(STAMP)docs ## build the site of the docs, into build/site; ARGS: those of sphinx-build
	@rm -rf build/site build/doctrees
	@$(BIN)/python -m sphinx --quiet --fail-on-warning -c docs/site -d build/doctrees $(ARGS) . build/site
	@echo "build/site/index.html"

tox: $(STAMP)tox ## run the tests on every supported Python and Django; ARGS: -e py312-django60
	@PATH="$(subst $(space),:,$(INTERPRETERS)):$$PATH" command -v python$(NEWEST) >/dev/null || \
	    .ci/python-of-debian $(NEWEST) $(PYTHONS)
	@PATH="$(subst $(space),:,$(INTERPRETERS)):$$PATH" $(BIN)/tox run $(ARGS)

# The wheel is built from the sdist, so nothing that an earlier build has left gets into it.
dist: $(BIN)/python ## build the wheel and the sdist, into dist/
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	@rm -rf dist *.egg-info
	@$(BIN)/python -m build --outdir dist . >$(VENV)/dist.log 2>&1 || \
	    { cat $(VENV)/dist.log >&2; exit 1; }
	@ls dist/*

clean: ## remove all that the other targets made
	rm -rf $(VENV) .tox $(PYTHONS) .conformance .demo .peers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

upgrade: ## take the newest version of everything that the checks install, into .ci/constraints.txt
	@$(PYTHON) -m venv --clear $(VENV)/newest
	@$(VENV)/newest/bin/python -m pip install --quiet --disable-pip-version-check setuptools \
	    -e '.[$(subst $(space),$(comma),$(foreach each,demo embedded servers engines test lint docs,$(EXTRAS_$(each))))]'
	@$(VENV)/newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade setuptools
	@{ echo "# Written by: make upgrade"; \
	    $(VENV)/newest/bin/python -m pip freeze --all --exclude-editable --exclude pip; \
	    } > $(CONSTRAINTS)
	@rm -rf $(VENV)/newest
	@git diff --stat $(CONSTRAINTS)

# The variables hold for the packages that build ours, too.
$(STAMP)%: setup.cfg pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing into $(VENV): $(EXTRAS_$*)"
	@PIP_CONSTRAINT=$(CONSTRAINTS) PIP_BUILD_CONSTRAINT=$(CONSTRAINTS) \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS_$*)]'
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "There is no $(PYTHON). Name an interpreter: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "ATP needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	           "Name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
