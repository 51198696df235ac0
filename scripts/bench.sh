#!/usr/bin/env bash
# All comparisons, in one report.
# usage: bench.sh WORD...     what `braid bench all` takes
# RESUME=1: go on where an earlier run into the same report ended.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
cargo build --release --quiet -p braid-cli -p braid-bench
[ -z "${RESUME-}" ] || set -- "$@" --resume
exec target/release/braid bench all "$@"
