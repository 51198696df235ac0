#!/usr/bin/env bash
# The standard comparisons of arrays over nodes, on links of 500 Mbit/s, with a report.
# usage: bench-cluster.sh [REPORT]     (default: target/bench-cluster)
# QUICK=1: fewer and shorter. RESUME=1: go on where an earlier run ended.
# Without root: loopback, unshaped.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
cargo build --release --quiet -p braid-cli -p braid-bench
exec target/release/braid bench cluster --report "${1:-target/bench-cluster}" \
	${QUICK:+--quick} ${RESUME:+--resume}
