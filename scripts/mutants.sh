#!/usr/bin/env bash
# Breaks the rules that keep data when nodes, clients or the power fail, one at a time, each at its
# places in the source (`broken("RULE")`), and runs seeds over nodes until one fails; where none
# does, seeds of local arrays, then of those with logs, then of old superblocks. A rule that nobody
# misses is a gap of the simulator, or no rule. LOCAL=1: without those over nodes; LOGS=1: of arrays
# with logs alone.
# usage: mutants.sh [RULE...]      (no RULE: all of them)
# SEEDS: how many at most (10000). START: from which on (1; or where the page of the simulator says
# that the rule is missed first, if that is beyond them).
# RATE=1: runs all seeds, and tells how many of a thousand fail.
# DRAWN=N: takes so many, drawn, of those that docs/simulation.md says are noticed by one of the
# first hundred seeds.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/lints.sh
sim=$PWD/target/checked/braid-sim
[ -n "${BUILT:-}" ] || cargo build --quiet --profile checked --workspace --bins
start=${START:-1} most=${SEEDS:-10000}

# seeds RULE OPTION...: the first seed that fails, or how many of a thousand do, if any does.
seeds() {
	local rule=$1 said first=--first from
	shift
	from=$(awk -F ' *[|] *' -v rule="$rule" \
		'$2 == rule { sub(/^(log|old) seed /, "", $4); print $4 + 0; exit }' \
		docs/simulation.md)
	[ "${from:-0}" -gt "$most" ] || from=$start
	[ -z "${RATE:-}" ] || first=
	said=$(BRAID_MUTANT=$rule "$sim" "$@" --start "$from" --seeds "$most" $first) || true
	# One that was killed has noticed nothing, and missed nothing.
	grep -q '^[0-9]* passed, [0-9]* failed' <<<"$said" || { echo "it did not end"; return; }
	if [ -n "${RATE:-}" ]; then
		awk '/^[0-9]+ passed/ && $3 > 0 { printf "%.1f of 1,000\n", $3 * 1000 / ($1 + $3) }' <<<"$said"
	else
		grep -m 1 '^FAILED' <<<"$said" || true
	fi
}

often() { awk -F ' *[|] *' '$4 + 0 > 0 && $4 + 0 <= 100 { print $2 }' docs/simulation.md; }
if [ $# = 0 ] && [ -n "${DRAWN:-}" ]; then
	# shellcheck disable=SC2046 # rules are words
	mapfile -t rules < <(scripts/drawn.sh "$DRAWN" $(often))
elif [ $# = 0 ]; then
	mapfile -t rules < <(grep -rho 'broken("[^"]*")' crates/*/src | cut -d'"' -f2 | sort -u)
else
	rules=("$@")
fi
passed=0 failed=0
for rule in "${rules[@]}"; do
	line=
	if [ -z "${LOGS:-}" ]; then
		[ -n "${LOCAL:-}" ] || line=$(seeds "$rule" --cluster)
		[ -n "$line" ] || line=$(seeds "$rule")
	fi
	[ -n "$line" ] || line=$(seeds "$rule" --logs)
	[ -n "$line" ] || [ -n "${LOGS:-}" ] || line=$(seeds "$rule" --old)
	echo "without $rule: ${line:-not noticed}"
	case $line in
	'' | 'it did not end') failed=$((failed + 1)) ;;
	*) passed=$((passed + 1)) ;;
	esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
