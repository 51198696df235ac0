#!/usr/bin/env bash
# Runs every check of the project and ends with one line: N passed, N failed[, N skipped].
# A failed step does not stop the next; the status is 0 only when nothing failed. What failed, and
# why, is told again before the last line.
# usage: test.sh [STEP...]     (no STEP: all of them; with CI set, what is skipped has failed)
#
# All is built once, by the profile `checked`. Then steps run side by side, in lanes: one of steps
# that ask for answers within seconds and mostly wait, one of guests that boot, and others of steps
# that take what those leave of the processors. What a step of a lane says is printed when it ends.
# Steps that are named run one after another.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/lints.sh
export RUST_BACKTRACE=${RUST_BACKTRACE:-0} CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

first=(fmt deny build)
waiting=(unit survive)
booting=(judges)
measuring=(comparisons fuzz model)
computing=(sim)
behind=10

# Seconds that a step may take.
limit=${STEP_LIMIT:-2700}
running='' lanes=()
work=$(mktemp -d)
clean_up() {
	trap - EXIT
	kill $running "${lanes[@]}" 2>/dev/null
	wait
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME: run it to its end, or end it at the time limit with all that it has started. Leaves
# what it said in NAME.log, and in NAME.end status, seconds, and seconds of processors.
step() {
	local name=$1 began=$SECONDS log=$work/$1.log status busy ran
	children_ran busy
	: >"$log"
	timeout -k 10 "$limit" bash -c '"$@"' "$name" "step_$name" >"$log" 2>&1 </dev/null &
	running=$!
	if [ ${#lanes[@]} = 0 ]; then
		echo "==> $name"
		tail -f -n +1 -s 0.2 --pid "$running" "$log" &
	fi
	wait "$running"
	status=$?
	running=
	wait
	children_ran ran
	echo "$status $((SECONDS - began)) $((ran - busy))" >"$work/$name.end"
}
# children_ran VARIABLE: seconds for which processors have worked for what this shell, and no
# subshell of it, has waited for.
children_ran() {
	local file=$work/times.$BASHPID
	times >"$file"
	printf -v "$1" %d "$(awk -F'[ms ]+' 'END { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")"
}

# told_whole NAME: what a step of a lane has said, not mixed with that of others.
told_whole() {
	(
		flock 9
		echo "==> $1"
		cat "$work/$1.log"
		ended "$1"
	) 9>"$work/lock"
}
ended() {
	local status seconds busy
	read -r status seconds busy <"$work/$1.end"
	echo "<== $1: status $status, $seconds s, of processors $busy s"
}

# lane NICENESS STEP...: one after another.
lane() {
	local name
	trap '[ -z "$running" ] || kill "$running"' EXIT
	trap 'exit 143' TERM
	lanes=(this)
	renice -n "$1" -p "$BASHPID" >/dev/null
	shift
	for name; do
		echo "... $name begins"
		step "$name"
		told_whole "$name"
	done
}

passed=0 failed=0 skipped=0 broken=()
# count NAME: what a step reports; one without tests counts as one.
count() {
	local name=$1 log=$work/$1.log status=137 seconds p f s
	[ ! -s "$work/$name.end" ] || read -r status seconds _ <"$work/$name.end"
	read -r p f < <(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' \
		"$log" | awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }')
	s=$(grep -c '^SKIPPED ' "$log")
	if [ "$s" != 0 ] && [ -n "${CI-}" ]; then
		[ "$status" != 0 ] || status=1
		[ "$p" -lt "$s" ] || [ "$f" != 0 ] || p=$((p - s)) f=$s
		s=0
	fi
	if [ $((p + f)) = 0 ]; then
		[ "$status" = 0 ] && p=1 || f=1
	elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
		f=1
	fi
	passed=$((passed + p - s)) failed=$((failed + f)) skipped=$((skipped + s))
	[ "$status" = 0 ] || { broken+=("$name"); why "$name" "$status" >>"$work/told"; }
}

# Which tests failed and what they said; programs that a signal ended; what went on when the time
# was up; a step's last words.
why() {
	local log=$work/$1.log
	echo "--- $1"
	if [ "$2" = 124 ] || [ "$2" = 137 ]; then
		echo "not over after $limit s; of the tests that took long, these did not end:"
		unended "$log"
	fi
	# A panic may tell all that a guest waited for, blank lines among it.
	awk '/panicked at / { left = 150 }
		/^error/ && left < 4 { left = 4 }
		/^(stack backtrace:|note: |failures:$|---- )/ { left = 0 }
		left-- > 0 || /^test .* FAILED$/ || /^SKIPPED / || /\(signal: /
		left < 0 { left = 0 }' "$log" | cut -c1-300 | head -500
	tail -n 5 "$log"
}

# Tests that the harness has called long, without those that ended all the same.
unended() {
	sed -n 's/^test \(.*\) has been running for over .*/\1/p' "$1" | while read -r test; do
		grep -qF "test $test ... " "$1" || echo "  $test"
	done
}

step_fmt() { cargo fmt --all --check; }

step_deny() {
	if cargo deny --version >/dev/null 2>&1; then
		cargo deny --offline check bans licenses sources
	else
		echo "cargo-deny is not installed; deny.toml was not checked"
	fi
}

# Lints what it compiles. Always of the whole workspace: a package built alone has other features,
# and is built again.
step_build() {
	cargo test --profile checked --workspace --no-run && programs
}
programs() { cargo build --profile checked --workspace --bins; }

# Models read nothing but themselves: what `make model` has seen need not be seen again.
step_model() {
	model_is_seen -v integrity.py || python3 -B tests/model/survival_check.py --quick || return
	model_is_seen integrity.py || python3 -B tests/model/integrity.py
}
# model_is_seen [-v] FILE: the model in this file, or that in all others, is as it was.
model_is_seen() {
	(cd tests/model && grep "$@" seen.sha256 | sha256sum --status -c -) &&
		echo "a model is as it was when all of it was explored"
}

# Most of these tests wait for what they have started. Where the power fails in those of the array
# is drawn by what is committed; BRAID_EVERY_CUT=1: everywhere.
step_unit() {
	export BRAID_DRAW=${DRAW:-$(scripts/drawn.sh)}
	echo "power cuts of draw $BRAID_DRAW; the same again: DRAW=$BRAID_DRAW scripts/test.sh unit"
	RUST_TEST_THREADS=$((2 * $(nproc))) \
		cargo test --profile checked --no-fail-fast --workspace --exclude braid-judges
}

# For every edit; `make test` runs all of it, too.
step_quick() {
	cargo test --profile checked --workspace --exclude braid-judges --lib --bins \
		--test all --test tidy &&
		SEEDS=200 && part 0 "$SEEDS" && part 0 "$SEEDS" --cluster
}

# One of eight parts of the seeds, and two rules to break, drawn by what is committed; `make soak`
# looks at others for hours.
# Memory that a seed gives back is kept for the next: mapping it anew takes a sixth of the time.
step_sim() {
	local part
	part=$(($(scripts/drawn.sh) % 8))
	echo "part $part of the seeds; the same again: DRAW=$part scripts/test.sh sim"
	programs &&
		export MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=33554432 &&
		cargo test --profile checked --workspace --test all -- --ignored &&
		part "$part" "${SEEDS:-2000}" &&
		part "$part" "${LOG_SEEDS:-1000}" --logs &&
		part "$part" "${OLD_SEEDS:-200}" --old &&
		part "$part" "${NESTED_SEEDS:-250}" --nested &&
		part "$part" "${CLUSTER_SEEDS:-2500}" --cluster &&
		BUILT=1 DRAWN=2 SEEDS=5000 scripts/mutants.sh
}
# part NUMBER SEEDS [KIND]
part() { target/checked/braid-sim ${3:+"$3"} --start $((1 + $1 * $2)) --seeds "$2"; }

# A decoder that allocates what hostile bytes ask for dies of the limit.
step_fuzz() {
	programs && (
		ulimit -v 1000000
		exec target/checked/braid-fuzz --seconds "${FUZZ_SECONDS:-1}"
	)
}

step_survive() {
	programs && BRAID=$PWD/target/checked/braid DRAWN=6 scripts/survive.sh "${SURVIVE_ROUNDS:-6}"
}

# As many of them as processors, and no other guest beside: a whole machine that boots in one gives
# up devices that come late. Where the power fails, one of three rows of each long table, and one of
# two whole machines are drawn by what is committed; ROWS=all: all of them.
step_judges() {
	local draw
	draw=$(($(scripts/drawn.sh) % 1000))
	echo "power cuts and rows of draw $draw; the same again: DRAW=$draw scripts/test.sh judges"
	if [ -n "${ROWS-}" ]; then unset DRAW; else export DRAW=$draw; fi
	programs && POWER_SEED=$((1 + draw * 8)) cargo test --profile checked --workspace --test judges
}

step_comparisons() { programs && cargo test --profile checked --workspace --test comparisons; }

all=("${first[@]}" "${waiting[@]}" "${booting[@]}" "${measuring[@]}" "${computing[@]}")
for name; do
	declare -F "step_$name" >/dev/null ||
		{ echo "test.sh: no step named $name; the steps: ${all[*]}" >&2; exit 2; }
done
export -f programs part model_is_seen
for name in "${all[@]}" quick; do export -f "step_$name"; done

for name in "${@:-${first[@]}}"; do
	step "$name"
	ended "$name"
done
if [ $# = 0 ]; then
	lane 0 "${waiting[@]}" &
	lanes+=($!)
	lane 0 "${booting[@]}" &
	lanes+=($!)
	lane "$behind" "${measuring[@]}" &
	lanes+=($!)
	lane "$behind" "${computing[@]}" &
	lanes+=($!)
	wait "${lanes[@]}"
	lanes=()
fi
for name in "${@:-${all[@]}}"; do count "$name"; done

if [ ${#broken[@]} != 0 ]; then
	echo "failed: ${broken[*]}"
	cat "$work/told"
fi
summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ]
