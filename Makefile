# What people type here. Everything but `make bench` and `make install` leaves the machine as it
# was, except for packages that were missing; see scripts/setup.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# FEATURES=s3 builds a whywait that publishes to s3://.
FEATURES ?=
BUILD = $(CARGO) build --release --locked -p whywait --features "$(FEATURES)"
WHYWAIT_BIN := $(abspath $(TARGET_DIR)/release/whywait)
WORKSPACES := . labs bench fuzz
TOOLCHAIN := $(or $(RUSTUP_TOOLCHAIN),$(shell scripts/toolchain))
ifneq ($(TOOLCHAIN),)
export RUSTUP_TOOLCHAIN := $(TOOLCHAIN)
endif

.PHONY: build demo test test-quick labs view pictures kernels fuzz bench fleet accuracy fmt lint \
  install dist dist-test setup help

build: setup ## build target/release/whywait (default)
	$(BUILD)

demo: ## watch a server with a known fault and print the report (needs root)
	scripts/setup build
	$(BUILD)
	WHYWAIT="$(WHYWAIT_BIN)" labs/run tokio-images broken

test: ## run every check; the last line is the sum (WHYWAIT_NO_BPF=1 where BPF is refused)
	scripts/setup test
	scripts/test

test-quick: ## what needs no root and takes less than two minutes when built: lint, tests, corpus
	scripts/setup quick
	scripts/test --quick

labs: ## run all lab variants live, and write when that was into docs/accuracy.md (root)
	scripts/setup labs
	$(CARGO) build --release --locked -p whywait
	WHYWAIT="$(WHYWAIT_BIN)" tests/namespaces/run
	WHYWAIT="$(WHYWAIT_BIN)" tests/labs --page
	WHYWAIT="$(WHYWAIT_BIN)" tests/run/run --tools

view: ## run each lab family, and open its report in a browser (root; some ten minutes)
	scripts/setup test
	$(BUILD)
	WHYWAIT="$(WHYWAIT_BIN)" tests/view/run --labs

pictures: ## make the pictures of reports in the docs, from recordings that are kept
	scripts/setup test
	$(BUILD)
	scripts/pictures "$(WHYWAIT_BIN)"

kernels: build ## watch labs under Debian's other kernels, emulated, and write docs/kernels.md
	scripts/setup kernels
	$(CARGO) build --release --locked -p whywait-capture --example record
	WHYWAIT="$(WHYWAIT_BIN)" tests/kernels --page

fuzz: ## made-up inputs to what reads strangers', a minute each (FUZZ_S: seconds)
	scripts/setup fuzz
	scripts/fuzz --seconds $(or $(FUZZ_S),60)

bench: ## measure, and write docs/performance.md (root; BENCH_QUICK=1: rough; bench/README.md)
	scripts/setup bench
	$(BUILD)
	WHYWAIT="$(WHYWAIT_BIN)" bench/run

fleet: FEATURES := s3
fleet: ## fifty made-up hosts for a day, and write the figures of docs/fleet.md (15 minutes)
	scripts/setup test
	$(BUILD)
	WHYWAIT="$(WHYWAIT_BIN)" tests/fleet/run

accuracy: ## hold the labs' reports against the truth, and write docs/accuracy.md (root)
	scripts/setup labs
	$(BUILD)
	WHYWAIT="$(WHYWAIT_BIN)" labs/accuracy

# Without --all, which would follow the bench's paths into the crates of the tool.
fmt: ## format all workspaces
	@for workspace in $(WORKSPACES); do (cd $$workspace && $(CARGO) fmt) || exit 1; done

lint: ## formatting, columns, and clippy in all workspaces, as `make test` does it
	scripts/setup test
	scripts/test fmt columns clippy

install: build ## install, with manual pages, to PREFIX (/usr/local), below DESTDIR when set
	install -D -m 755 "$(WHYWAIT_BIN)" "$(DESTDIR)$(PREFIX)/bin/whywait"
	"$(WHYWAIT_BIN)" man "$(DESTDIR)$(PREFIX)/share/man/man1"

dist: ## make a static binary, .deb, .rpm and an image, in dist/ (docs/install.md)
	scripts/setup dist
	scripts/dist

dist-test: build ## try what `make dist` made, each where nothing else is (root)
	scripts/setup dist
	WHYWAIT="$(WHYWAIT_BIN)" tests/packages/run

setup:
	@scripts/setup build

help: ## list what there is
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | \
	  while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-10s %s\n' "$$name" "$$what"; done
