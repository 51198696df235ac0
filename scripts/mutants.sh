#!/usr/bin/env bash
# Breaks the rules that keep data when nodes, clients or the power fail, one at a time, each at its
# places in the source (`broken("RULE")`), and runs seeds over nodes until one fails; where none
# does, seeds of local arrays, then of those with logs. A rule that nobody misses is a gap of the
# simulator, or no rule. LOGS=1: of arrays with logs alone.
# usage: mutants.sh [RULE...]      (no RULE: all of them)
# SEEDS: how many at most (10000). START: from which on (1).
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
export CARGO_TARGET_DIR=$PWD/target/mutants
cargo build --quiet --release -p braid-sim --features mutants

# seeds RULE OPTION...: the first seed that fails, if one does.
seeds() {
	local rule=$1 said
	shift
	said=$(BRAID_MUTANT=$rule "$CARGO_TARGET_DIR/release/braid-sim" "$@" --first) || true
	# One that was killed has noticed nothing, and missed nothing.
	grep -q '^[0-9]* passed, [0-9]* failed' <<<"$said" || { echo "it did not end"; return; }
	grep -m 1 '^FAILED' <<<"$said" || true
}

[ $# -gt 0 ] || mapfile -t rules < <(grep -rho 'broken("[^"]*")' crates/*/src | cut -d'"' -f2 |
	sort -u)
passed=0 failed=0
for rule in "${@:-${rules[@]}}"; do
	line=
	if [ -z "${LOGS:-}" ]; then
		line=$(seeds "$rule" --cluster --seeds "${SEEDS:-10000}" --start "${START:-1}")
		[ -n "$line" ] || line=$(seeds "$rule" --seeds "${SEEDS:-10000}")
	fi
	[ -n "$line" ] || line=$(seeds "$rule" --logs --seeds "${SEEDS:-10000}")
	echo "$rule: ${line:-not noticed}"
	case $line in
	FAILED*) passed=$((passed + 1)) ;;
	*) failed=$((failed + 1)) ;;
	esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
