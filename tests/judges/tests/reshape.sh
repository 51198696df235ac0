# The guest's side of reshape.rs: `half` has this machine's md reshape an array and stops it on the
# way. The files that reshape.rs reads: size.txt (bytes before), examine-N.txt, position.txt.

# half NAME SEED DEVICES STOP DIRECTORY CREATE_ARGUMENTS GROW_ARGUMENTS
#   STOP  size=KIB: the array is made smaller first, to shrink it then; past=N: stopped by mdadm
#         once the position is beyond sector N of the array, or below with below=N; cut: the members
#         are copied as they are while nothing moves, as a power cut leaves them; killed: the mdadm
#         that makes backups is killed before
#   GROW_ARGUMENTS  may have NEW, the members beyond DEVICES; they are spares before, otherwise
half() {
	local name=$1 seed=$2 devices=$3 stop=,$4, create=$6 grow=$7 size
	cd "$5" || fail "$name: no directory"
	rm -f backup
	attach m?.img
	[[ $create = *-e* ]] || create="-e1.2 $create"
	# shellcheck disable=SC2086 # arguments are words
	md --create /dev/md0 --run --assume-clean --homehost=judge --name="$name" \
		-n "$devices" $create "${LOOPS[@]:0:devices}"
	idle md0
	put /dev/md0 "$seed"
	size=$(option size "$stop")
	if [ -n "$size" ]; then
		md --grow /dev/md0 --array-size="$size"
		set_md md0 reshape_direction backwards
	fi
	blockdev --getsize64 /dev/md0 >size.txt
	local new=("${LOOPS[@]:devices}")
	[ ${#new[@]} = 0 ] || [[ $grow = *--add* ]] || md /dev/md0 --add "${new[@]}"
	slow
	# The mdadm that makes backups stays as long as the reshape lasts.
	# shellcheck disable=SC2086 # arguments are words
	mdadm --grow /dev/md0 ${grow/NEW/${new[*]}} >grow.txt 2>&1 &
	halt "$stop"
	local number=0 loop
	for loop in "${LOOPS[@]}"; do
		mdadm --examine "$loop" >"examine-$number.txt" || true
		number=$((number + 1))
	done
	sed -n 's/.*Reshape pos.n : \([0-9]*\).*/\1/p' examine-0.txt >position.txt
	detach
	echo "$name: $SECONDS s, $(sed -n '/Reshape pos/,/New/p' examine-0.txt | tr -s ' \n' ' ')"
}

option() { sed -n "s/.*,$1=\([^,]*\),.*/\1/p" <<<"$2"; }

put() { "$PATTERN" write "$@" || fail "pattern write $*"; }

slow() {
	[ -e /sys/block/md0/md/sync_speed_max ] || {
		# It has no such limits, but the level that it grows by has.
		echo 800 >/proc/sys/dev/raid/speed_limit_max
		echo 800 >/proc/sys/dev/raid/speed_limit_min
		return
	}
	set_md md0 sync_speed_max 800
	set_md md0 sync_speed_min 800
}

# This guest has no other.
kill_mdadm() {
	local process
	for process in /proc/[0-9]*; do
		[ "$(cat "$process/comm" 2>/dev/null)" != mdadm ] || kill -KILL "${process#/proc/}"
	done
}

halt() {
	local past below
	past=$(option past "$1") below=$(option below "$1")
	case $1 in
	*,killed,*)
		# mdadm makes the array fast for the time of its backups.
		local end=$((SECONDS + 60))
		until has_passed "$past" "$below"; do
			echo 400 >/sys/block/md0/md/sync_speed_min
			[ $SECONDS -lt $end ] || fail "waited in vain for $1: $(cat grow.txt)"
		done
		kill_mdadm
		;;
	*) until_true has_passed "$past" "$below" ;;
	esac
	case $1 in
	*,cut,*) cut ;;
	*) md --stop /dev/md0 ;;
	esac
}

has_passed() { # PAST BELOW: one of them, the other is empty
	local position
	read -r position </sys/block/md0/md/reshape_position
	[ "$position" != none ] && [ "$position" -gt "${1:-0}" ] &&
		[ "$position" -lt "${2:-$((1 << 60))}" ]
}

# What a power cut leaves: the members as they are while nothing moves, and no word of a stop.
cut() {
	local number=0 loop
	set_md md0 sync_action frozen
	for loop in "${LOOPS[@]}"; do
		dd if="$loop" of="cut.$number" bs=1M iflag=direct conv=sparse status=none
		number=$((number + 1))
	done
	finish
	md --stop /dev/md0
	number=0
	for loop in "${LOOPS[@]}"; do
		dd if="cut.$number" of="$loop" bs=1M oflag=direct status=none
		rm "cut.$number"
		number=$((number + 1))
	done
}

# What is left on the way is of no interest, and mdadm stops nothing in the middle of a backup.
finish() {
	local size
	size=$(cat /sys/block/md0/size)
	echo 0 >/sys/block/md0/md/suspend_lo
	echo "$size" >/sys/block/md0/md/suspend_hi
	echo 0 >/sys/block/md0/md/suspend_hi
	set_md md0 sync_max max
	set_md md0 sync_speed_max 400000
	set_md md0 sync_speed_min 400000
	echo idle >/sys/block/md0/md/sync_action
	idle md0
}
