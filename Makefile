# The two commands are `make demo` and `make test`; each builds .venv on first use.
#   PYTHON=python3.12       another interpreter (3.11 or newer)
#   TORCH_INDEX=https://…   where a smaller torch is, such as the CPU build's wheel index

PYTHON ?= python3
TORCH_INDEX ?=

BIN := .venv/bin
# --no-compile halves the install: Python compiles the few modules that are used when they are first imported.
INSTALL := $(BIN)/python -m pip --quiet --no-input --disable-pip-version-check install --no-compile
# Where Python writes no bytecode (many containers), it is written once, or each command would compile PyTorch anew.
COMPILE = $(if $(PYTHONDONTWRITEBYTECODE),env -u PYTHONDONTWRITEBYTECODE TRITON_INTERPRET=1 $(BIN)/python -W ignore -c $(1))
WARM_TOOLS := 'import pytest, xdist, torch._dynamo, torch._inductor.compile_fx, torch_geometric.nn, e3nn.o3, triton, transformers'
WARM := 'import edgewise.apps.command.demo, edgewise.apps.command.runs, edgewise.apps.report.report, networkx, sklearn.datasets'
RUNTIME := .venv/runtime.stamp
TOOLS := .venv/tools.stamp
# What the native module is built from: where that changed, by a pull too, it is built anew.
KERNELS := $(shell find src/edgewise -name '*.[ch]pp' -o -name CMakeLists.txt)

.PHONY: demo test test-more figures lint check docs bench extras wheel wheel-check sanitize instruction-sets fuzz mutants web browsers lock clean

demo: $(RUNTIME)
	$(BIN)/edgewise demo

# A process of one thread for each core.
test: $(TOOLS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# What takes longer: Triton's interpreter, compilers, several processes, the studies.
MORE := interpreter or compiled or studies or processes
LONG := accuracy or endurance or browser or exports or wheel
test-more: $(TOOLS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m '($(MORE)) and not ($(LONG))'

# The figures of the documentation, in so many parts side by side; what build/figures holds is not run again, and what could not be
# run (its line says why) keeps the recorded figure. Then the tables of docs/results.md.
PARTS ?= 2
figures: $(TOOLS)
	-seq $(PARTS) | xargs -P $(PARTS) -I N $(BIN)/python -m benchmarks.figures --part N/$(PARTS) $(ONLY)
	$(BIN)/python -m benchmarks.figures --write

lint: $(TOOLS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: lint test

# Every optional package that Edgewise can use, at the locked versions.
extras: $(TOOLS)

# Every case of the benchmark at small sizes: does each contender run, and give the right numbers?
bench: $(TOOLS)
	$(BIN)/python -m benchmarks all --quick

# From nothing each time: what an older build left has links to places that are gone.
docs: $(TOOLS)
	rm -rf docs/_build docs/systems
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "docs/_build/index.html"

# One manylinux wheel for other machines, for Python 3.11 and later, with the kernels of every instruction set (an install here
# builds this machine's best alone) and a bill of materials. It takes the two interpreters of PYTHONS.
PYTHONS ?= python3.11 python3.12
wheel:
	$(PYTHON) -m wheels.build dist $(PYTHONS)

# The wheel with PyTorch alone in empty environments: how long from nothing to the demo's first line, and do the kernels run?
# INTO names others, each as an interpreter and what to install of PyTorch. uv installs; what it has downloaded, it keeps.
INTO ?= python3.11=torch==2.10.* python3.11=torch python3.12=torch python3.13=torch
wheel-check: wheel
	build/wheel/environment/bin/python -m wheels.check dist $(INTO)

# A copy of the package in a folder, with kernels of its own: BUILD_KERNELS with options of cmake; and where `python -S`, which
# leaves the installed package out, finds it and all others.
define BUILD_KERNELS
PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S src/edgewise/native -B $(1)/cmake -G Ninja \
		$(2) -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build $(1)/cmake
	rm -rf $(1)/site
	mkdir -p $(1)/site
	cp -R src/edgewise $(1)/site
	rm -f $(1)/site/edgewise/native/*.so
	cp $(1)/cmake/*.so $(1)/site/edgewise/native
endef
OWN_KERNELS = "$(1)/site:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

# The tests of kernels under AddressSanitizer and UndefinedBehaviorSanitizer, or, with SANITIZER=thread, those that run on
# threads under ThreadSanitizer, against kernels built so. --capture=sys lets a sanitizer's report through. A test of how
# little memory is taken is left out: sanitizers hold on to what is freed; so are forked processes, in which ThreadSanitizer
# allows no threads. `setarch -R`: it needs its addresses where they always are. CHOSEN="WORD and": those with that word alone.
SANITIZER ?= address,undefined
SANITIZE := build/sanitize/$(SANITIZER)
ifeq ($(SANITIZER),thread)
PRELOAD := libtsan.so
SETS := native
LEFT_OUT := not never_written_down and not fork and not data_loader
SANITIZED := tests/native tests/kernels/backends/cpu tests/kernels/test_numerics.py
else
PRELOAD := libasan.so libubsan.so
SETS := all
LEFT_OUT := not never_written_down
SANITIZED := tests/native tests/kernels --ignore tests/kernels/backends/cuda
endif
sanitize: $(TOOLS)
	$(call BUILD_KERNELS,$(SANITIZE),-DEDGEWISE_SANITIZE=$(SANITIZER) -DEDGEWISE_INSTRUCTION_SETS=$(SETS))
	LD_PRELOAD="$(foreach name,$(PRELOAD),$(shell c++ -print-file-name=$(name)))" OMP_NUM_THREADS=4 \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	TSAN_OPTIONS=ignore_noninstrumented_modules=1:exitcode=66 \
	PYTHONPATH=$(call OWN_KERNELS,$(SANITIZE)) \
		setarch -R $(BIN)/python -S -m pytest --capture=sys -o timeout=1200 -k '$(CHOSEN) $(LEFT_OUT)' $(SANITIZED)

# The tests of kernels with each instruction set of a wheel that this machine has, but for the best, with which all tests run.
# Only those are built.
OTHER_SETS := build/instruction-sets
instruction-sets: $(TOOLS)
	$(call BUILD_KERNELS,$(OTHER_SETS),-DEDGEWISE_INSTRUCTION_SETS=others)
	export OMP_NUM_THREADS=1 PYTHONPATH=$(call OWN_KERNELS,$(OTHER_SETS)); \
	$(BIN)/python -S -c 'from edgewise.native import library; print(*library.instruction_sets(), sep="\n")' | \
		xargs -P 2 -I NAME $(BIN)/python -S -m pytest -q --instruction-set NAME \
		tests/native tests/kernels/backends/cpu tests/kernels/messages $(wildcard tests/kernels/test_*.py)

# Every reader of files and the public operators, fuzzed for so many seconds each in one process, guided by coverage. It
# installs atheris, which is built for CPython 3.11 to 3.13 on Linux. What breaks a reader is written to build/fuzz/READER.
SECONDS ?= 60
fuzz: $(TOOLS)
	$(INSTALL) atheris
	$(BIN)/python tests/fuzz/campaign.py --seconds $(SECONDS)

# COUNT changes of the source, drawn at random: which do the tests that reach them not notice? It installs cosmic-ray.
COUNT ?= 40
mutants: $(TOOLS)
	$(INSTALL) cosmic-ray
	$(BIN)/python tests/mutants.py --count $(COUNT)

# The explorer's page: its types, its tests, its build into the package. It needs node and npm.
web:
	npm --prefix web ci --ignore-scripts --no-audit --no-fund
	npm --prefix web run check
	npm --prefix web test
	npm --prefix web run build

# The explorer in the browsers that are here, Chromium and Firefox, and exported models in Chromium, which fails where that or
# EDGEWISE_DATA is missing; frames in a second are measured, so on a quiet machine.
browsers: $(TOOLS) web/node_modules/.package-lock.json
	CI=true $(BIN)/python -m pytest -m browser tests/apps/explorer tests/deployment

web/node_modules/.package-lock.json: web/package-lock.json
	npm --prefix web ci --ignore-scripts --no-audit --no-fund
	@touch $@

# torch comes first and alone, so that only torch is looked up on TORCH_INDEX and nothing else chooses its version.
$(RUNTIME): requirements/lock.txt pyproject.toml $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Edgewise needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(INSTALL) --constraint requirements/lock.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(INSTALL) --no-deps --requirement requirements/lock.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	$(call COMPILE,$(WARM))
	@touch $@

$(TOOLS): $(RUNTIME) requirements/lock-tools.txt
	$(INSTALL) --no-deps --requirement requirements/lock-tools.txt
	$(call COMPILE,$(WARM_TOOLS))
	@touch $@

# Rewrites both lock files from pyproject.toml's ranges; torch keeps the version that the lock names.
lock:
	PYTHON=$(PYTHON) TORCH_INDEX=$(TORCH_INDEX) requirements/relock

clean:
	rm -rf .venv build dist docs/_build docs/systems src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
