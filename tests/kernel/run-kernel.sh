#!/usr/bin/env bash
# Runs a bash script under a Linux that has ublk (6.12 or newer, as Debian packages it), in a guest
# under QEMU: the kernel of the machine itself may lack the driver, and is not touched. What stays
# is a copy of the kernel in target/kernel.
#
# usage: run-kernel.sh [-d SOCKET] [-m MEMORY] [-t SECONDS] [-v] SCRIPT
#   -d  a disk of the guest's, /dev/vda, by vhost-user; the socket is there already
#   -m  memory of the guest (default 1G)
#   -t  kill the guest after so long (default 300); the status is then 124
#   -v  the guest's kernel messages to stderr afterwards
#
# In the guest: this machine's / is the root, read-only, but for /run and /dev/shm, which are in the
# guest's memory; `modprobe` loads the guest's modules, and so does the kernel itself.
# Status: the script's own. 125: the guest could not run it.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 125
memory=1G limit=300 verbose= disk=()
while getopts d:m:t:v option; do
	case $option in
	d) disk=(-chardev "socket,id=disk,path=$OPTARG,reconnect=1"
		-device vhost-user-blk-pci,chardev=disk,num-queues=2) ;;
	m) memory=$OPTARG ;;
	t) limit=$OPTARG ;;
	v) verbose=1 ;;
	*) sed -n '6,10s/^# \{0,1\}//p' "$0" >&2; exit 125 ;;
	esac
done
shift $((OPTIND - 1))
refuse() { echo "run-kernel: $*" >&2; exit 125; }
script=$(realpath -- "${1-}") && [ -f "$script" ] || refuse "no script ${1-}"
PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod \
	xz:xz-utils apt-get:apt; do
	command -v "${tool%:*}" >/dev/null || refuse "no ${tool%:*} here; install package ${tool#*:}"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/run-kernel.XXXXXX") || refuse "no temporary directory"
guest=
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	trap - EXIT
	[ -z "$guest" ] || { kill -TERM "$guest" && wait "$guest"; } 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# --- the kernel
. tests/kernel/unpack.sh
. tests/kernel/accel.sh

# --- the guest's first steps: take this machine's root
mkdir -p "$work/tree"/{bin,dev,proc,sys,host,modules}
cp "$(command -v busybox)" "$work/tree/bin/"
number=100
modules_in_order virtio_pci 9pnet_virtio 9p | while read -r file; do
	number=$((number + 1))
	as_insmod_takes_it "$file" "$work/tree/modules/$number-$(basename "${file%.xz}")"
done
cat >"$work/tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod "$module" || $b echo "cannot load $module"; done
options=trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro
$b mount -t 9p -o $options host /host || $b poweroff -f
for part in dev proc sys; do $b mount --move /$part /host/$part; done
$b mkdir -p /host/dev/shm /host/dev/pts
for part in run dev/shm; do $b mount -t tmpfs tmpfs /host/$part; done
$b cp /guest /script /host/run
exec $b chroot /host /bin/bash /run/guest
INIT

# --- what the guest runs; its output has a serial line of its own
cp "$script" "$work/tree/script" || refuse "cannot read $script"
{
	printf 'cd %q\n' "$PWD"
	printf 'export PATH=/run/bin:%q HOME=/run TMPDIR=/run LC_ALL=C TERM=dumb\n' "$PATH"
	printf 'modprobe="%q -d %q"\n' "$(command -v modprobe)" "$kernel"
	cat <<'GUEST'
stty -F /dev/ttyS1 raw -echo
exec </dev/null >/dev/ttyS1 2>&1
ln -sf /proc/self/fd /dev/fd
ip link set lo up
mkdir /run/bin
printf '#!/bin/sh\nexec %s "$@"\n' "$modprobe" >/run/bin/modprobe
chmod +x /run/bin/modprobe
echo /run/bin/modprobe >/proc/sys/kernel/modprobe
bash /run/script
echo "run-kernel: status $?"
sync
exec busybox poweroff -f
GUEST
} >"$work/tree/guest"
chmod +x "$work/tree/init"
# As it is: to unpack takes an emulated processor longer than to read.
(cd "$work/tree" && find . | cpio --quiet -o -H newc) >"$work/initrd" || refuse "no initrd"

# --- by KVM, or in software, which is slow but works in every virtual machine. The guest's time
# goes by its instructions then (icount): on a machine that does much else it is slower, but
# nothing times out.
set_accel -accel tcg -icount shift=2
timeout -k 10 "$limit" qemu-system-x86_64 "${accel[@]}" -cpu max -m "$memory" \
	-object "memory-backend-memfd,id=memory,size=$memory,share=on" -machine memory-backend=memory \
	${disk[@]+"${disk[@]}"} \
	-nodefaults -display none -no-reboot -serial "file:$work/console" -serial stdio \
	-kernel "$vmlinuz" -initrd "$work/initrd" \
	-append "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check" \
	-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
	</dev/null >"$work/output" 2>"$work/stderr" &
guest=$!
wait "$guest"
status=$?
guest=
grep -v '^run-kernel: status ' "$work/output"
[ -z "$verbose" ] || cat "$work/console" >&2
[ "$status" != 124 ] || { echo "run-kernel: killed after $limit s" >&2; exit 124; }
told=$(sed -n 's/\r$//; s/^run-kernel: status //p' "$work/output" | tail -n 1)
[ -n "$told" ] && exit "$told"
tail -n 20 "$work/stderr" "$work/console" >&2
refuse "the guest ended without a word"
