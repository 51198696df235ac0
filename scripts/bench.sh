#!/usr/bin/env bash
# One comparison, or all of them, in one report.
# usage: bench.sh COMPARISON WORD...     what `braid bench` takes
# RESUME=1: go on where an earlier run into the same report ended.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
cargo build --release --quiet -p braid-cli -p braid-bench
[ -z "${RESUME-}" ] || set -- "$@" --resume
exec target/release/braid bench "$@"
