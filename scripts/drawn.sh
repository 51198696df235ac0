#!/usr/bin/env bash
# Prints so many of these, drawn by a number: by DRAW, or by what is committed, so that each content
# looks at others and the same at the same again. Without ITEM: the number.
# usage: drawn.sh [COUNT ITEM...]
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
draw=${DRAW:-$((16#$(git rev-parse 'HEAD^{tree}' 2>/dev/null | cut -c1-7 | grep . || echo 1)))}
[ $# -gt 0 ] || { echo "$draw"; exit; }
count=$1
shift
while [ "$count" -gt 0 ] && [ $# -gt 0 ]; do
	place=$((draw % $# + 1))
	draw=$((draw / $#))
	echo "${!place}"
	set -- "${@:1:place-1}" "${@:place+1}"
	count=$((count - 1))
done
