# Functions for scripts that run-md.sh runs; bash reads this file before the script.

# nap: a moment, without a program that would have to be started.
exec {NAP}<> <(:)
nap() { read -rt 0.03 -u "$NAP" || :; }

# fail WHAT...: one line that a test looks for, and the end of the script.
fail() { echo "FAIL $*"; exit 1; }

# patiently COMMAND...: again while md answers EBUSY, for 60 s at most. It does so for a moment
# while it looks for what is to be synced, also when it says that it is idle, or while it closes
# devices. Of devices that another array still has mdadm may say that they are not suitable, or that
# it does not zero them, and no more.
patiently() {
	local end=$((SECONDS + 60)) said
	until said=$("$@" 2>&1); do
		case $said in
		*[Bb]usy* | *"exclusive access"* | *"not suitable for any"* | *"not zeroing"*) ;;
		*) fail "$*: $(tail -n 3 <<<"$said") $(dmesg | tail -n 3)" ;;
		esac
		[ $SECONDS -lt $end ] || fail "$*: busy for 60 s: $said; $(tail -n 8 /proc/mdstat)"
		nap
	done
}

# md ARGUMENT...: mdadm, quiet unless it fails.
md() { patiently mdadm "$@"; }

# set_md ARRAY ATTRIBUTE VALUE: as sysfs takes it.
set_md() { patiently write_to "/sys/block/$1/md/$2" "$3"; }
write_to() { echo "$2" >"$1"; }

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
		nap
	done
}

# idle ARRAY: wait until nothing syncs, nor is about to: md says that it is idle until its thread
# has looked for what there is to do.
idle() {
	[ ! -r "/sys/block/$1/md/sync_action" ] || until_true is_idle "/sys/block/$1/md"
}
is_idle() {
	local action completed from degraded
	read -r action <"$1/sync_action" && read -r completed <"$1/sync_completed" &&
		read -r from <"$1/resync_start" && read -r degraded <"$1/degraded" &&
		[ "$action $completed $from" = "idle none none" ] &&
		{ [ "$degraded" = 0 ] || ! grep -qs spare "$1"/dev-*/state; }
}

# scrub ARRAY: a check; sets MISMATCHES (sectors).
scrub() {
	local action
	idle "$1"
	set_md "$1" sync_action check
	idle "$1"
	read -r action <"/sys/block/$1/md/last_sync_action"
	[ "$action" = check ] || fail "$1: not checked, but $action"
	read -r MISMATCHES <"/sys/block/$1/md/mismatch_cnt"
}
