#!/usr/bin/env bash
# Runs every check of the project and ends with one line: N passed, N failed[, N skipped].
# A failed step does not stop the next; the status is 0 only when nothing failed. What failed, and
# why, is told again before the last line.
# usage: test.sh [STEP...]     (no STEP: all, in the order below)
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.."
export RUST_BACKTRACE=${RUST_BACKTRACE:-0} CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

passed=0 failed=0 skipped=0 broken=() running=
log=$(mktemp) told=$(mktemp)
# Seconds that a step may take.
limit=${STEP_LIMIT:-1500}
trap '[ -z "$running" ] || kill "$running"; rm -f "$log" "$told"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME COMMAND...: run, time, and count what it reports; a step without tests counts as one.
# One that does not end is ended, with all that it has started.
step() {
	local name=$1 began=$SECONDS status p f s
	shift
	printf '==> %s: %s\n' "$name" "$*"
	: >"$log"
	timeout -k 10 "$limit" bash -c '"$@"' "$name" "$@" >>"$log" 2>&1 </dev/null &
	running=$!
	tail -f -n +1 -s 0.2 --pid "$running" "$log" &
	wait "$running"
	status=$?
	running=
	wait
	read -r p f < <(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' \
		"$log" | awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }')
	s=$(grep -c '^SKIPPED ' "$log")
	if [ $((p + f)) = 0 ]; then
		[ "$status" = 0 ] && p=1 || f=1
	elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
		f=1
	fi
	passed=$((passed + p - s)) failed=$((failed + f)) skipped=$((skipped + s))
	[ "$status" = 0 ] || { broken+=("$name"); why "$name" "$status" >>"$told"; }
	printf '<== %s: status %s, %s s\n' "$name" "$status" $((SECONDS - began))
}

# Which tests failed and what they said; programs that a signal ended; what went on when the time
# was up; a step's last words.
why() {
	echo "--- $1"
	if [ "$2" = 124 ] || [ "$2" = 137 ]; then
		echo "not over after $limit s; of the tests that took long, these did not end:"
		unended
	fi
	sed -n '/^test .* FAILED$/p; /panicked at /{N;N;N;p}; /(signal: /p; /^error/{N;N;N;p}' "$log" |
		cut -c1-300 | head -100
	tail -n 5 "$log"
}

# Tests that the harness has called long, without those that ended all the same.
unended() {
	sed -n 's/^test \(.*\) has been running for over .*/\1/p' "$log" | while read -r test; do
		grep -qF "test $test ... " "$log" || echo "  $test"
	done
}

deny() {
	if cargo deny --version >/dev/null 2>&1; then
		cargo deny --offline check bans licenses sources
	else
		echo "cargo-deny is not installed; deny.toml was not checked"
	fi
}

# A decoder that allocates what hostile bytes ask for dies of the limit.
fuzz() {
	cargo build --workspace --bin braid-fuzz && (
		ulimit -v 1000000
		exec target/debug/braid-fuzz --seconds "${FUZZ_SECONDS:-3}"
	)
}

simulate() {
	cargo build --release --workspace --bin braid-sim &&
		cargo test --release --workspace --test cluster --test seeds &&
		target/release/braid-sim --seeds "${SEEDS:-20000}" &&
		target/release/braid-sim --nested --seeds "${NESTED_SEEDS:-2000}" &&
		target/release/braid-sim --cluster --seeds "${CLUSTER_SEEDS:-10000}"
}

# Always of the whole workspace: a package built alone has other features, and is built again.
release() { cargo build --release --workspace --bins; }

survive() { release && scripts/survive.sh "${SURVIVE_ROUNDS:-16}"; }

export -f deny fuzz simulate release survive

all=(fmt clippy deny model unit release sim survive fuzz judges comparisons)
for name in "${@:-${all[@]}}"; do
	case $name in
	fmt) step fmt cargo fmt --all --check ;;
	clippy) step clippy cargo clippy --workspace --all-targets -- -D warnings ;;
	deny) step deny deny ;;
	model) step model python3 -B tests/model/survival_check.py --quick ;;
	unit) step unit cargo test --no-fail-fast --workspace --exclude braid-judges ;;
	release) step release release ;;
	sim) step sim simulate ;;
	survive) step survive survive ;;
	fuzz) step fuzz fuzz ;;
	judges) step judges cargo test --release --workspace --test judges ;;
	comparisons) step comparisons cargo test --release --workspace --test comparisons ;;
	*) echo "test.sh: no step named $name; the steps: ${all[*]}" >&2; exit 2 ;;
	esac
done

if [ ${#broken[@]} != 0 ]; then
	echo "failed: ${broken[*]}"
	cat "$told"
fi
summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ]
