# The guest's side of golden.rs: `one` makes one array with this machine's md and describes it.
# The files that golden.rs reads: size.txt, detail.export, examine-N.export.

# one NAME SEED RAID_DEVICES AFTER DIRECTORY MDADM_ARGUMENT...
one() {
	local name=$1 seed=$2 devices=$3 after=$4 uuid assume=--assume-clean
	cd "$5" || fail "$name: no directory"
	shift 5
	[ "$after" != rebuilt ] || assume=
	uuid=$(printf %s "$name" | md5sum | sed -E 's/(.{8})(.{8})(.{8})(.{8}).*/\1:\2:\3:\4/')
	attach m?.img
	# shellcheck disable=SC2086 # assume may be nothing
	md --create /dev/md0 --run $assume --homehost=judge --name="$name" --uuid="$uuid" \
		-n "$devices" "$@" "${LOOPS[@]}"
	idle md0
	"after_${after%-*}" "$name" "$seed" "${after#*-}"
	[ ! -e /dev/md0 ] || md --stop /dev/md0
	local number=0 loop
	for loop in "${LOOPS[@]}"; do
		mdadm --examine --export "$loop" >"examine-$number.export"
		number=$((number + 1))
	done
	detach
	echo "$name: $SECONDS s"
}

describe() {
	blockdev --getsize64 /dev/md0 >size.txt
	mdadm --detail --export /dev/md0 >detail.export
}

put() { "$PATTERN" write "$@" || fail "pattern write $*"; }

verify() { # NAME CONTENT: what md itself gives back
	"$PATTERN" check /dev/md0 "$2" || fail "$1: md's own content differs"
	local degraded
	read -r degraded 2>/dev/null </sys/block/md0/md/degraded || return 0
	[ "$degraded" = 0 ] || return 0
	scrub md0
	[ "$MISMATCHES" = 0 ] || fail "$1: $MISMATCHES mismatches"
}

after_fill() {
	put /dev/md0 "$2"
	verify "$1" "$2"
	describe
}

after_rebuilt() { after_fill "$@"; }

# The bitmap lies so many sectors ($3) behind the superblock: 2, and the kernel put it there by
# default for years.
after_moved() {
	local from super loop
	from=$(cat /sys/block/md0/md/bitmap/location)
	super=$(mdadm --examine "${LOOPS[0]}" | sed -n 's/.*Super Offset : \([0-9]*\) sectors/\1/p')
	set_md md0 bitmap/location none
	for loop in "${LOOPS[@]}"; do
		dd if="$loop" of="$loop" bs=512 count=6 skip=$((super + from)) seek=$((super + $3)) \
			iflag=direct oflag=direct conv=notrunc status=none
	done
	set_md md0 bitmap/location "+$3"
	after_fill "$@"
}

# Members ($3, as in 14: 1 and 4) leave before the content is written: theirs is stale.
after_degraded() {
	local role
	for role in $(fold -w1 <<<"$3"); do
		leave "${LOOPS[role]}"
	done
	after_fill "$@"
}

leave() {
	md /dev/md0 --fail "$1"
	idle md0
	md /dev/md0 --remove "$1"
}

# Member 1 leaves, then 64 KiB at 4 MiB change.
after_stale() {
	after_fill "$1" "$2"
	leave "${LOOPS[1]}"
	put /dev/md0 $(($2 + 1)) 4194304 65536
	describe
}

# Power fails while the array is active, and parity of the first 4 KiB is lost with it.
after_dirty() {
	after_fill "$1" "$2"
	# A timer that still runs from the last write would make the array clean again.
	until_true in_state clean
	set_md md0 safe_mode_delay 0
	[ "$(cat /sys/block/md0/md/bitmap/location)" = none ] || until_true bitmap_is_clean
	put /dev/md0 "$2" 0 524288
	local number=0 loop offset
	for loop in "${LOOPS[@]}"; do
		dd if="$loop" of="cut.$number" bs=1M iflag=direct conv=sparse status=none
		number=$((number + 1))
	done
	in_state active || fail "$1: did not stay active"
	describe
	md --stop /dev/md0
	number=0
	for loop in "${LOOPS[@]}"; do
		dd if="cut.$number" of="$loop" bs=1M oflag=direct status=none
		rm "cut.$number"
		number=$((number + 1))
	done
	offset=$(data_offset "${LOOPS[2]}")
	dd if=/dev/zero of="${LOOPS[2]}" bs=512 seek="$offset" count=8 oflag=direct status=none
}

in_state() { [ "$(cat /sys/block/md0/md/array_state)" = "$1" ]; }

bitmap_is_clean() { mdadm -X "${LOOPS[0]}" | grep -q ', 0 dirty'; }

data_offset() { mdadm --examine "$1" | sed -n 's/.*Data Offset : \([0-9]*\) sectors/\1/p'; }

# Member 1 is new and recovery stopped halfway: what lies beyond on it is not the array's.
after_halfway() {
	after_fill "$1" "$2"
	local offset half=$(($(cat /sys/block/md0/md/component_size) / 256 * 256))
	offset=$(data_offset "${LOOPS[1]}")
	leave "${LOOPS[1]}"
	md --zero-superblock "${LOOPS[1]}"
	dd if=/dev/zero of="${LOOPS[1]}" bs=512 seek="$offset" count=2048 status=none
	dd if=/dev/zero of="${LOOPS[1]}" bs=512 seek=$((offset + half)) count=2048 oflag=direct \
		status=none
	set_md md0 sync_max $half # component_size is in KiB: half of it in sectors
	md /dev/md0 --add "${LOOPS[1]}"
	reached $half
	describe
}

# A resync stopped halfway, and parity beyond is wrong (3 members, left-symmetric, 64 KiB chunks:
# of the next stripe but one, on member 2).
after_resyncing() {
	after_fill "$1" "$2"
	local half=$(($(cat /sys/block/md0/md/component_size) / 256 * 256)) offset
	md --stop /dev/md0
	offset=$(data_offset "${LOOPS[0]}")
	md --assemble --update=resync --readonly /dev/md0 "${LOOPS[@]}"
	set_md md0 sync_max $half
	md --readwrite /dev/md0
	reached $half
	describe
	md --stop /dev/md0
	dd if=/dev/zero of="${LOOPS[2]}" bs=512 seek=$((offset + half + 128)) count=8 oflag=direct \
		status=none
}

reached() { until_true has_reached "$1"; }
has_reached() { [ "$(sed 's/ .*//' /sys/block/md0/md/sync_completed)" = "$1" ]; }

# Member 1 cannot read 64 sectors, 512 sectors into its data, and says so in its bad-block log.
after_badblocks() {
	after_fill "$1" "$2"
	local first=$(($(data_offset "${LOOPS[1]}") + 512))
	set_md md0 "dev-${LOOPS[1]##*/}/bad_blocks" "$first 64"
	put /dev/md0 "$2" 0 4096
	describe
	md --stop /dev/md0
	dd if=/dev/zero of="${LOOPS[1]}" bs=512 seek=$first count=64 oflag=direct status=none
}

# The layout is one that md runs but mdadm cannot make: near and far copies at once ($3).
after_relayout() {
	local loop
	md --stop /dev/md0
	for loop in "${LOOPS[@]}"; do
		"$PATTERN" relayout "$loop" "$3" || fail "$1: relayout"
	done
	md --assemble /dev/md0 "${LOOPS[@]}"
	after_fill "$@"
}
