# SPDX-License-Identifier: MIT
# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
FTPATCH := $(VENV)/.installed
READY  := $(VENV)/.ready
SAMPLE ?= samples/built/vmlinux-x86_64

.PHONY: help demo test test-full test-kernels test-programs test-stripped test-matrix test-processes fuzz lint bench packages samples man pictures clean

help:                 ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

# The first is all that a demo needs; the tests need four times as much.
$(FTPATCH): pyproject.toml scripts/environment.sh
	@sh scripts/environment.sh $(PYTHON) $(VENV)
	@touch $@

$(READY): pyproject.toml scripts/environment.sh
	@sh scripts/environment.sh $(PYTHON) $(VENV) tests
	@touch $(FTPATCH) $@

demo: $(FTPATCH)        ## status, enable, diff, check and undo on a sample kernel
	@sh scripts/demo.sh $(BIN)/ftpatch $(SAMPLE)

packages:             ## what the tests need from the distribution (root on Debian: installs it)
	@sh scripts/packages.sh

PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: packages $(READY) ## a sample of the tests, each day another: minutes
	$(PYTEST) --ignore tests/kernels

# FTPATCH_FULL=rest leaves out what `make test` has run with the same FTPATCH_SEED.
test-full: packages $(READY) ## all tests but those on real kernels
	FTPATCH_FULL=$${FTPATCH_FULL:-1} $(PYTEST) --durations 12 --ignore tests/kernels

test-kernels: packages $(READY) ## real kernels, patched and booted under QEMU
	$(PYTEST) --durations 12 tests/kernels

test-programs: packages $(READY) ## programs of others, whose own tests run traced
	FTPATCH_FULL=1 FTPATCH_SOURCES=1 $(BIN)/python -m pytest -n 2 tests/tracer/test_tracer_real.py \
	    tests/process/test_servers.py

test-stripped: packages $(READY) ## programs of Debian probed all over, and built from its sources
	FTPATCH_FULL=product $(PYTEST) tests/probe/test_probe_distribution.py \
	    tests/probe/test_source_programs.py

test-matrix: packages $(READY) ## programs of all forms and architectures, traced: the whole product
	FTPATCH_FULL=product $(PYTEST) tests/tracer/test_tracer_matrix.py tests/tracer/test_tracer_tree.py

test-processes: packages $(READY) ## running processes, traced and left as often as it takes
	FTPATCH_FULL=product $(PYTEST) tests/process tests/cli/test_pid.py

DRAWING = $(shell grep -rlE 'hypothesis|run_fuzzer|import FUZZ' tests --include 'test_*.py')
fuzz: packages $(READY) ## new broken and drawn inputs, until they find something
	while FTPATCH_FUZZ=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') FTPATCH_FULL=1 \
	    $(PYTEST) $(DRAWING); do :; done

lint: $(READY)        ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: packages $(READY) ## ratios, measured alternately in one run
	$(BIN)/python bench/bench.py
	$(BIN)/python bench/tracing.py
	$(BIN)/python bench/probing.py
	$(BIN)/python bench/debug_info.py
	$(BIN)/python bench/boot.py
	$(BIN)/python bench/live.py

man: $(READY)         ## write the manual pages again, from the helps
	@$(BIN)/python scripts/man_pages.py man

pictures: $(READY)    ## draw the pictures of docs/ again
	@$(BIN)/python scripts/pictures.py docs

samples: $(READY)     ## build the samples again
	$(MAKE) -C samples PYTHON=$(abspath $(BIN)/python)

clean:                ## remove the environment and caches of this folder
	rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
