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

# idle ARRAY: wait until nothing syncs.
idle() {
	local state=/sys/block/$1/md/sync_action
	[ -r "$state" ] || return 0
	until [ "$(cat "$state")" = idle ] && [ "$(cat "${state%action}completed")" = none ]; do
		sleep 0.05
	done
}

# scrub ARRAY: a check; sets MISMATCHES (sectors).
scrub() {
	idle "$1"
	echo check >"/sys/block/$1/md/sync_action" || fail "check $1"
	idle "$1"
	MISMATCHES=$(cat "/sys/block/$1/md/mismatch_cnt")
}
