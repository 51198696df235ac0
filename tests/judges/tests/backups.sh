# The guest's side of backups.rs: `die` has this machine's md reshape an array of which mdadm makes
# backups, and ends this machine, mdadm and kernel at once, in the middle of it. The disks are files
# that have what md's writes were done; of the backup file is left what was flushed, or happened to
# be written.

# die NAME SEED DEVICES MOMENT DIRECTORY CREATE_ARGUMENTS GROW_ARGUMENTS
#   MOMENT  size=KIB: the array is made smaller first, to shrink it then; past=N: once the position
#           is at sector N of the array, or below with below=N; wait=SECONDS: so long after that;
#           speed=KIB: a second, 400 otherwise; late: mdadm has stopped to do anything since;
#           ahead: md does not wait for backups
#   GROW_ARGUMENTS  may have FILE, the option for a backup file; the disks beyond DEVICES are added
#           before
die() {
	local name=$1 seed=$2 devices=$3 moment=,$4, create=$6 grow=$7 size speed
	cd "$5" || fail "$name: no directory"
	# shellcheck disable=SC2206 # no name has a space
	local disks=($DEVS)
	rm -f backup died size.txt
	# shellcheck disable=SC2086 # arguments are words
	md --create /dev/md0 --run --assume-clean --homehost=judge --name="$name" -n "$devices" \
		--bitmap=none $create "${disks[@]:0:devices}"
	idle md0
	"$PATTERN" write /dev/md0 "$seed" || fail "$name: cannot write"
	size=$(option size)
	if [ -n "$size" ]; then
		md --grow /dev/md0 --array-size="$size"
		set_md md0 reshape_direction backwards
	fi
	blockdev --getsize64 /dev/md0 >size.txt
	local new=("${disks[@]:devices}")
	[ ${#new[@]} = 0 ] || md /dev/md0 --add "${new[@]}"
	sync
	speed=$(option speed)
	set_md md0 sync_speed_max "${speed:-400}"
	local hold=$HOLD
	case $moment in
	*,ahead,*) hold= ;;
	*) set_md md0 sync_max 0 ;;
	esac
	# mdadm makes the array fast for the time of its backups.
	while echo "${speed:-400}" >/sys/block/md0/md/sync_speed_min; do busybox sleep 0.01; done &
	# The mdadm that makes backups stays.
	# shellcheck disable=SC2086 # arguments are words
	LD_PRELOAD=$hold mdadm --grow /dev/md0 ${grow/FILE/--backup-file=backup} >grow.txt 2>&1 &
	local end=$((SECONDS + 60))
	until has_come "$(option past)" "$(option below)"; do
		[ $SECONDS -lt $end ] || fail "$name: waited in vain: $(cat grow.txt /proc/mdstat)"
		busybox sleep 0.02
	done
	case $moment in *,late,*) signal_mdadm STOP ;; esac
	busybox sleep "$(option wait | grep . || echo 0)"
	echo "$(cat /sys/block/md0/md/reshape_position) $(cat /sys/block/md0/md/sync_max)" >died
	sync died size.txt grow.txt
	echo c >/proc/sysrq-trigger
}

# option NAME: of `moment`.
option() { sed -n "s/.*,$1=\([^,]*\),.*/\1/p" <<<"$moment"; }

has_come() { # PAST BELOW: one of them, the other is empty
	local position
	read -r position </sys/block/md0/md/reshape_position
	[ "$position" != none ] && [ "$position" -ge "${1:-0}" ] &&
		[ "$position" -lt "${2:-$((1 << 60))}" ]
}

# This guest has no other.
signal_mdadm() {
	local process
	for process in /proc/[0-9]*; do
		[ "$(cat "$process/comm" 2>/dev/null)" != mdadm ] || kill "-$1" "${process#/proc/}"
	done
}

# go_on NAME SEED DIRECTORY: md's own answer, on copies of the members; limit has the KiB that were
# there before.
go_on() {
	local name=$1 seed=$2 file=()
	cd "$3" || fail "$name: no directory"
	[ ! -e backup ] || file=(--backup-file=backup)
	attach m?.img
	# Debian 12's mdadm dies of a null pointer once md goes on, without a backup from then on.
	{ mdadm --assemble /dev/md0 "${file[@]}" "${LOOPS[@]}" || true; } >answer.txt 2>&1
	if ! grep -q '^md0 : active' /proc/mdstat; then
		mdadm --stop /dev/md0 >>answer.txt 2>&1
		detach
		return
	fi
	until_true is_over
	idle md0
	mdadm --grow /dev/md0 --array-size="$(cat limit)" >>answer.txt 2>&1
	"$PATTERN" check /dev/md0 "$seed" >verdict.txt 2>&1 && echo right >verdict.txt
	md --stop /dev/md0
	detach
}

is_over() {
	local position
	set_fast
	read -r position </sys/block/md0/md/reshape_position && [ "$position" = none ]
}

set_fast() {
	echo 400000 >/sys/block/md0/md/sync_speed_min
	echo 400000 >/sys/block/md0/md/sync_speed_max
}
