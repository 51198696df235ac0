# The guest's side of grown_places.rs, behind reshape.sh, which has `put`, `cut` and `finish`.

# place FUNCTION NAME DIRECTORY ARGUMENT...: does this there, by itself: what it says goes to
# verdict.txt, `right` when all was well, and the next one is done all the same.
place() {
	local doing=$1 name=$2
	cd "$3" || fail "$name: no directory"
	attach m?.img
	(
		"$doing" "$name" "${@:4}"
		echo right
	) >verdict.txt 2>&1
	! grep -q '^md0 ' /proc/mdstat || md --stop /dev/md0
	detach
	echo "$name: $(tail -n 1 verdict.txt), $SECONDS s"
}

# begins NAME SEED DEVICES PERCENT FAULTY HOW CREATE_ARGUMENTS GROW_ARGUMENTS: data begin to move.
#   FAULTY  number of the member that fails on the way; - for none
#   HOW     stop, or cut: as a power cut leaves it
begins() {
	local name=$1 seed=$2 devices=$3 percent=$4 faulty=$5 how=$6 create=$7 grow=$8
	# shellcheck disable=SC2086 # arguments are words
	md --create /dev/md0 --run --assume-clean --homehost=judge --name="$name" -e1.2 \
		-n "$devices" $create "${LOOPS[@]:0:devices}"
	idle md0
	put /dev/md0 "$seed"
	blockdev --getsize64 /dev/md0 >size.txt
	local new=("${LOOPS[@]:devices}")
	[ ${#new[@]} = 0 ] || md /dev/md0 --add "${new[@]}"
	set_md md0 sync_speed_max 4000
	set_md md0 sync_speed_min 4000
	# shellcheck disable=SC2086 # arguments are words
	mdadm --grow /dev/md0 $grow >grow.txt 2>&1 &
	until_true has_begun
	[ "$faulty" = - ] || {
		until_true has_moved $((percent / 2))
		mdadm /dev/md0 --fail "${LOOPS[faulty]}" || fail "$name: not failed"
	}
	until_true has_moved "$percent"
	case $how in
	cut) cut ;;
	*) md --stop /dev/md0 ;;
	esac
}

has_begun() {
	local position
	read -r position </sys/block/md0/md/reshape_position && [ "$position" != none ]
}

has_moved() { # PERCENT
	local done total
	has_begun || return 0
	read -r done _ total </sys/block/md0/md/sync_completed
	[ "$done" != none ] && [ $((done * 100)) -ge $(($1 * total)) ]
}

# ends NAME CONTENT KIB FAULTY: md moves the rest, and all of the size of before is right.
ends() {
	local name=$1 content=$2 kib=$3 faulty=$4 devices=("${LOOPS[@]}")
	[ "$faulty" = - ] || unset "devices[$faulty]"
	# What was written on the way to death may have left the superblocks active.
	mdadm --assemble --run /dev/md0 "${devices[@]}" ||
		mdadm --assemble --run --force /dev/md0 "${devices[@]}" || fail "$name: md takes it not"
	until_true is_over
	idle md0
	mdadm --grow /dev/md0 --array-size="$kib" || fail "$name: no size of $kib KiB"
	"$PATTERN" check /dev/md0 "$content" || fail "$name: md finds other content"
	[ "$faulty" != - ] || {
		scrub md0
		[ "$MISMATCHES" = 0 ] || fail "$name: md finds $MISMATCHES mismatches"
	}
}

is_over() { ! has_begun; }
