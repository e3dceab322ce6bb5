# The entry point for people and CI. `make help` lists what there is.

.DEFAULT_GOAL := help
.PHONY: help setup demo test check conformance bench fuzz

STORE ?= memory
CASES ?=
SECONDS_EACH ?= 60

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: ## several callers share one budget; needs nothing but the toolchain
	@cargo run --release -p polylimit --example shared_budget

setup: ## install the servers that the tests start (Debian, Ubuntu)
	@tests/setup

test: ## set up and run every check and test; ends in "N passed, N failed"
	@tests/run

check: ## only what needs no test run: formatting, lints, documentation
	@tests/run check

conformance: ## every language against the cases: CASES=<file> STORE=memory
	@tests/conformance/run "$(CASES)" "$(STORE)"

bench: ## the memory store beside governor, in one run
	@cargo bench -p polylimit --bench memory

fuzz: ## fuzz every target for SECONDS_EACH seconds (needs nightly Rust and cargo-fuzz)
	@core/fuzz/run $(SECONDS_EACH)
