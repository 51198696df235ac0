# The guest's side of rescue.rs: md makes arrays of disks and of parts of them, and takes what was
# found again. A PART is FILE or FILE:OFFSET:BYTES.

# parts PART...: attaches each; sets LOOPS.
parts() {
	local part file offset bytes
	LOOPS=()
	for part; do
		IFS=: read -r file offset bytes <<<"$part"
		LOOPS+=("$(losetup -f --show ${offset:+-o "$offset" --sizelimit "$bytes"} "$file")") ||
			fail "losetup $part"
	done
}

put() { dd if="$1" of=/dev/md0 bs=1M oflag=direct status=none || fail "dd $1"; }

# make NAME DIRECTORY CONTENT ARGUMENTS PART...: an array with this content.
make() {
	local name=$1 content=$3 arguments=$4
	cd "$2" || fail "$name: no directory"
	shift 4
	parts "$@"
	# shellcheck disable=SC2086 # arguments are several
	md --create /dev/md0 --run --assume-clean --homehost=judge --name="$name" -n $# $arguments \
		"${LOOPS[@]}"
	put "$content"
	idle md0
	md --stop /dev/md0
	detach
	echo "$name: made, $SECONDS s"
}

# leave_behind NAME DIRECTORY CONTENT MEMBER PART...: this member fails, then the content changes.
leave_behind() {
	local name=$1 content=$3 member=$4
	cd "$2" || fail "$name: no directory"
	shift 4
	parts "$@"
	md --assemble /dev/md0 "${LOOPS[@]}"
	md /dev/md0 --fail "${LOOPS[member]}"
	idle md0
	md /dev/md0 --remove "${LOOPS[member]}"
	put "$content"
	md --stop /dev/md0
	detach
}

# make_wrongly NAME DIRECTORY ARGUMENTS PART...: --create where --assemble was meant, in this order.
make_wrongly() {
	local name=$1 arguments=$3
	cd "$2" || fail "$name: no directory"
	shift 3
	parts "$@"
	# shellcheck disable=SC2086 # arguments are several
	md --create /dev/md0 --run --assume-clean --homehost=judge --name=wrong -n $# $arguments \
		"${LOOPS[@]}"
	md --stop /dev/md0
	detach
}

# take NAME DIRECTORY CONTENT PART...: it assembles by its new superblocks and has this content.
take() {
	local name=$1 content=$3 degraded
	cd "$2" || fail "$name: no directory"
	shift 3
	parts "$@"
	md --assemble --run /dev/md0 "${LOOPS[@]}"
	cmp -n "$(stat -c %s "$content")" "$content" /dev/md0 || fail "$name: md finds other content"
	if read -r degraded 2>/dev/null </sys/block/md0/md/degraded && [ "$degraded" = 0 ]; then
		scrub md0
		[ "$MISMATCHES" = 0 ] || fail "$name: md finds $MISMATCHES mismatches"
	fi
	md --stop /dev/md0
	detach
	echo "$name: taken, $SECONDS s"
}
