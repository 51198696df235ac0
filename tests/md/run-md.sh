#!/usr/bin/env bash
# Runs a bash script under a real Linux md kernel, in seconds and without touching this machine's
# kernel: User-Mode Linux (Linux 6.1) and mdadm as Debian 12 packages them.
#
# usage: run-md.sh [-m MEMORY] [-t SECONDS] [-v] SCRIPT [IMAGE...]
#   -m  memory of the guest (default 512M)
#   -t  kill the guest after so long (default 300), and say what its processes wait for, if it has
#       had more than a minute; the status is then 124
#   -v  the guest's kernel messages to stderr afterwards
#
# In the guest: this machine's / is the root, writable with the caller's rights; the working
# directory is the caller's; D0 D1 ... and DEVS are the images as disks (16 at most; for more,
# attach files to loop devices); the functions of guest.sh are there; loop and md's modules are
# loaded. On its way out the guest stops its arrays.
# Status: the script's own. 125: the guest could not run it.
set -u
here=$(dirname "$(realpath "$0")")
memory=512M limit=300 verbose=
while getopts m:t:v option; do
	case $option in
	m) memory=$OPTARG ;;
	t) limit=$OPTARG ;;
	v) verbose=1 ;;
	*) sed -n '5,9s/^# \{0,1\}//p' "$0" >&2; exit 125 ;;
	esac
done
shift $((OPTIND - 1))
refuse() { echo "run-md: $*" >&2; exit 125; }
[ $# -gt 0 ] || refuse "no script given"
[ $# -le 17 ] || refuse "16 images at most; attach more to loop devices in the script"
script=$(realpath -- "$1") && [ -f "$script" ] || refuse "no script $1"
shift
PATH=$PATH:/usr/sbin:/sbin
for tool in linux.uml:user-mode-linux mdadm:mdadm busybox:busybox-static modprobe:kmod cc:gcc \
	taskset:util-linux; do
	command -v "${tool%:*}" >/dev/null || refuse "no ${tool%:*} here; install package ${tool#*:}"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/run-md.XXXXXX") || refuse "no temporary directory"
guest=
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	trap - EXIT
	# UML ends its helpers on a TERM, not on a KILL; `timeout` passes it on, and kills if it must.
	[ -z "$guest" ] || { kill -TERM "$guest" && wait "$guest"; } 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

mkdir -p "$work/tree/lib"
ln -s /usr/lib/uml/modules "$work/tree/lib/modules"
cc -O2 -shared -fPIC -o "$work/shim.so" "$here/amx-shim.c" || refuse "cc failed"

disks=() letters=abcdefghijklmnop
{
	echo '#!/bin/bash'
	printf 'WORK=%q SCRIPT=%q DIRECTORY=%q LIMIT=%q\n' "$work" "$script" "$PWD" "$limit"
	printf 'export PATH=%q HOME=%q TMPDIR=/run BASH_ENV=%q\n' "$PATH" "$HOME" "$here/guest.sh"
	echo 'export LC_ALL=C TERM=dumb MDADM_NO_UDEV=1 DEVS='
	for image; do
		image=$(realpath -- "$image") && [ -f "$image" ] || refuse "no image $image"
		number=${#disks[@]}
		disks+=("ubd$number=$image")
		echo "export D$number=/dev/ubd${letters:number:1}; DEVS+=\"\${DEVS:+ }\$D$number\""
	done
	cat <<'INIT'
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
# The script's output has a terminal of its own; kernel messages go elsewhere.
stty -F /dev/tty1 raw -echo
exec </dev/null >/dev/tty1 2>&1
ln -sf /proc/self/fd /dev/fd
# The kernel asks for modules by itself, and they are not where modprobe looks.
printf '#!/bin/sh\nexec %s -d %s/tree "$@"\n' "$(command -v modprobe)" "$WORK" >/run/modprobe
chmod +x /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
/run/modprobe -a loop md-mod linear raid0 raid1 raid10 raid456 || echo "run-md: no module of these"
# Debian makes new arrays read-only until the first write; md's own default is 0.
echo 0 >/sys/module/md_mod/parameters/start_ro
echo 4000000 >/proc/sys/dev/raid/speed_limit_min
echo 4000000 >/proc/sys/dev/raid/speed_limit_max
# What waits for what, should the guest be killed for being late.
(
	busybox sleep $((LIMIT > 60 ? LIMIT - 30 : LIMIT))
	cat /proc/mdstat
	for process in /proc/[0-9]*; do
		read -r _ command state _ <"$process/stat"
		[ "$state" != I ] || continue
		mapfile -d '' words <"$process/cmdline"
		echo "$command $state ${words[*]}"
		[[ $command != "(md"* && $state != D ]] || sed 's/^/    /' "$process/stack"
	done
) >"$WORK/late" 2>&1 &
cd "$DIRECTORY" && bash "$SCRIPT"
status=$?
cd /
mdadm --stop --scan >/dev/null 2>&1
sync
dmesg >"$WORK/dmesg"
echo $status >"$WORK/status"
exec busybox poweroff -f
INIT
} >"$work/init"
chmod +x "$work/init"

# A process in the guest is one of this machine's, stopped and continued at each of its system calls
# and page faults. On the processor of the kernel's own process that takes a fifth of the time.
read -ra stat </proc/self/stat
pinned=(taskset -c "${stat[38]}")
# The guest's memory is an unlinked file in TMPDIR.
LD_PRELOAD=$work/shim.so TMPDIR=$work timeout -k 5 "$limit" "${pinned[@]}" linux.uml \
	mem="$memory" uml_dir="$work/" umid=guest \
	root=/dev/root rootfstype=hostfs rootflags=/ rw init="$work/init" \
	con=null ssl=null con1=null,fd:1 quiet loglevel=1 ${disks[@]+"${disks[@]}"} \
	</dev/null 2>"$work/stderr" &
guest=$!
wait "$guest"
ended=$?
guest=
[ -z "$verbose" ] || cat "$work/dmesg" >&2
if [ -s "$work/status" ]; then
	exit "$(cat "$work/status")"
fi
if [ $ended = 124 ] || [ $ended = 137 ]; then
	cat "$work/late" >&2
	echo "run-md: killed after $limit s" >&2
	exit 124
fi
tail -n 20 "$work/stderr" >&2
refuse "the guest ended without a status (its own: $ended)"
