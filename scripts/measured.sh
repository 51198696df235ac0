#!/usr/bin/env bash
# Makes the report in crates/bench/tests/measured.tar.gz again from the raw files in it: for changes
# of the report that are meant.
# usage: measured.sh
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
archive=$PWD/crates/bench/tests/measured.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tar -xzf "$archive" -C "$work"
cargo run --quiet -p braid-bench -- report "$work" >"$work/expected/report.txt"
(cd "$work" && sha256sum results.csv results.json report.html report.md >expected/sums)
tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - raw expected |
	gzip -9n >"$archive"
