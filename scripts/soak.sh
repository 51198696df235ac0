#!/usr/bin/env bash
# Looks for faults until the time is up: seeds from the clock of each kind, rounds of survive, power
# cuts, mutated bytes, file systems on arrays that grow, moves of data handed over between Braid and
# md, the model, and rules that are broken, of which it tells how many seeds of a thousand notice.
# target/soak/found gets a line for what fails: commit, kind, seed, seconds, and how to run that
# again; target/soak/rates one for each rule. First it has to find a rule that is broken on purpose.
# usage: soak.sh [HOURS]     (without: 8)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/lints.sh
until=$((SECONDS + $(awk "BEGIN { print int(${1:-8} * 3600) }")))
found=target/soak/found rates=target/soak/rates
commit=$(git rev-parse --short HEAD)
sim=target/checked/braid-sim
export MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=33554432
mkdir -p target/soak
: >>"$found"
cargo build --quiet --profile checked --workspace --bins

# note KIND SEED SECONDS COMMAND...
note() { echo "$commit $1 $2 $3 s: ${*:4}" | tee -a "$found"; }

# seeds KIND COUNT: of this kind, from the clock on.
seeds() {
	local start began=$SECONDS option=--$1 seed
	[ "$1" != local ] || option=
	start=$(date +%s%N | cut -c6-15)
	# shellcheck disable=SC2086 # an option or none
	"$sim" $option --start "$start" --seeds "$2" >target/soak/last || true
	sed -n 's/^FAILED [a-z ]*seed \([0-9]*\):.*/\1/p' target/soak/last | while read -r seed; do
		note "$1" "$seed" $((SECONDS - began)) "$sim $option $seed"
	done
	tail -n 2 target/soak/last | head -n 1
}

survive() {
	local began=$SECONDS draw=$RANDOM
	[ "$(id -u)" = 0 ] || return 0
	BRAID=$PWD/target/checked/braid DRAW=$draw DRAWN=3 scripts/survive.sh 3 \
		>target/soak/survive 2>&1 ||
		note survive "$draw" $((SECONDS - began)) "DRAW=$draw DRAWN=3 scripts/survive.sh 3"
}

# judged KIND SEED FILTER VARIABLE=VALUE...: runs these judges, and notes how to run them again.
judged() {
	local began=$SECONDS kind=$1 seed=$2 filter=$3
	shift 3
	# shellcheck disable=SC2086 # a filter, and what may follow one
	env "$@" cargo test --quiet --profile checked --workspace --test judges $filter \
		>"target/soak/$kind" 2>&1 ||
		note "$kind" "$seed" $((SECONDS - began)) "$*" \
			"cargo test --profile checked --workspace --test judges $filter"
}

power() {
	local seed=$RANDOM
	judged power "$seed" power:: POWER_SEED=$seed POWER_ROUNDS=20
}

# Ten seconds for each decoder, of which a test run has one.
fuzz() {
	local began=$SECONDS
	(ulimit -v 1000000 && exec target/checked/braid-fuzz --seconds 10) >target/soak/fuzz 2>&1 ||
		note fuzz 0 $((SECONDS - began)) "$(tail -n 1 target/soak/fuzz)"
}

# File systems on arrays that grow.
mounted() {
	local seed=$RANDOM
	[ "$(id -u)" = 0 ] || return 0
	judged mounted "$seed" grown_mounted:: GROWN_SEED=$seed GROWN_ROUNDS=4
}

# Moves of data that Braid begins and md ends, and the other way round.
places() {
	local seed=$RANDOM
	judged places "$seed" "grown_places:: -- --ignored" GROWN_SEED=$seed GROWN_PLACES=20
}

# Power cuts after each write of changes of the shape, of which a test run draws some.
cuts() {
	local began=$SECONDS
	BRAID_EVERY_CUT=1 cargo test -q --profile checked --workspace --lib -- array::tests::moving \
		array::tests::suspended array::tests::grow >target/soak/cuts 2>&1 ||
		note cuts 0 $((SECONDS - began)) BRAID_EVERY_CUT=1 scripts/test.sh unit
}

rate() {
	echo "$commit $(BUILT=1 RATE=1 SEEDS=1000 START=$RANDOM scripts/mutants.sh "$1" | head -n 1)" |
		tee -a "$rates"
}

# All of it takes the better part of an hour: once is enough, and seeds come first.
model() {
	local began=$SECONDS
	python3 -B tests/model/survival_check.py >target/soak/model ||
		note model 0 $((SECONDS - began)) "make model"
}

BUILT=1 SEEDS=500 START=$RANDOM scripts/mutants.sh promise-durable ||
	{ echo "soak.sh: a rule was broken, and nothing noticed" >&2; exit 1; }
mapfile -t rules < <(grep -rho 'broken("[^"]*")' crates/*/src | cut -d'"' -f2 | sort -u)
round=0
while [ $SECONDS -lt "$until" ]; do
	seeds cluster 2000
	seeds local 2000
	seeds logs 1000
	seeds nested 300
	survive
	power
	fuzz
	mounted
	places
	rate "${rules[round % ${#rules[@]}]}"
	round=$((round + 1))
	[ $round != 1 ] || { model; cuts; judged rows 0 ''; }
done
echo "$round rounds; found: $(wc -l <"$found")"
[ ! -s "$found" ]
