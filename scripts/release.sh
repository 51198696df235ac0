#!/usr/bin/env bash
# Builds the programs that are given away. Beside each lies PROGRAM.debug with the lines of its
# functions, where debuggers and backtraces find it by themselves; it need not be installed.
# usage: release.sh     (the programs are in target/programs)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
built=target/dist programs=target/programs

cargo build --profile dist -p braid-cli -p braid-bench
mkdir -p "$programs"
for program in braid braid-bench; do
	objcopy --only-keep-debug "$built/$program" "$programs/$program.debug"
	# The link is the debug file's name and checksum: it is found in the directory it is made from.
	(cd "$programs" && objcopy --strip-debug --add-gnu-debuglink="$program.debug" \
		"../../$built/$program" "$program")
	ls -lh "$programs/$program" | awk -v name="$program" '{ print name ": " $5 }'
done
