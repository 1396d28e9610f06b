# Shortcuts only; each line can be typed by hand as well.

CARGO ?= cargo
PYTHON ?= python3
# `make fuzz` runs this one, for this long; `make chaos` takes the time from here, too.
TARGET ?= quota_text
SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help run demo quick test test-long lint deps servers test-rust test-python test-interleavings test-of-tests \
	test-of-store-tests test-of-store-tests-share test-alerts test-browser test-chart test-chaos test-chaos-long chaos chaos-built features package api api-check wheel \
	bench-cluster bench-http bench-instructions bench-lean bench-memory bench-peers bench-policy bench-python bench-redis bench-server bench-server-peer check-unit fuzz audit limits-suite

help: ## Show what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without the driver for MongoDB, a third of what is compiled.
FIRST_RUN := --profile first-run --locked -p ratekeeper-server --no-default-features

run: ## Build and start the server, without MongoDB, what it keeps in target/run; it shows a token of operators once, says what listens where and what to try
	$(CARGO) build $(FIRST_RUN)
	scripts/run.sh $(CARGO) run --quiet $(FIRST_RUN) --

demo: ## Build, and show three layered limits at work in the terminal
	$(CARGO) run $(FIRST_RUN) -- demo

quick: ## After every edit: formatting, clippy, core and unit tests, no servers (90 seconds; the first time 4 minutes)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	$(CARGO) test --config scripts/quick.toml --locked --quiet -p ratekeeper-core -p ratekeeper-http -p ratekeeper \
		--features ratekeeper/policy,ratekeeper/redis --lib --test vectors --test properties

test: lint deps servers test-rust test-python test-alerts test-browser test-chaos test-interleavings test-of-tests ## Before every commit (budget: 40 minutes from a clean clone)
	@echo "All of it passed."

test-long: features api-check package bench-instructions test-of-store-tests-share test-chart test-chaos-long ## What changes seldom break, after `make test` (budget: 35 minutes)
	@echo "The long part passed."

lint: ## Formatting, clippy, rustdoc and luacheck, warnings as errors (budget: 3 minutes; root on Debian, or luacheck on PATH)
	$(CARGO) fmt --all --check
	$(PYTHON) scripts/lint_lua.py
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --lib --bins --examples --no-deps --all-features --locked --quiet

deps: ## Licences, sources and duplicates of the dependencies, and how many a lean program gets (budget: 1 minute)
	$(PYTHON) scripts/test_check_dependencies.py --quiet
	$(PYTHON) scripts/check_dependencies.py

servers: ## The servers that tests start, into target/servers (root on Debian, or Redis 7 on PATH)
	$(PYTHON) scripts/servers.py

test-rust: servers ## All Rust tests (budget: 10 minutes)
	$(CARGO) test --workspace --all-features --locked

test-python: servers ## Build the wheel, install it into fresh environments, test it there (budget: 8 minutes)
	$(PYTHON) scripts/test_python_tests.py --quiet
	$(PYTHON) scripts/python_tests.py

# Everything of it was built by `make test-rust`; `make test-python` installs the package.
CHAOS := target/debug/chaos run --server target/debug/ratekeeper --python target/python/newest-venv/bin/python

test-alerts: chaos-built ## Alert rules and dashboard on a real Prometheus, which scrapes servers with real faults (budget: 1 minute)
	$(PYTHON) scripts/test_alerts.py

test-browser: chaos-built ## The dashboard in a real Chromium: clicks, keys, outages, accessibility (budget: 2 minutes; root on Debian, or chromium on PATH)
	$(PYTHON) scripts/test_browser.py

test-chart: chaos-built ## The Helm chart: Helm and schemas of Kubernetes take it, and it starts the binary right (budget: 1 minute; the first time 5, to build Helm)
	$(PYTHON) scripts/check_chart.py

chaos-built: servers
	$(CARGO) test --workspace --all-features --locked --no-run --test broken --test serve

test-chaos: chaos-built ## Servers fail under load of three processes, what was admitted is checked; after test-python (budget: 3 minutes)
	$(CHAOS) --seed 1 --seconds 120

test-chaos-long: chaos-built ## The same on other servers, and failovers that lose nothing; after test-python (budget: 5 minutes)
	$(CHAOS) --seed 2 --seconds 180 --topologies single-redis,sentinel-valkey,cluster-valkey,several
	$(CHAOS) --seed 3 --seconds 60 --replicas 1 --topologies sentinel,cluster --faults kill-primary,pause-primary,fail-over,hand-over

chaos: chaos-built ## The same by itself, with SEED=1 SECONDS=60 TOPOLOGIES=single,cluster FAULTS=pause,... REPLICAS=1 (2 minutes, once it is built)
	$(PYTHON) scripts/python_tests.py --install
	$(CHAOS) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(TOPOLOGIES),--topologies $(TOPOLOGIES)) \
		$(if $(FAULTS),--faults $(FAULTS)) $(if $(REPLICAS),--replicas $(REPLICAS)) $(if $(KEEP),--keep $(KEEP))

wheel: ## The Python package for release, into target/wheels
	$(PYTHON) scripts/python_wheel.py

test-interleavings: ## The memory store under shuttle, which tries thread interleavings (budget: 1 minute)
	RUSTFLAGS="--cfg shuttle" $(CARGO) test --locked -p ratekeeper-interleavings --target-dir target/shuttle

test-of-tests: servers ## Apply wrong edits to algorithms and script one by one; each must make a test fail (budget: 5 minutes)
	$(PYTHON) scripts/test_of_tests.py --skip data --skip policy --skip redis --skip store

test-of-store-tests: servers ## The same with edits to stores and policies, which take longer to build (budget: 15 minutes)
	$(PYTHON) scripts/test_of_tests.py --skip core --skip script

test-of-store-tests-share: servers ## A third of these, another third for each commit (budget: 6 minutes)
	$(PYTHON) scripts/test_of_tests.py --skip core --skip script --share 3

features: ## Every crate alone, with no feature and with each feature alone (budget: 8 minutes)
	$(PYTHON) scripts/check_features.py

package: ## What would go to crates.io, packed and built from there (budget: 2 minutes)
	$(PYTHON) scripts/check_packages.py

api: ## List the library's public API in api/ (budget: 2 minutes)
	$(PYTHON) scripts/public_api.py

api-check: ## Compare the library's public API with the lists in api/ (budget: 2 minutes)
	$(PYTHON) scripts/public_api.py --check

bench-instructions: ## Count the instructions of each path; 3 % above benches/instructions.toml fails (RECORD=1, ACCEPT=1: see CONTRIBUTING; 4 minutes)
	$(PYTHON) scripts/instructions.py --self-test
	$(PYTHON) scripts/instructions.py $(if $(RECORD),--record) $(if $(ACCEPT),--accept)

bench-lean: ## What a limit in one line adds to a release build, beside tower_governor's; writes docs/benchmarks.md (8 minutes, quiet machine)
	$(PYTHON) scripts/bench_lean.py --out docs/benchmarks.md

bench-memory: ## Compare the memory store with its peers; writes docs/benchmarks.md (8 minutes, quiet machine)
	cd benches && $(CARGO) run --release --locked --bin memory -- --out ../docs/benchmarks.md

bench-peers: ## The limiters in Python and Node that bench-redis compares with, into target/peers
	$(PYTHON) scripts/bench_peers.py

bench-redis: servers bench-peers ## Compare the Redis store with its peers; writes docs/benchmarks.md (9 minutes, quiet machine)
	cd benches && $(CARGO) run --release --locked --features redis --bin redis -- --out ../docs/benchmarks.md

bench-cluster: servers ## Compare the Redis store on three primaries with one server; writes docs/benchmarks.md (6 minutes, quiet machine)
	cd benches && $(CARGO) run --release --locked --features cluster --bin cluster -- --out ../docs/benchmarks.md

bench-http: ## A web service with limits, without, and with tower_governor's; writes docs/benchmarks.md (6 minutes, quiet machine, needs wrk)
	cd benches && $(CARGO) run --release --locked --features http --bin http -- --out ../docs/benchmarks.md

bench-policy: ## What finding the rules that apply costs; writes docs/benchmarks.md (1 minute, quiet machine)
	cd benches && $(CARGO) run --release --locked --features policy --bin policy -- --out ../docs/benchmarks.md

limits-suite: servers ## The tests of the library `limits` itself over our storages; after test-python, fetches them (5 minutes)
	$(PYTHON) scripts/limits_suite.py

bench-python: servers ## Compare the Python package with its peers; writes docs/benchmarks.md (10 minutes, quiet machine, needs wrk)
	$(PYTHON) scripts/bench_python.py --out docs/benchmarks.md

bench-server-peer: ## The server that bench-server compares with, into target/peers
	$(PYTHON) scripts/bench_server_peer.py

bench-server: servers bench-server-peer ## Compare the server with throttlecrab-server; writes docs/benchmarks.md (8 minutes, quiet machine)
	$(CARGO) build --release --locked -p ratekeeper-server
	cd benches && $(CARGO) run --release --locked --features server --bin server -- --out ../docs/benchmarks.md

check-unit: ## What systemd says of deploy/ratekeeper.service (needs systemd)
	$(PYTHON) scripts/check_unit.py

fuzz: ## Fuzz TARGET for SECONDS (needs nightly and cargo-fuzz)
	cd fuzz && $(CARGO) +nightly fuzz run $(TARGET) -- -max_total_time=$(SECONDS)

audit: ## Known vulnerabilities in dependencies (needs cargo-audit and its database)
	$(CARGO) audit
