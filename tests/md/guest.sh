# Functions for scripts that run-md.sh runs; bash reads this file before the script.

# fail WHAT...: one line that a test looks for, and the end of the script.
fail() { echo "FAIL $*"; exit 1; }

# md ARGUMENT...: mdadm, quiet unless it fails.
md() {
	mdadm "$@" >/run/mdadm.log 2>&1 ||
		fail "mdadm $*: $(tail -n 3 /run/mdadm.log) $(dmesg | tail -n 3)"
}

# attach FILE...: each as a loop device; sets LOOPS.
attach() {
	local file
	LOOPS=()
	for file; do
		LOOPS+=("$(losetup -f --show "$file")") || fail "losetup $file"
	done
}

# detach: what attach attached.
detach() { losetup -d "${LOOPS[@]}" || fail "losetup -d ${LOOPS[*]}"; }

# until_true COMMAND...: poll for 60 s at most.
until_true() {
	local end=$((SECONDS + 60))
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "waited in vain for: $*; $(tail -n 8 /proc/mdstat)"
		sleep 0.03
	done
}

# idle ARRAY: wait until nothing syncs.
idle() {
	[ ! -r "/sys/block/$1/md/sync_action" ] || until_true is_idle "/sys/block/$1/md"
}
is_idle() {
	local action completed
	read -r action <"$1/sync_action" && read -r completed <"$1/sync_completed" &&
		[ "$action $completed" = "idle none" ]
}

# scrub ARRAY: a check; sets MISMATCHES (sectors).
scrub() {
	idle "$1"
	echo check >"/sys/block/$1/md/sync_action" || fail "check $1"
	idle "$1"
	read -r MISMATCHES <"/sys/block/$1/md/mismatch_cnt"
}
