# Curvescope: `make help` lists the targets. Everything happens in .venv; nothing needs root.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests at once: one more than there are cores, as many tests wait for a while, for a process or for a clock.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
INSTALLED := $(VENV)/.installed
# Installs the versions of constraints.txt, and builds with them, which pip takes from a variable, before 25.3 the first.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The package is installed in place: Python changes are seen at once, native and dependency changes reinstall it.
$(INSTALLED): pyproject.toml constraints.txt native/CMakeLists.txt $(wildcard native/include/*/* native/src/*)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[torch,dev]'
	@touch $@

.PHONY: run
run: $(INSTALLED)  ## set up, diagnose AlexNet on this machine and test the causes (two and a half minutes)
	$(BIN)/curvescope diagnose alexnet

# Tests start hundreds of processes; each would compile the package again.
test test-quick test-random test-slow test-ci test-all: export PYTHONDONTWRITEBYTECODE =

.PHONY: test
test: $(INSTALLED)  ## set up and run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20 --durations-min 2 -m "not slow"

# What is pure arithmetic on tables and recorded files, and starts few processes; less what reads every stored profile
# or simulates many sweeps.
QUICK = tests/analysis tests/experiments tests/profiling/recording tests/profiling/attribution tests/profiling/readers
LONG = $(addprefix --ignore=tests/,analysis/test_stored_recordings.py analysis/causes/test_real_causes.py \
	analysis/causes/test_suggestions.py analysis/ranks/test_stragglers.py analysis/render/test_true_of_profiles.py \
	analysis/verdicts/test_attacks.py experiments/test_gpu_feasibility.py experiments/test_step_variants.py \
	experiments/test_time_limit.py profiling/readers/test_fuzz.py profiling/readers/test_plain_pickle.py)

.PHONY: test-quick
test-quick: $(INSTALLED)  ## the tests of analysis, experiments, readers and recordings, in two minutes
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(QUICK) $(LONG)

# In one process, so that each test runs beside as many others as there are.
SEED ?= $(shell date +%j)
TESTS ?= tests

.PHONY: test-random
test-random: $(INSTALLED)  ## the tests in a random order, in one process (SEED=1 TESTS=tests/curvescope)
	$(BIN)/python -m pytest --shuffle $(SEED) -m "not slow" $(TESTS)

.PHONY: test-slow
test-slow: $(INSTALLED)  ## the tests that take long: kills by the hundred, live measurements, all the pages' commands
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow

.PHONY: test-ci
test-ci: $(INSTALLED)  ## the tests and the slow ones, but for those that only try more inputs
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 40 --durations-min 3 -m "not exhaustive"

.PHONY: test-all
test-all: $(INSTALLED)  ## all tests, each question once
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 40 --durations-min 3 -m "not in_slow"

.PHONY: check
check: $(INSTALLED)  ## lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror native/include/*/* native/src/* tests/native/*.cpp tests/native/*.h \
		tests/virtual_card/src/* kernels/cuda/*.cu* kernels/cuda/*/*.cu tests/kernels/*.h tests/profiling/hardware/*.cpp
	$(BIN)/python -m mypy -p curvescope

.PHONY: docs
docs: $(INSTALLED)  ## check the spelling, and build the documentation into build/site; it opens without a network
	$(PIP) codespell mkdocs-material
	$(BIN)/codespell --skip "*.html,*.svg,*.json" *.md docs examples mkdocs.yml
	$(BIN)/python docs/generate_reference.py
	$(BIN)/curvescope report examples/recordings/alexnet-cpu -o docs/figures/report.html --force
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.PHONY: rooms
rooms: $(INSTALLED)  ## draw the rooms of the code from its imports, in CONTRIBUTING.md and the documentation
	$(BIN)/python docs/draw_rooms.py

.PHONY: package
package: $(INSTALLED)  ## build sdist, wheel and pure wheel into build/dist, reproducibly, and try them in empty environments
	$(PIP) auditwheel build twine wheel
	$(BIN)/python .ci/package.py

.PHONY: release
release:  ## make VERSION=1.2.3 of what is committed: changelog, commit, tag, and the files of `make package`
	$(PYTHON) .ci/release.py $(VERSION)
	$(MAKE) package

.PHONY: rehearse-release
rehearse-release: $(INSTALLED)  ## make release of VERSION=1.2.3 in a clone, with every check of its files; nothing else changes
	$(PIP) auditwheel build twine wheel
	$(BIN)/python .ci/release.py --rehearse $(VERSION)

.PHONY: man
man: $(INSTALLED)  ## write the man page from the help, build/curvescope.1
	$(BIN)/python docs/man_page.py

.PHONY: audit
audit: $(INSTALLED)  ## bill of materials (build/sbom.json), and known vulnerabilities of what users install
	$(PIP) cyclonedx-bom pip-audit
	$(BIN)/python .ci/audit.py

.PHONY: pins
pins: $(INSTALLED)  ## renew constraints.txt: the newest versions that pyproject.toml's ranges allow
	$(PIP) uv && mkdir -p build
	printf '%s\n' cmake ninja scikit-build-core uv | $(BIN)/uv pip compile --quiet --universal \
		--python-version 3.10 --all-extras --no-annotate --no-header pyproject.toml - -o build/pins.txt
	(sed '/^[^#]/,$$d' constraints.txt; cat build/pins.txt) > build/constraints.txt
	mv build/constraints.txt constraints.txt

.PHONY: bench
bench: $(INSTALLED)  ## measure what is claimed of speed, as ratios against peers
	$(BIN)/python benchmarks/speed.py

.PHONY: faults
faults: $(INSTALLED)  ## inject faults into every command, for an hour
	$(BIN)/python benchmarks/faults.py

.PHONY: real
real: $(INSTALLED)  ## fetch NVIDIA's driver library and four versions of libcupti (50 MB), and run the collector under them
	.ci/real_libraries.sh
	$(BIN)/python -m pytest tests/native/test_real_libraries.py

# An environment with PyTorch's CUDA build; its own requirements are not those of constraints.txt, the others are.
VIRTUAL ?= .venv-virtual
CUDA_TORCH := torch==2.14.1
NUMBA_CUDA := numba-cuda==0.30.4
$(VIRTUAL)/.installed: pyproject.toml constraints.txt native/CMakeLists.txt $(wildcard native/include/*/* native/src/*)
	[ -e $(VIRTUAL) ] || $(PYTHON) -m venv $(VIRTUAL)
	mkdir -p build/virtual
	(grep -vE '^(torch|triton|setuptools|nvidia-[a-z]+-cu13|cuda-[a-z]+)==' constraints.txt; \
		printf '%s\n' $(CUDA_TORCH) $(NUMBA_CUDA)) \
		> build/virtual/constraints.txt
	PIP_CONSTRAINT=build/virtual/constraints.txt PIP_BUILD_CONSTRAINT=build/virtual/constraints.txt \
		$(VIRTUAL)/bin/python -m pip install --quiet --disable-pip-version-check -c build/virtual/constraints.txt \
		--config-settings build-dir=build/virtual/native --editable '.[torch]' hypothesis jsonschema numba-cuda pytest pytest-xdist
	@touch $@

# Those that need a CUDA device; on the virtual card all run that have no marker `not_virtual`. Those of the collector
# record other programs, in the host's time.
GPU_TESTS = $(shell grep -rlE --include='test_*.py' '^(pytestmark = |@)pytest.mark.gpu' tests)
OF_HOST := tests/native/test_gpu.py

.PHONY: virtual virtual-all
virtual virtual-all: export PYTHONDONTWRITEBYTECODE =
virtual: CHOSEN := not exhaustive
virtual-all: CHOSEN := exhaustive or not exhaustive
virtual:  ## run the CUDA path on a virtual card, without a GPU; sets up torch's CUDA build (5.5 GB)
virtual-all:  ## the same, with the tests that only try more inputs
virtual virtual-all: $(VIRTUAL)/.installed
	$(VIRTUAL)/bin/python -m pytest -n 2 --dist worksteal --durations 20 --durations-min 5 -m "$(CHOSEN)" tests/virtual_card
	$(VIRTUAL)/bin/python -m tests.virtual_card.card h100 --virtual-time -- $(VIRTUAL)/bin/python -m pytest \
		-n 2 --dist worksteal --durations 20 --durations-min 5 -m "gpu and ($(CHOSEN))" $(filter-out $(OF_HOST),$(GPU_TESTS))
	$(VIRTUAL)/bin/python -m tests.virtual_card.card h100 -- \
		$(VIRTUAL)/bin/python -m pytest -n 2 --dist worksteal -m "gpu and ($(CHOSEN))" $(OF_HOST)

.PHONY: gpu
gpu:  ## on a CUDA machine: measure all that only a GPU can show (PYTHON with curvescope, or ARGS='--wheels .wheels')
	$(PYTHON) benchmarks/gpu/campaign.py $(ARGS)

.PHONY: rehearse
rehearse: $(INSTALLED)  ## rehearse the first fifteen minutes on a real card: its software, on a virtual card (6 GB, 12 minutes)
	$(BIN)/python benchmarks/gpu/rehearse.py $(ARGS)

.PHONY: gpu-wheels
gpu-wheels:  ## the folder .wheels, with which `make gpu` runs on a CUDA machine without a network (ARGS=--help)
	$(PYTHON) benchmarks/gpu/wheels.py $(ARGS)

.PHONY: clean
clean:  ## remove what was built; recordings in runs/ stay
	rm -rf $(VENV) .venv-virtual .replica build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help
help:  ## this text
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  \1\t/' | expand -t 12
