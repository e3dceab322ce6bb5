# The entry point for people and CI. `make help` lists what there is.

.DEFAULT_GOAL := help
.PHONY: help setup demo site test test-quick check spellings matrix windows wasm suites conformance agreement bench bench-all bench-guard bench-memory bench-local bench-redis bench-calendar bench-http bench-server soak soak-server soak-faults fuzz deep-checks simulate-faults mutations faults platforms proofs linearizability upgrades mutants \
  packages packages-test release bundlers deploy-test

STORE ?= memory
REDIS_URL ?=
REDIS ?=
CASES ?=
BEFORE ?=
SECONDS_EACH ?= 60
SOAK_SECONDS ?= 3600
OPERATIONS ?= 1000000
SEEDS ?= 1000000
FROM ?= 0
TARGETS ?=
ONLY ?=
SITE ?=
VARIANT ?=
SEED ?=
ROUNDS ?= 20
FILES ?=
VERSION ?=
comma := ,
DRY_RUN ?=

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: ## services in four languages share one budget and follow one policy document on this host; REDIS_URL=redis://... or REDIS=1: in Redis
	@REDIS_URL="$(REDIS_URL)" REDIS="$(REDIS)" examples/demo/run

site: ## the documentation as a site in target/site, with its links checked
	@cargo run --quiet --locked -p polylimit-site

setup: ## install the servers that the tests start (Debian, Ubuntu), and the hook that checks commit messages
	@tests/setup
	@tools/hooks/install

test: ## set up and run every check and test; ends in "N passed, N failed", which counts test cases
	@tests/run

test-quick: ## the core, the memory store, one Redis and Python in a few minutes; ends in the same line
	@tests/run quick

spellings: ## requests in every spelling, to every framework in its oldest and newest version; ONLY=express,koa SITE=global VARIANT=HEAD SEED=1
	@tests/setup
	@tests/build polylimit-cli
	@tests/spellings/run $(if $(ONLY),--only "$(ONLY)") $(if $(SITE),--site "$(SITE)") $(if $(VARIANT),--variant "$(VARIANT)") \
	  $(if $(SEED),--seed $(SEED))

matrix: ## every minor version of each framework, its spellings in the oldest, and the runtimes of each language that can be had; takes over an hour
	@tests/matrix

windows: ## the command line, the server, the C library, Node and Python for Windows, under Wine: conformance cases, commands, quick starts; minutes
	@tests/windows/run

wasm: ## the core as a WebAssembly module: lints, the npm package on its hosts, conformance cases, and the playground in a browser
	@bindings/wasm/test

bundlers: ## docs/bundlers.md: Node in Next, webpack, esbuild, rollup, vite, nft, Lambda's layout and bare images; other languages read-only; needs root
	@tests/bundlers/run

platforms: ## Linux on aarch64 under an emulator, musl, and what is linked for macOS; needs root; ONLY=aarch64,musl,macos
	@tests/platforms/run $(subst $(comma), ,$(ONLY))

suites: ## download limits, Flask-Limiter, express-rate-limit and rate-limit-redis, and run their own tests on our stores; takes minutes
	@tests/setup
	@bindings/python/setup && bindings/python/build
	@target/python-venv/bin/python bindings/python/suites/run.py
	@bindings/node/setup && bindings/node/scripts/build
	@node bindings/node/suites/run.cjs

check: ## only formatting, lints, types, generated files and documentation
	@tests/run check

conformance: ## every language against the cases: CASES=<file> STORE=memory|local:<name>|redis://...|redis-cluster://...
	@tests/conformance/run "$(CASES)" "$(STORE)"

agreement: ## OPERATIONS random operations on the memory store, Redis, Valkey and a cluster
	@POLYLIMIT_AGREEMENT_OPERATIONS=$(OPERATIONS) cargo test --release -p polylimit-redis-tests --test agreement \
	  -- --nocapture differential

bench: ## every language and its peers, in one run, into benches/results
	@tests/setup
	@benches/run

bench-all: ## every benchmark, and benches/results/goals.md: goals, what was reached, and where
	@benches/run && benches/goals

bench-guard: ## the instructions of operations compared with those on record; BASE=<revision> compares with that revision
	@benches/guard $(BASE)

bench-memory: ## the memory store compared with governor, in one run
	@cargo bench -p polylimit --bench memory

bench-local: ## the local store compared with the memory store and Redis, in one run
	@tests/setup
	@cargo bench -p polylimit --bench local

bench-redis: ## the Redis store compared with its peers and the server's ceiling, in one run
	@tests/setup
	@cargo bench -p polylimit --bench redis

bench-calendar: ## checks by windows of the calendar compared with aligned fixed windows, in one run
	@tests/setup
	@cargo bench -p polylimit --bench calendar

bench-http: ## services, in memory and on Redis, compared with the same without limits; BEFORE=<revision>: and before
	@tests/setup
	@BEFORE="$(BEFORE)" benches/http/run

bench-server: ## the server compared with throttlecrab-server, envoyproxy/ratelimit and Redis, in one run
	@tests/setup
	@benches/server/run

soak: ## ten minutes of load over 10 million keys: the denial cache and the leases stay within their bounds
	@tests/setup
	@cargo bench -p polylimit --bench soak

soak-server: ## polylimit serve on Redis under load for SECONDS_EACH seconds: memory, descriptors and threads do not grow
	@tests/setup
	@POLYLIMIT_SOAK_SECONDS=$(SECONDS_EACH) cargo test --locked -p polylimit-cli --test serve_load -- --nocapture grow

soak-faults: ## faults of one server, of sentinels and of a cluster for SOAK_SECONDS seconds, an hour by default: bounds, leaks, times to recover
	@tests/setup
	@tests/build polylimit-redis-tests
	@target/debug/polylimit-soak-faults --seconds $(SOAK_SECONDS)

deep-checks: ## loom, Miri, ThreadSanitizer and cargo-deny; minutes, and needs nightly Rust and cargo-deny
	@tools/deep-checks

fuzz: ## fuzz every target for SECONDS_EACH seconds (needs nightly Rust and cargo-fuzz)
	@core/fuzz/run $(SECONDS_EACH)

simulate-faults: ## the limiter on a simulated network and server, SEEDS times from seed FROM on, with other faults each time
	@cargo run --profile simulation --locked -p polylimit-fault-simulation -- --from $(FROM) --seeds $(SEEDS)

proofs: ## the arithmetic, proved by z3 and compared with the code, and all states of the models of the protocols; SEED=1; minutes
	@proofs/run $(if $(SEED),--seed $(SEED))

linearizability: ## OPERATIONS (10 million) of concurrent processes on every store, checked by Porcupine; defects must be found; STORE=redis SEED=1
	@tests/linearizability/run $(if $(filter file,$(origin OPERATIONS)),,--operations $(OPERATIONS)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(filter file,$(origin STORE)),,--store $(STORE))

upgrades: ## two builds with different formats on one Redis, local file and document under load, ROUNDS (20) times; minutes
	@tests/setup
	@tests/upgrades/run $(ROUNDS)

mutants: ## changes in the code that decides, one at a time, which the tests must notice (needs cargo-mutants); FILES=core/rules/src/penalty.rs
	@core/mutants $(FILES)

mutations: ## the simulation must find each deliberate defect; the seeds go into docs/internals/fault-simulation.md
	@tests/simulation/mutations/run

faults: ## every row of docs/faults.md in its long form, other limiters under the same faults, and the page; takes about an hour
	@tests/setup
	@tests/faults/run

packages: ## every package that is published, into dist/; TARGETS=<Rust target>,... ONLY=cli,deb,image,c,python,node,uniffi,go,chart
	@tools/packages/build $(if $(TARGETS),--targets "$(TARGETS)") $(if $(ONLY),--only "$(ONLY)")

packages-test: ## install what is in dist/ into clean roots of several Debian releases, with quick starts and cases; needs root
	@tools/packages/test

deploy-test: ## the chart by helm, what it renders by the schemas of Kubernetes, and the server as it is rendered; minutes at first
	@tests/setup
	@deploy/helm/test

release: ## VERSION=x.y.z: versions, changelog, packages, tag, and what is published how; DRY_RUN=1: everything but tag and uploads
	@tools/packages/release "$(VERSION)" $(if $(DRY_RUN),--dry-run)
