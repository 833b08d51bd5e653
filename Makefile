# Every target sets up what it needs, from nothing but Python 3.11, 3.12 or 3.13 with pip and venv.
# A virtual environment is made anew only when pyproject.toml changes.

PYTHON ?= python3
JOBS ?= 2

.PHONY: help demo wheel lite test test-slow test-asan clients parity fuzz kills bench lint stubs addresses clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train a small network on real digits, plot, save, reload (2 minutes)"
	@echo "make test       lint, types and tests"
	@echo "make test-slow  the tests that take longer"
	@echo "make test-asan  the native kernels' tests with address and undefined-behaviour sanitizers"
	@echo "make clients    models of packages written for Paddle, on Bireme and on Paddle (20 minutes)"
	@echo "make parity     compare with the real paddlepaddle wheel"
	@echo "make fuzz       200,000 damaged files over all formats that are read (30 minutes)"
	@echo "make kills      1,000 kills while files are saved, over every saver (5 minutes)"
	@echo "make bench      measure against Paddle, PyTorch and JAX (long)"
	@echo "make wheel      a wheel with the native kernels, in dist/ (5 minutes)"
	@echo "make lite       Bireme Lite for x86-64, arm64, riscv64 and WebAssembly, with sizes (5 minutes)"
	@echo "make lint       ruff and pyright only"
	@echo "make stubs      rewrite the generated type stubs"
	@echo "make addresses  rewrite the book of Paddle's inner addresses (from the wheel)"
	@echo "make clean      remove virtual environments and build products"

# One environment serves demo and tests; the stamp says which extras it has.
.venv/bin/python:
	$(PYTHON) -c "import sys; assert (3, 11) <= sys.version_info < (3, 14), 'Bireme needs Python 3.11, 3.12 or 3.13'"
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,parity]'
	@touch $@ .venv/.demo

.venv-bench/.bench: pyproject.toml
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -e '.[parity,onnx,openvino,plot]' torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchvision==0.28.0 'pillow>=10'
	@touch $@

demo: .venv/.demo
	.venv/bin/bireme demo

test: lint
	.venv/bin/python -m pytest -n $(JOBS) -m "not slow"

test-slow: .venv/.dev
	.venv/bin/python -m pytest -n $(JOBS) -m slow

wheel: .venv/.dev
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

# Targets whose cross compiler or emulator is missing are skipped: apt-get install cmake qemu-user
# g++-aarch64-linux-gnu g++-riscv64-linux-gnu emscripten nodejs
lite: .venv/.dev
	.venv/bin/python -m pytest -n 0 -vv -s -m slow tests/lite/test_cross.py

# GCC's sanitizers. The library is built without them preloaded: the compiler would run in them, too.
SANITIZERS = $$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)
test-asan: export BIREME_NATIVE_FLAGS = -O1 -g1 -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined
test-asan: export BIREME_CACHE_DIR = $(CURDIR)/build/asan
test-asan: export BIREME_TEST_CACHE_OWNER = make
test-asan: export CXX = g++
test-asan: .venv/.dev
	.venv/bin/python -c "from bireme.kernels import native; native.build()"
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 .venv/bin/python -m pytest -n 0 $(wildcard tests/kernels/test_native*.py) \
		tests/kernels/test_edges.py tests/kernels/test_packed.py tests/kernels/test_layer_norm.py tests/kernels/test_cpu_bfloat16.py \
		tests/kernels/test_direct.py tests/backends/test_fused.py

clients: .venv/.dev
	.venv/bin/python -m pytest -n 0 -vv -m "slow or not slow" tests/clients

parity: .venv/.dev
	.venv/bin/python -m tests.parity
	.venv/bin/python -m pytest -n $(JOBS) tests/parity

fuzz: .venv/.dev
	.venv/bin/python -m tests.fuzz 200000

kills: .venv/.dev
	.venv/bin/python -m tests.kills 1000

bench: .venv-bench/.bench
	.venv-bench/bin/python -m bench eager
	.venv-bench/bin/python -m bench to_static
	.venv-bench/bin/python -m bench infer
	.venv-bench/bin/python -m bench record
	.venv-bench/bin/python -m bench cold
	.venv-bench/bin/python -m bench memory
	.venv-bench/bin/python -m bench curves

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright --pythonpath .venv/bin/python

stubs: .venv/.dev
	.venv/bin/python scripts/make_stubs.py

addresses: .venv/.dev
	.venv/bin/python scripts/make_addresses.py

clean:
	rm -rf .venv .venv-bench build dist *.egg-info .pytest_cache .ruff_cache .hypothesis demo_output
