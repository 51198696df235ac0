# The half of a judge that needs md alone, for scripts that run-md.sh runs: what a crash left in an
# array's members, and its write journal if any, md assembles, replays and checks.

# replay NAME DIRECTORY MEMBER...: prints one line
#   NAME SHA256 HOW STATE degraded=N mismatches=N|-
# with the content as md gives it once nothing is left to replay or sync. HOW is `run`, or
# `force` where mdadm wanted that; a line `NAME refused` if md does not run it at all. In DIRECTORY,
# NAME.dmesg gets mdadm's lines and the kernel's; where STAMP is stamp.c's program, NAME.blocks gets
# what the blocks hold. The members change: whoever still needs them gives copies.
replay() {
	local name=$1 how=run lines said state degraded MISMATCHES=-
	cd "$2" || fail "$name: no directory"
	shift 2
	attach "$@"
	lines=$(dmesg | wc -l)
	if ! said=$(mdadm --assemble --run /dev/md0 "${LOOPS[@]}" 2>&1) || ! runs; then
		how=force
		mdadm --stop /dev/md0 2>/dev/null
		said+=$'\n'$(mdadm --assemble --run --force /dev/md0 "${LOOPS[@]}" 2>&1)
	fi
	if runs; then
		read -r state </sys/block/md0/md/array_state
		read -r degraded </sys/block/md0/md/degraded
		if [ "$state" != readonly ] && [ "$degraded" = 0 ]; then
			idle md0
			scrub md0
		fi
		[ -z "${STAMP-}" ] || "$STAMP" read /dev/md0 >"$name.blocks" || fail "$name: cannot read"
		echo "$name $(sha256sum </dev/md0 | cut -c-64) $how $state" \
			"degraded=$degraded mismatches=$MISMATCHES"
	else
		echo "$name refused"
	fi
	{
		printf 'mdadm: %s\n' "$said"
		dmesg | tail -n +$((lines + 1)) | sed 's/^\[ *[0-9.]*\] //'
	} | grep -v 'capacity change\|^loop\|operational as' >"$name.dmesg"
	mdadm --stop /dev/md0 2>/dev/null
	detach
}

runs() {
	local state
	read -r state 2>/dev/null </sys/block/md0/md/array_state &&
		case $state in clear | inactive) false ;; esac
}
