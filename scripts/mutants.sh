#!/usr/bin/env bash
# Breaks the rules that keep data when nodes, clients or the power fail, one at a time, each at its
# place in a copy of the source (tests/mutants/rules.patch), and runs seeds over nodes until one
# fails. A rule that nobody misses is a gap of the simulator, or no rule.
# usage: mutants.sh [RULE...]      (no RULE: all of the patch)
# SEEDS: how many at most (10000). START: from which on (1).
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
patch=$PWD/tests/mutants/rules.patch
copy=$PWD/target/mutants/source

rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"
# As if it were in no checkout: the paths are those of the copy.
(cd "$copy" && GIT_CEILING_DIRECTORIES=$(dirname "$copy") git apply "$patch")
export CARGO_TARGET_DIR=$PWD/target/mutants/built
(cd "$copy" && cargo build --quiet --release -p braid-sim)

[ $# -gt 0 ] || mapfile -t rules < <(grep '^+' "$patch" | grep -o 'broken("[^"]*")' |
	cut -d'"' -f2 | sort -u)
passed=0 failed=0
for rule in "${@:-${rules[@]}}"; do
	line=$(BRAID_MUTANT=$rule "$CARGO_TARGET_DIR/release/braid-sim" --cluster --first \
		--seeds "${SEEDS:-10000}" --start "${START:-1}" | grep -m 1 '^FAILED') || true
	echo "$rule: ${line:-not noticed}"
	if [ -n "$line" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
