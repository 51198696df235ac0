# The guest's side of nested.rs: md makes arrays of arrays, and takes them back.

# nest NAME SEED OUTER INNER EACH DIRECTORY MEMBER...: arrays of level INNER over EACH members
# each, and one of level OUTER over those, filled.
nest() {
	local name=$1 seed=$2 outer=$3 inner=$4 each=$5 number=1 arrays=() chunk=(-c64)
	cd "$6" || fail "$name: no directory"
	shift 6
	[ "$inner" != 1 ] || chunk=()
	attach "$@"
	while [ $(((number - 1) * each)) -lt $# ]; do
		md --create "/dev/md$number" --run --assume-clean --metadata=1.2 -l"$inner" -n"$each" \
			"${chunk[@]}" "${LOOPS[@]:$(((number - 1) * each)):each}"
		arrays+=("/dev/md$number")
		number=$((number + 1))
	done
	md --create /dev/md0 --run --assume-clean --metadata=1.2 -l"$outer" -n"${#arrays[@]}" -c128 \
		"${arrays[@]}"
	"$PATTERN" write /dev/md0 "$seed" || fail "$name: cannot fill"
	blockdev --getsize64 /dev/md0 >size
	md --stop /dev/md0
	for array in "${arrays[@]}"; do md --stop "$array"; done
	detach
}

# unnest NAME CONTENT INNER-COUNT EACH DIRECTORY MEMBER...: it assembles and holds CONTENT, and the
# inner arrays are consistent.
unnest() {
	local name=$1 content=$2 count=$3 each=$4 number arrays=()
	cd "$5" || fail "$name: no directory"
	shift 5
	attach "$@"
	for number in $(seq "$count"); do
		md --assemble "/dev/md$number" "${LOOPS[@]:$(((number - 1) * each)):each}"
		arrays+=("/dev/md$number")
	done
	md --assemble /dev/md0 "${arrays[@]}"
	"$PATTERN" check /dev/md0 "$content" || fail "$name: md finds other content"
	for number in $(seq "$count"); do
		scrub "md$number"
		[ "$MISMATCHES" = 0 ] || fail "$name: md finds $MISMATCHES mismatches in array $number"
	done
	md --stop /dev/md0
	for array in "${arrays[@]}"; do md --stop "$array"; done
	detach
}
