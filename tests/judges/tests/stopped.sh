# The guest's side of stopped.rs: md moves data in place with mdadm's backups in a file, and is
# stopped in the middle; and md takes what Braid has made of that.

# stopped NAME SEED DEVICES DIRECTORY CREATE_ARGUMENTS GROW_ARGUMENTS: the members beyond DEVICES
# are added before. HOLD has mdadm let md wait.
stopped() {
	local name=$1 seed=$2 devices=$3 create=$5 grow=$6 position
	cd "$4" || fail "$name: no directory"
	attach m?.img
	# shellcheck disable=SC2086 # arguments are words
	md --create /dev/md0 --run --assume-clean --homehost=judge --name="$name" -n "$devices" \
		--bitmap=none $create "${LOOPS[@]:0:devices}"
	idle md0
	"$PATTERN" write /dev/md0 "$seed" || fail "$name: cannot write"
	blockdev --getsize64 /dev/md0 >size.txt
	local new=("${LOOPS[@]:devices}")
	[ ${#new[@]} = 0 ] || md /dev/md0 --add "${new[@]}"
	set_md md0 sync_speed_max 400
	set_md md0 sync_max 0
	# mdadm makes the array fast for the time of its backups.
	while [ ! -e over ]; do
		echo 400 >/sys/block/md0/md/sync_speed_min
		busybox sleep 0.01
	done 2>/dev/null &
	# shellcheck disable=SC2086 # arguments are words
	LD_PRELOAD=$HOLD mdadm --grow /dev/md0 $grow --backup-file=backup >grow.txt 2>&1 &
	until_true has_begun
	touch over
	md --stop /dev/md0
	detach
	rm over
	echo "$name: $SECONDS s"
}

has_begun() {
	local position
	read -r position </sys/block/md0/md/reshape_position
	[ "$position" != none ] && [ "$position" -gt 3000 ]
}

# holds NAME SEED DIRECTORY
holds() {
	local name=$1 seed=$2
	cd "$3" || fail "$name: no directory"
	attach m?.img
	md --assemble --run /dev/md0 "${LOOPS[@]}"
	idle md0
	"$PATTERN" check /dev/md0 "$seed" || fail "$name: md finds other content"
	scrub md0
	[ "$MISMATCHES" = 0 ] || fail "$name: md finds $MISMATCHES mismatches"
	md --stop /dev/md0
	detach
	echo "$name: $SECONDS s"
}
