# Every target is a line that can be typed by hand; `make help` lists them.
SEEDS ?= 20000
NESTED_SEEDS ?= 2000
CLUSTER_SEEDS ?= 10000
SECONDS_EACH ?= 60
ROUNDS ?= 100
HOURS ?= 8
IMAGE ?=
PREFIX ?= /usr/local
DESTDIR ?=
export PREFIX DESTDIR
# Where scripts/setup.sh puts a toolchain if there is none.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.PHONY: help demo test quick fixtures ci release setup test-rxe sim mutants soak model survive fuzz
.PHONY: bench bench-quick bench-full bench-parity bench-fabric bench-cluster
.PHONY: bench-engine bench-policies install deb static book reference map
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: ## an array of Linux md's: assembled, mounted, broken, rebuilt, checked, handed back
	@scripts/setup.sh demo
	@scripts/demo.sh $(IMAGE)

test: ## everything that must hold: style, unit tests, simulation, fuzzing, outside judges
	@scripts/setup.sh test
	@scripts/test.sh

quick: ## what every edit is tried by, in two minutes: style, unit tests without live ones, 200 seeds
	@scripts/setup.sh build
	@scripts/test.sh fmt quick

fixtures: ## arrays that md made, tests/judges/made, anew where their recipes have changed
	@scripts/setup.sh test
	. scripts/lints.sh && \
		cargo test --profile checked --workspace --test judges make_archive -- --ignored

test-rxe: ## the fabric over RDMA, on soft RoCE in a guest
	@scripts/setup.sh rxe
	@scripts/rxe-test.sh

ci: test ## what the continuous integration runs

release: ## what is given away, in target/programs: braid and braid-bench, debug information beside them
	@scripts/setup.sh build
	@scripts/release.sh

install: release ## programs, man pages, units, completions below DESTDIR, PREFIX=/usr/local
	@scripts/install.sh

deb: release ## Debian packages braid and braid-bench, in target/debian
	@scripts/setup.sh deb
	@scripts/deb.sh

static: ## one file that runs on every Linux of this processor, target/static/braid
	@scripts/setup.sh static
	@scripts/static.sh

book: ## the documentation as a web site, target/book/index.html
	@scripts/setup.sh book
	@mdbook build docs

reference: ## docs/commands.md, from the definitions of the arguments
	@scripts/setup.sh build
	BRAID_WRITE_REFERENCE=1 cargo test -q -p braid-cli --lib reference

map: ## docs/map.md, from the first sentences of the modules
	@scripts/setup.sh build
	BRAID_WRITE_MAP=1 cargo test -q -p braid-tidy --test tidy map

setup: ## install the Debian packages that are missing (as root; otherwise say which)
	@scripts/setup.sh test bench

sim: ## simulate SEEDS=20000 arrays, NESTED_SEEDS=2000 of arrays, CLUSTER_SEEDS=10000 over nodes
	@scripts/setup.sh build
	cargo run --release -p braid-sim -- --seeds $(SEEDS)
	cargo run --release -p braid-sim -- --nested --seeds $(NESTED_SEEDS)
	cargo run --release -p braid-sim -- --cluster --seeds $(CLUSTER_SEEDS)

mutants: ## break each rule of arrays over nodes, and see that the simulator notices
	@scripts/setup.sh build
	@scripts/mutants.sh

soak: ## look for faults for HOURS=8: seeds, rounds, rules that are broken, the model; as root
	@scripts/setup.sh test
	@scripts/soak.sh $(HOURS)

model: ## explore models of arrays over nodes and of checksums, then without each of their rules
	python3 -B tests/model/survival_check.py
	python3 -B tests/model/integrity.py
	cd tests/model && sha256sum *.py > seen.sha256

survive: ## kill and stop nodes and client of an array in use, ROUNDS=100; as root
	@scripts/setup.sh test
	cargo build --release --workspace --bins
	@scripts/survive.sh $(ROUNDS)

fuzz: ## throw mutated bytes at each decoder, SECONDS_EACH=60
	@scripts/setup.sh build
	FUZZ_SECONDS=$(SECONDS_EACH) scripts/test.sh fuzz

bench: bench-parity bench-fabric bench-quick ## all measurements, the comparisons in short

bench-quick: ## the five comparisons in five minutes, with a report in REPORT=target/bench-quick
	@scripts/setup.sh bench
	@scripts/bench.sh all --quick --report $(or $(REPORT),target/bench-quick)

bench-full: ## the same at the published sizes: hours; RESUME=1 goes on after an interruption
	@scripts/setup.sh bench
	@scripts/bench.sh all --report $(or $(REPORT),target/bench-full)

bench-engine: ## levels in the process and over exports, beside servers without RAID; QUICK=1
	@scripts/setup.sh bench
	@scripts/bench.sh engine $(if $(QUICK),--quick) --report $(or $(REPORT),target/bench-engine)

bench-policies: ## what consistency policies cost beside resync; QUICK=1 for a short one
	@scripts/setup.sh bench
	@scripts/bench.sh policies $(if $(QUICK),--quick) \
		--report $(or $(REPORT),target/bench-policies)

bench-parity: ## xor and P+Q beside ISA-L, in one run
	@scripts/setup.sh bench
	@scripts/bench-parity.sh

bench-fabric: ## puts over TCP and libfabric beside a plain stream, in one run
	@scripts/setup.sh build
	cargo bench --quiet -p braid-host --features images,ofi --bench fabric

bench-cluster: ## schedules over nodes on shaped links, with plots; QUICK=1 for a short one
	@scripts/setup.sh bench
	@scripts/bench-cluster.sh
