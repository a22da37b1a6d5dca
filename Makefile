# The front door. Everything generated goes under build/.
#
#   make lab     from a fresh machine to a table and a report of allocators, in one command
#   make test    set up, build, run every test

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# On CI a warning is an error.
PRESET ?= $(if $(filter true,$(CI)),ci,release)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Building the library asks for nothing that only the tests need.
BUILD_TESTS := OFF
test test-all: BUILD_TESTS := ON
LONG_TESTS := OFF
test-all: LONG_TESTS := ON
ALL_EXPERIMENTS := lfh contention tokens buffer-cache queue sizes levels phase sparse handoff
export CARGO_TARGET_DIR := $(CURDIR)/build/cargo
export CARGO_NET_RETRY ?= 5

.PHONY: static static-test fleet release packages packages-test ageing windows compilers fuzz \
	portability soak record-soak doctor-study help setup setup-build setup-test setup-lab \
	setup-static setup-packages setup-windows build library tool lab lab-all lab-full test \
	test-all check sanitize peers bench bench-build install uninstall format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (as root, by apt), or say exactly what and how
	@tools/setup

setup-build:
	@tools/setup build

setup-test:
	@tools/setup build test

setup-windows:
	@tools/setup build windows

setup-lab:
	@tools/setup build lab

build: library tool ## Build build/libloam.so, build/libloam.a, build/loam and the workloads
	@ls -1 build/libloam.so build/libloam.a build/loam

library: setup-build
	@tools/quietly build/log/configure.log cmake --preset $(PRESET) \
	  -DLOAM_BUILD_TESTS=$(BUILD_TESTS) -DLOAM_LONG_TESTS=$(LONG_TESTS)
	@cmake --build build/cmake --parallel $(JOBS)

tool: setup-build
	@tools/cargo build --manifest-path tool/Cargo.toml --release --locked --jobs $(JOBS)
	@ln -sfn cargo/release/loam build/loam
	@build/loam generate share build/share

# LAB_OPTIONS: --overwrite --trials 5, --resume (what an interruption left), ...
LAB_OPTIONS ?= --overwrite

lab: setup-lab build ## Run the experiments lfh, tokens and sparse on every allocator here; some minutes
	@mkdir -p build/lab
	build/loam lab --quick $(LAB_OPTIONS) --json build/lab/results.json --html build/lab/report.html

lab-all: setup-lab build ## All experiments in the quick form; about twenty minutes
	@mkdir -p build/lab
	build/loam lab $(ALL_EXPERIMENTS) --quick $(LAB_OPTIONS) \
	  --json build/lab/all.json --html build/lab/all.html

lab-full: setup-lab build ## All experiments as the articles had them, or larger; most of a day
	@mkdir -p build/lab
	build/loam lab $(ALL_EXPERIMENTS) --full $(LAB_OPTIONS) \
	  --json build/lab/full.json --html build/lab/full.html

test: setup-test build ## Run every test; the last line sums them up
	@tools/run_tests

test-all: setup-test build ## The same with long forms: random input for longer, every sanitizer, compiler and package; hours
	@tools/setup collector
	@tools/run_tests
	@$(MAKE) --no-print-directory sanitize portability windows packages-test static-test record-soak
	tests/doctor/study

check: ## Check layers and documents (no build needed)
	@tools/check_layers.py $(if $(wildcard build/libloam.so),--library build/libloam.so) \
	  $(if $(wildcard build/libloam-record.so),--recorder build/libloam-record.so)
	@tools/check_docs.py

sanitize: setup-test ## Run the unit tests under AddressSanitizer, ThreadSanitizer and UBSan
	@for preset in asan tsan ubsan; do \
	  echo "== $$preset"; \
	  tools/quietly build/log/$$preset.log cmake --preset $$preset; \
	  cmake --build --preset $$preset --parallel $(JOBS); \
	  ctest --preset $$preset; \
	done

# How long: FUZZ_TIME and SOAK_TIME in seconds.
FUZZ_TIME ?= 14400
SOAK_TIME ?= 14400

# SOAK_EVENTS: how many, of 64 threads.
SOAK_EVENTS ?= 100000000

doctor-study: build ## Ask the doctor about sick and healthy programs, and write the tables of tests/doctor/results.md; some minutes
	tests/doctor/study --write

record-soak: build ## Record 64 threads that hand blocks over, 10^8 events: none is lost and every free has its block
	tests/recorder/soak $(SOAK_EVENTS)

fleet: setup-test build ## Ask a dataset of traces the questions of examples/fleet by DuckDB and by Spark, and compare
	@tools/setup fleet
	@tools/cargo test --manifest-path tool/Cargo.toml --release --locked -p loam-cli --test all \
	  -- fleet:: --include-ignored

fuzz: setup-test ## Fuzz the heap with libFuzzer for FUZZ_TIME seconds (four hours)
	@tools/quietly build/log/fuzz.log cmake --preset fuzz
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzz
	@mkdir -p build/fuzzed
	build/fuzz/tests/fuzz/fuzz -max_total_time=$(FUZZ_TIME) -max_len=8192 -timeout=120 \
	  -print_final_stats=1 \
	  -artifact_prefix=build/fuzzed/ build/fuzzed tests/fuzz/corpus

portability: setup-build ## The library with every compiler, C library and processor here; half an hour
	@tools/portability/run --full

windows: setup-windows ## loam.dll and libloam.a in build/windows by mingw-w64, and their tests under Wine
	@tools/portability/windows

compilers: setup-build ## The same with gcc and every clang
	@tools/portability/run --full gcc-12 $(patsubst %,clang-%,14 15 16 17 18 19)

soak: setup-test ## Random load for SOAK_TIME seconds (four hours), every assertion and invariant walk on
	@tools/quietly build/log/soak.log cmake --preset dev -DLOAM_BUILD_WORKLOADS=OFF
	@cmake --build --preset dev --parallel $(JOBS) \
	  --target loam stress stress_heaps stress_large_resizes fuzz_replay
	LD_PRELOAD=build/dev/libloam.so build/dev/tests/stress/stress \
	  --seconds $$(($(SOAK_TIME) / 3)) --seed $$((RANDOM + 1))
	build/dev/tests/stress/stress_heaps --seconds $$(($(SOAK_TIME) / 3)) --seed $$((RANDOM + 1))
	build/dev/tests/stress/stress_large_resizes $$(($(SOAK_TIME) / 20 + 1)) $$((RANDOM + 1))
	@mkdir -p build/fuzzed
	build/dev/tests/fuzz/fuzz_replay --seconds $$(($(SOAK_TIME) / 3)) --seed $$RANDOM \
	  --keep build/fuzzed

peers: setup-build ## Build newer allocators from the registries' source packages, to compare with
	@tools/peers/build

bench-build: build ## Build what the scripts in bench/ run, beside the library and the workloads
	@cmake --build build/cmake --parallel $(JOBS) --target bench

bench: bench-build ## Run the paired benchmark against every allocator here
	@bench/run

ageing: build ## A hundred rounds of every workload: does time or memory grow? About five minutes
	@bench/ageing

PACKAGES ?=

# For which processors `make static` makes a file: x86_64, aarch64.
STATIC_TARGETS ?= $(shell uname -m)
export STATIC_TARGETS

setup-static:
	@tools/setup build static

setup-packages:
	@tools/setup build test packages
	@STATIC_TARGETS="x86_64 aarch64" tools/setup static || echo "setup: what needs these is not built"

packages: setup-packages build ## Build every package into build/packages (PACKAGES="crates wheel": these only)
	@packaging/build $(PACKAGES)

static: setup-static ## The tool as one static file with heap and recorder inside, in build/packages (STATIC_TARGETS="x86_64 aarch64"); twelve minutes of processor time
	@packaging/build $(foreach processor,$(STATIC_TARGETS),\
	  --variant $(processor)-gnu --variant $(processor)-musl) static

static-test: STATIC_TARGETS := x86_64 aarch64
static-test: setup-packages static ## Use these files in roots of other systems: bookworm, trixie, bullseye, musl, an empty one, aarch64
	@tests/packaging/roots.py

release: setup-packages build ## Build every package, the sources' archive, a bill of materials and SHA256SUMS
	@rm -rf build/packages
	@packaging/build
	@packaging/build release

packages-test: setup-packages build ## Install and use every package, in clean places and with its own client
	@tests/packaging/packages.py --full

install: build ## Install library, tool, manual pages and completions (DESTDIR and PREFIX as usual)
	@cmake --install build/cmake --prefix $(or $(PREFIX),/usr/local)

uninstall: ## Remove what `make install` with the same DESTDIR and PREFIX has installed
	@test -f build/cmake/cmake_install.cmake || \
	  { echo "make uninstall: first 'make build', which says what is installed"; exit 2; }
	@stage=$$(mktemp -d); trap 'rm -rf "$$stage"' EXIT; \
	  DESTDIR=$$stage cmake --install build/cmake --prefix $(or $(PREFIX),/usr/local) > /dev/null; \
	  (cd "$$stage"; find . ! -type d -print0) | (cd "$(or $(DESTDIR),/)"; xargs -0 rm -fv); \
	  (cd "$$stage"; find . -depth -type d -path '*/loam*' -print0) \
	    | (cd "$(or $(DESTDIR),/)"; xargs -0 rmdir --ignore-fail-on-non-empty 2> /dev/null || true)

format: ## Lay out C++ and Rust sources
	@tools/check_format.py --write
	@tools/cargo fmt --manifest-path tool/Cargo.toml --all

clean: ## Remove what the build made (the peers stay)
	@rm -rf build/cmake build/cargo build/workloads build/replayer build/log build/loam \
	  build/libloam.* build/libloam-record.so
