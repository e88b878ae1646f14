# The two commands of the README, and what a developer needs besides. Needs Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PROCESSES := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n : 8)))
RESULTS := $(or $(BATCHSCALE_RESULTS),results/runs)
CODE := batchscale workloads experiments results analysis validation tests benchmarks docs examples

.PHONY: help install demo cluster-demo test test-all test-ci browser bench truth findings findings-tables findings-pictures docs gallery lint lines clean

help:
	@echo "make demo    train 12 batch sizes x 3 optimizers on digits, locate the regimes, draw them"
	@echo "make cluster-demo the demo on three Ray nodes, one of them killed halfway: the same regimes"
	@echo "make test    the tests          make bench   the table of docs/findings/benchmarks.md"
	@echo "make test-all the tests and the slow ones: several starts of Ray, kills, fuzzing"
	@echo "make test-ci the tests and of the slow ones a tenth, by the day, and those that the last changes touch"
	@echo "make browser the tests that open pages in a headless Chromium"
	@echo "make truth   what the intervals are worth: docs/findings/truth.md, by simulation (26 minutes of processor time)"
	@echo "make findings the other pages of docs/findings and their pictures, from packaged data"
	@echo "make docs    the documentation as a site, in build/docs"
	@echo "make gallery every figure of docs/gallery.md and its numbers, in figures/gallery"
	@echo "make lint    ruff and mypy      make lines   lines by part, their ceilings and the aims"
	@echo "make clean   everything that can be made again, but no results"

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("error: batchscale needs Python 3.11 or newer, %s is %d.%d (make PYTHON=python3.12 ...)" % (sys.executable, *sys.version_info[:2]) if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --progress-bar on --editable . --group dev
	@# A folder results/ where a script or notebook runs would hide ours from the editable install's finder, not from a path.
	@$(BIN)/python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "batchscale.pth").write_text(f"{pathlib.Path.cwd()}\n")'
	@$(BIN)/python -c 'import torchvision' 2>/dev/null || { echo 'error: torchvision does not import beside this torch: a CPU-only torch needs the CPU-only torchvision (the default wheels of both go together)' >&2; exit 1; }
	@touch $@

demo: $(STAMP)
	$(BIN)/batchscale sweep digits --results $(RESULTS)
	$(BIN)/batchscale regimes $(RESULTS) --where "experiment = 'digits'"
	$(BIN)/batchscale plot steps $(RESULTS) --where "experiment = 'digits'" -o figures/demo-steps.png

cluster-demo: $(STAMP)
	$(BIN)/batchscale sweep digits --results $(RESULTS)
	$(BIN)/python docs/cluster/demo.py $(RESULTS)

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal

# One more than there are cores: tests that start a Ray or kill a worker wait for most of their time.
test-all: $(STAMP)
	$(BIN)/python -m pytest --numprocesses=$$(($(PROCESSES) + 1)) --dist=worksteal -m "not browser"

test-ci: $(STAMP)
	$(BIN)/python -m pytest --numprocesses=$$(($(PROCESSES) + 1)) --dist=worksteal -m "not browser" --slow-part=today

browser: $(STAMP)
	$(BIN)/python -m pytest -m browser

bench: $(STAMP)
	$(BIN)/python -m benchmarks

truth: $(STAMP)
	$(BIN)/python -m validation

findings: $(STAMP)
	$(MAKE) --jobs=2 findings-tables findings-pictures

findings-tables:
	$(BIN)/python -m validation growth half-life noise-scale optimizers questions rules wrong-size

findings-pictures:
	$(BIN)/python docs/measured.py
	$(BIN)/python docs/pictures.py

docs: $(STAMP)
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/docs
	@echo "build/docs/index.html"

gallery: $(STAMP)
	$(BIN)/python docs/gallery.py

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

lines: $(STAMP)
	@$(BIN)/python -m tests.contract.lines

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis figures
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
