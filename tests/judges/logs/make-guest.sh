# The guest's side of make.sh: md writes to an array until make.sh ends the guest, or stops it.

# create KIND DEVICES LEVEL LAYOUT EXTRA: on $D0 ..., a journal is the disk after the last member.
# MEMBERS are then devices that delay writes to their data; superblocks and logs they do not delay.
create() {
	local kind=$1 devices=$2 level=$3 layout=$4 extra=$5 options=()
	read -ra MEMBERS <<<"$DEVS"
	JOURNAL=
	case $kind in
	ppl) options=(--consistency-policy=ppl) ;;
	single) options=(--data-offset=1M) ;;
	journal)
		JOURNAL=${MEMBERS[devices]}
		MEMBERS=("${MEMBERS[@]:0:devices}")
		options=(--write-journal "$JOURNAL")
		;;
	esac
	[ "$layout" = - ] || options+=(--layout="$layout")
	# shellcheck disable=SC2086 # words
	md --create /dev/md0 --run --assume-clean --homehost=judge --level="$level" --chunk=64 \
		--raid-devices="$devices" "${options[@]}" $extra "${MEMBERS[@]}"
	md --stop /dev/md0
	if [ "$kind" = single ]; then
		# Without room for 1 MiB, and none is left before a bad-block log.
		assemble --update=no-bbl
		md --stop /dev/md0
		assemble --update=ppl
		md --stop /dev/md0
	fi
	/run/modprobe dm-delay || fail "no dm-delay"
	gate
	assemble
}

assemble() { md --assemble "$@" /dev/md0 "${MEMBERS[@]}" $JOURNAL; }

field() { mdadm --examine "$1" | sed -n "s/^ *$2 : \([0-9]*\).*/\1/p"; }

# Each member gets a device of the same size in front.
gate() {
	local number=0 member
	GATED=() OFFSETS=() SIZES=()
	for member in "${MEMBERS[@]}"; do
		OFFSETS+=("$(field "$member" 'Data Offset')")
		[ -n "${OFFSETS[number]}" ] || OFFSETS[number]=0
		SIZES+=("$(field "$member" 'Avail Dev Size')")
		table $number "$member" 0 | dmsetup create "gate$number" || fail "dmsetup create"
		GATED+=("/dev/dm-$number")
		number=$((number + 1))
	done
	BEHIND=("${MEMBERS[@]}")
	MEMBERS=("${GATED[@]}")
}

# table NUMBER DEVICE MILLISECONDS: only the middle is delayed, and flushes are not.
table() {
	local offset=${OFFSETS[$1]} end=$((OFFSETS[$1] + SIZES[$1])) all
	all=$(blockdev --getsz "$2")
	[ "$offset" = 0 ] || echo "0 $offset linear $2 0"
	echo "$offset $((end - offset)) delay $2 $offset 0 $2 $offset $3 $2 $offset 0"
	[ $end = "$all" ] || echo "$end $((all - end)) linear $2 $end"
}

# delay MILLISECONDS...: of each member in turn, from now on.
delay() {
	local number=0 milliseconds
	for milliseconds; do
		table $number "${BEHIND[number]}" "$milliseconds" | dmsetup reload "gate$number" &&
			dmsetup resume "gate$number" || fail "dmsetup reload"
		number=$((number + 1))
	done
}

# The rest of what the script of an array calls.
fill() { "$STAMP" fill /dev/md0 "$@" || fail fill; }
writes() { "$STAMP" write /dev/md0 "$@" || fail writes; }
write_back() { set_md md0 journal_mode write-back; }
stop() { md --stop /dev/md0; }

# The journal fails, and members go on to know that: it stays behind.
lose_journal() {
	md /dev/md0 --fail "$JOURNAL"
	md /dev/md0 --remove "$JOURNAL"
}

leave() {
	md /dev/md0 --fail "${MEMBERS[$1]}"
	idle md0
	md /dev/md0 --remove "${MEMBERS[$1]}"
}
