#!/usr/bin/env bash
# Rates of xor and P+Q on one core, beside ISA-L's where its library is installed.
# usage: bench-parity.sh
set -euo pipefail
cd "$(dirname "$0")/.."

features=()
if [ -e /usr/include/isa-l.h ]; then
	features=(--features isal)
else
	echo "bench-parity.sh: no ISA-L here (Debian: libisal-dev); measuring ours alone" >&2
fi
cargo bench --quiet -p braid-parity "${features[@]}" --bench parity --no-run
# One core, and real time where that is allowed: a neighbour's load costs a half otherwise.
quiet=(taskset -c 0)
if chrt -r 1 true 2>/dev/null; then
	quiet=(chrt -r 1 "${quiet[@]}")
fi
exec "${quiet[@]}" cargo bench --quiet -p braid-parity "${features[@]}" --bench parity
