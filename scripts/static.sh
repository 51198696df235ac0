#!/usr/bin/env bash
# Builds braid as one file without libraries, for every Linux of this processor, and tries it. It
# has no fabric over libfabric.
# usage: static.sh [PROFILE]     (the program is in target/static)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
profile=${1:-dist}
target=$(uname -m)-unknown-linux-musl

if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
	rustup target add "$target"
fi
cargo build --profile "$profile" -p braid-cli --no-default-features --features images \
	--target "$target"
mkdir -p target/static
objcopy --strip-debug "target/$target/$profile/braid" target/static/braid
if ldd target/static/braid 2>/dev/null | grep -q '=>'; then
	echo "static.sh: target/static/braid needs libraries" >&2
	exit 1
fi

# It runs an array.
work=$(mktemp -d)
export BRAID_RUN_DIR=$work/run
braid=$PWD/target/static/braid
trap '"$braid" stop --all --force 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
truncate -s 16M m0 m1 m2
"$braid" create try --level 5 --raid-devices 3 m0 m1 m2 >/dev/null 2>&1
"$braid" assemble try m0 m1 m2 --export "nbd:unix:$work/nbd"
"$braid" check try --wait
"$braid" stop try
cd - >/dev/null
ls -lh target/static/braid | awk '{ print "braid: " $5 }'
