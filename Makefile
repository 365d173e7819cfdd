# The commands of this repository. `demo`, `test` and `bench` do their own set-up (scripts/setup.sh).
CARGO ?= cargo

PREFIX ?= /usr/local

# A compiler cache spares the next clean clone what it has compiled before; it is used where it is installed.
ifneq (,$(shell command -v sccache))
export RUSTC_WRAPPER ?= sccache
endif

.PHONY: build build-files build-tests preload install dist python demo test test-doors test-glusterfs check bench docs clean

# The preload library has no `std` and a profile of its own; Python's module is linked by maturin (`make python`).
WORKSPACE = --workspace --exclude terrace-intercept --exclude terrace-python

WITHOUT_SQL = -p terrace-cli -p terrace-web -p terrace-predict -p terrace-bench -p terrace-stage -p terrace-capi

# Programs and libraries, in target/release; TERRACE_WITHOUT_SQL=1 leaves out the SQL engine, which takes most of the time.
build: preload
	$(CARGO) build --release $(if $(TERRACE_WITHOUT_SQL),$(WITHOUT_SQL),$(WORKSPACE) --exclude terrace-tests)
	drivers/cfitsio/build.sh target/release
	drivers/hdf5/build.sh target/release
	drivers/slurm/build.sh target/release

# What `terrace run` needs, and no more: the command and the library that it preloads.
build-files: preload
	$(CARGO) build --release -p terrace-cli

# Programs, libraries and tests in one go, so that each dependency is compiled once, with one set of features.
build-tests: preload
	$(CARGO) build --release $(WORKSPACE) --all-targets
	drivers/cfitsio/build.sh target/release
	drivers/hdf5/build.sh target/release
	drivers/slurm/build.sh target/release

# Never by a wrapper: what programs are tested with is what is installed.
preload:
	env -u RUSTC_WORKSPACE_WRAPPER $(CARGO) build --profile preload -p terrace-intercept
	install -D -m 755 target/preload/libterrace_intercept.so target/release/libterrace_intercept.so

# Into PREFIX, with a pkg-config file.
install: build
	scripts/install.sh $(PREFIX)

# Packages that are installed without compiling, in build/dist: a tarball, wheels, Debian packages.
dist:
	scripts/dist.sh

# The Python package: a wheel in build/wheels, installed in build/python-venv.
python:
	scripts/python.sh

# Two workflows natively and under Terrace on a slow durable tier, with a table and a picture (build/demo).
demo:
	scripts/setup.sh demo
	@echo "demo: building the command, its library and a slow file system: some 200 crates, two to four minutes the first time"
	$(MAKE) preload
	$(CARGO) build --release -p terrace-cli -p terrace-slowfs
	@echo "demo: five runs of two workflows, about two minutes"
	build/venv/bin/python demo/run.py

# Unit tests of all crates, then whole programs under `terrace run`.
test:
	scripts/setup.sh test
	$(MAKE) build-tests
	$(MAKE) python
	scripts/test.sh

# Conformance suites and real programs with each way to reach programs: both, the preload library alone, the supervisor alone.
test-doors:
	scripts/setup.sh test
	$(MAKE) build-tests
	scripts/test-doors.sh

# The tests of files on a real distributed file system (needs root and `pfs-testbed`).
test-glusterfs: build-tests
	scripts/test-glusterfs.sh

# Formatting and lints.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --exclude terrace-intercept --all-targets -- -D warnings
	$(CARGO) clippy --profile preload -p terrace-intercept -- -D warnings

# File operations natively and under Terrace, and objects beside memcpy and h5py, side by side.
bench:
	scripts/setup.sh bench
	$(MAKE) build
	benchmarks/micro/run.sh
	benchmarks/objects/run.sh

# The pages as a site, in build/site; fails if a link in it leads nowhere.
docs:
	scripts/docs.sh

clean:
	scripts/clean.sh
	$(CARGO) clean
