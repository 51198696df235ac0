# The guest's side of handoff.rs: md takes an array that Braid left, whole or after a crash.

# take NAME CONTENT SIZE SEED DIRECTORY MEMBER...: it assembles, holds CONTENT of so many bytes and
# is consistent; then md itself writes 128 KiB at 3 MiB with SEED. A member that recovers gets the
# time to. What mdadm --detail says goes to detail.txt.
take() {
	local name=$1 content=$2 size=$3 seed=$4 degraded=0 policy
	cd "$5" || fail "$name: no directory"
	shift 5
	attach "$@"
	md --assemble --run /dev/md0 "${LOOPS[@]}"
	idle md0
	case $name in
	# For md stripes move as a level 4 without parity, and are one until they are told otherwise.
	half-0* | half-u0) md --grow /dev/md0 --level=0 ;;
	esac
	mdadm --detail /dev/md0 >detail.txt || fail "$name: no detail"
	read -r policy </sys/block/md0/md/consistency_policy || fail "$name: no policy"
	"$PATTERN" check /dev/md0 "$content" "$size" || fail "$name: md finds other content"
	if read -r degraded 2>/dev/null </sys/block/md0/md/degraded; then
		[ "$degraded" = 0 ] || fail "$name: degraded by $degraded for md; $(mdadm --detail /dev/md0)"
		scrub md0
		[ "$MISMATCHES" = 0 ] || fail "$name: md finds $MISMATCHES mismatches"
	fi
	"$PATTERN" write /dev/md0 "$seed" 3145728 131072 || fail "$name: md cannot write"
	md --stop /dev/md0
	detach
	echo "$name: $policy, $SECONDS s"
}
