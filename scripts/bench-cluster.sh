#!/usr/bin/env bash
# The standard comparisons of arrays over nodes, on links of 500 Mbit/s, with a report.
# usage: bench-cluster.sh [REPORT]     (default: target/bench-cluster)
# QUICK=1: fewer and shorter. LINK=RATE: other links. Without root: loopback, unshaped.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
report=${1:-target/bench-cluster}
link=${LINK:-500M}

cargo build --release --quiet --workspace --bins
rm -rf "$report"

if [ "$(id -u)" = 0 ]; then
	common=(--link "$link" --report "$report")
	against=(--against gluster)
else
	common=(--report "$report")
	against=()
fi
if [ -n "${QUICK-}" ]; then
	common+=(--seconds 1 --runs 2)
	blocks=64K,256K nodes=4,6 clients=3
else
	common+=(--seconds 2 --runs 3)
	blocks=16K,64K,256K,512K nodes=4,6,9,12 clients=2,3,4
fi
# bench WHAT OPTION...
bench() {
	printf '\n== %s\n' "$1"
	shift
	target/release/braid bench cluster "${common[@]}" "$@"
}

began=$SECONDS
bench "RAID-4 of 2+1 nodes against the block" --level 4 --nodes 3 --block "$blocks"
bench "RAID-6 of 5 nodes against the block" --level 6 --nodes 5 --block "$blocks"
bench "RAID-6 against the number of nodes" --level 6 --nodes "$nodes" --block 64K
bench "RAID-6 of 5 nodes: reads, small writes, another file system" \
	--level 6 --nodes 5 --block 64K --reads --degraded-reads --small-writes "${against[@]}"
bench "RAID-6 of 5 nodes with files on disk" \
	--level 6 --nodes 5 --block 64K --reads --storage disk
bench "RAID-6 of 5 nodes, several clients" \
	--level 6 --nodes 5 --block 64K --clients "$clients" --schedules client,encoder,mix
printf '\nReport in %s (%s s)\n' "$report" $((SECONDS - began))
