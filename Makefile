# The commands of this repository. `demo`, `test` and `bench` do their own set-up (scripts/setup.sh).
CARGO ?= cargo

PREFIX ?= /usr/local

.PHONY: build install python demo test test-doors check bench clean

# Programs and libraries, in target/release. What runs inside other people's programs must not end them when it fails, so
# libterrace.so is built to catch its panics; so is terrace-query, where one query's panic must not end others. It is built as
# `cargo test` builds libraries, with the same features, so that DataFusion is compiled once.
build:
	$(CARGO) build --release -p terrace-cli -p terrace-intercept
	CARGO_PROFILE_RELEASE_PANIC=unwind $(CARGO) build --release -p terrace-query -p terrace-bench -p terrace-slowfs
	$(CARGO) build --profile embedded -p terrace-capi
	install -m 755 target/embedded/libterrace.so target/release/libterrace.so
	drivers/cfitsio/build.sh target/release

# Into PREFIX, with a pkg-config file.
install: build
	scripts/install.sh $(PREFIX)

# The Python package: a wheel in build/wheels, installed in build/python-venv.
python:
	scripts/python.sh

# Two workflows natively and under Terrace on a slow durable tier, with a table and a picture (build/demo).
demo:
	scripts/setup.sh demo
	$(MAKE) build
	build/venv/bin/python demo/run.py

# Unit tests of all crates, then whole programs under `terrace run`.
test:
	scripts/setup.sh test
	$(MAKE) build
	$(MAKE) python
	scripts/test.sh

# Conformance suites and real programs with each way to reach programs: both, the preload library alone, the supervisor alone.
test-doors:
	scripts/setup.sh test
	$(MAKE) build
	scripts/test-doors.sh

# Formatting and lints.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

# File operations natively and under Terrace, and objects beside memcpy and h5py, side by side.
bench:
	scripts/setup.sh bench
	$(MAKE) build
	benchmarks/micro/run.sh
	benchmarks/objects/run.sh

clean:
	scripts/clean.sh
	$(CARGO) clean
