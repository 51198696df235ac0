#!/usr/bin/env bash
# Has a real md kernel replay and check what a crash left, on copies, and says what it then holds.
#
# usage: md-replays.sh [-v] IMAGE...    of members, and of the write journal if any
#   -v  md's lines too
#
# Prints the line of `replay` in replay.sh. Status 0: md runs the array, and where all members are
# there, a check found no mismatch.
set -eu
here=$(dirname "$(realpath "$0")")
verbose=
[ "${1-}" != -v ] || { verbose=1; shift; }
[ $# -gt 0 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/md-replays.XXXXXX")
trap 'rm -rf "$work"' EXIT
images=()
for image; do
	images+=("${#images[@]}.img")
	cp --sparse=always -- "$image" "$work/${images[-1]}"
done
{
	cat "$here/replay.sh"
	echo "replay md $work ${images[*]}"
} >"$work/script"
said=$("$here/../../md/run-md.sh" "$work/script")
echo "${said#md }"
[ -z "$verbose" ] || cat "$work/md.dmesg"
case $said in *'mismatches=0' | *'mismatches=-') ;; *) exit 1 ;; esac
