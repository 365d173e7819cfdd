# The commands of this repository. `demo`, `test` and `bench` do their own set-up (scripts/setup.sh).
CARGO ?= cargo

.PHONY: build demo test check bench clean

# Programs and the preload library, in target/release.
build:
	$(CARGO) build --release -p terrace-cli -p terrace-intercept -p terrace-slowfs

# Two workflows natively and under Terrace on a slow durable tier, with a table and a picture (build/demo).
demo:
	scripts/setup.sh demo
	$(MAKE) build
	build/venv/bin/python demo/run.py

# Unit tests of all crates, then whole programs under `terrace run`.
test:
	scripts/setup.sh test
	$(MAKE) build
	scripts/test.sh

# Formatting and lints.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

# File operations natively and under Terrace, side by side.
bench:
	scripts/setup.sh bench
	$(MAKE) build
	benchmarks/micro/run.sh

clean:
	scripts/clean.sh
	$(CARGO) clean
