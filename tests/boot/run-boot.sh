#!/usr/bin/env bash
# Boots this machine's files under systemd, in a guest under QEMU, and runs a bash script there when
# the boot is over. The machine itself is not touched: the guest writes into its own memory.
#
# usage: run-boot.sh [-t SECONDS] [-v] TREE SCRIPT [IMAGE...]
#   TREE  files that the guest has besides, as they lie below /
#   IMAGE a disk of the guest's; its file name is its serial number
#   -t    kill the guest after so long (default 240); the status is then 124
#   -v    what the guest's kernel and systemd say to stderr afterwards
#
# The script's output comes out on stdout; after it the guest is shut down in order.
# Status: the script's own, or 1 where it did not come to its end. 125: the guest could not run it.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 125
limit=240 verbose=
while getopts t:v option; do
	case $option in
	t) limit=$OPTARG ;;
	v) verbose=1 ;;
	*) sed -n '5,10s/^# \{0,1\}//p' "$0" >&2; exit 125 ;;
	esac
done
shift $((OPTIND - 1))
refuse() { echo "run-boot: $*" >&2; exit 125; }
tree=$(realpath -- "${1-}") && [ -d "$tree" ] || refuse "no directory ${1-}"
script=$(realpath -- "${2-}") && [ -f "$script" ] || refuse "no script ${2-}"
shift 2
PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod \
	xz:xz-utils apt-get:apt udevadm:udev systemctl:systemd; do
	command -v "${tool%:*}" >/dev/null || refuse "no ${tool%:*} here; install package ${tool#*:}"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/run-boot.XXXXXX") || refuse "no temporary directory"
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
. tests/kernel/unpack.sh

disks=()
for image; do
	image=$(realpath -- "$image") && [ -f "$image" ] || refuse "no image $image"
	name=$(basename "$image")
	disks+=(-drive "file=$image,format=raw,if=none,id=$name,cache=unsafe"
		-device "virtio-blk-pci,drive=$name,serial=$name")
done

# --- the guest's first steps: this machine's files below what it writes itself
mkdir -p "$work/initrd"/{bin,dev,proc,sys,lower,upper,new,modules} "$work/initrd/tree"
cp "$(command -v busybox)" "$work/initrd/bin/"
cp -a "$tree/." "$work/initrd/tree"
cp "$script" "$work/initrd/script" || refuse "cannot read $script"
number=100
modules_in_order virtio_pci 9pnet_virtio 9p overlay | while read -r file; do
	number=$((number + 1))
	as_insmod_takes_it "$file" "$work/initrd/modules/$number-$(basename "${file%.xz}")"
done
{
	printf '#!/bin/busybox sh\nkernel=%q release=%q\n' "$kernel" "$release"
	cat <<'INIT'
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod "$module" || $b echo "cannot load $module"; done
options=trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro
$b mount -t 9p -o $options host /lower || $b poweroff -f
$b mount -t tmpfs upper /upper
$b mkdir /upper/u /upper/w
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w root /new ||
	$b poweroff -f
# Not by a link: the kernel may lie in what is hidden below.
$b mkdir -p "/new/usr/lib/modules/$release"
$b mount -o bind "/lower$kernel/lib/modules/$release" "/new/usr/lib/modules/$release" ||
	$b poweroff -f
# What the machine starts is not the guest's business.
$b rm -rf /new/etc/systemd/system /new/etc/fstab /new/etc/mdadm /new/etc/braid
$b mkdir -p /new/etc/systemd/system/multi-user.target.wants
# What lies beyond the network is mounted at boot, as Debian enables it.
$b ln -s /lib/systemd/system/remote-fs.target /new/etc/systemd/system/multi-user.target.wants/
# Hidden, not removed: who looks for what to remove waits for any mount there that does not answer.
for part in run tmp; do $b mount -t tmpfs -o mode=755 $part /new/$part || $b poweroff -f; done
$b chmod 1777 /new/tmp
# Each program that starts takes a second of an emulated processor: what no array needs is left out.
for unit in systemd-timesyncd systemd-firstboot systemd-update-utmp e2scrub_reap \
	systemd-journal-flush systemd-networkd systemd-logind systemd-binfmt systemd-random-seed \
	systemd-user-sessions systemd-update-utmp-runlevel console-getty systemd-tmpfiles-setup \
	systemd-sysusers systemd-sysctl systemd-remount-fs modprobe@configfs modprobe@dm_mod dbus; do
	$b ln -s /dev/null "/new/etc/systemd/system/$unit.service"
done
for unit in dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	sys-kernel-config.mount proc-sys-fs-binfmt_misc.automount dbus.socket \
	systemd-ask-password-console.path systemd-ask-password-wall.path systemd-tmpfiles-clean.timer
do
	$b ln -s /dev/null "/new/etc/systemd/system/$unit"
done
for generator in /new/usr/lib/systemd/system-generators/*; do
	[ "${generator##*/}" = systemd-fstab-generator ] || $b rm "$generator"
done
$b cp -a /tree/. /new/
$b cp /script /new/run-boot-script
$b cat >/new/run-boot <<'RUN'
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1
bash /run-boot-script
echo "run-boot: status $?"
# Not by way of logind, which does not run here.
systemctl --no-block --job-mode=replace-irreversibly start poweroff.target
RUN
$b cat >/new/etc/systemd/system/run-boot.service <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /run-boot
TimeoutStartSec=infinity
UNIT
$b mkdir -p /new/etc/systemd/system/run-boot.target.wants
$b cat >/new/etc/systemd/system/run-boot.target <<'UNIT'
[Unit]
Requires=multi-user.target
Wants=run-boot.service
AllowIsolate=yes
UNIT
$b ln -s run-boot.target /new/etc/systemd/system/default.target
for part in dev proc sys; do $b mount --move /$part /new/$part; done
exec $b switch_root /new /lib/systemd/systemd
INIT
} >"$work/initrd/init"
chmod +x "$work/initrd/init"
# As it is: to unpack takes an emulated processor longer than to read.
(cd "$work/initrd" && find . | cpio --quiet -o -H newc) >"$work/initrd.cpio" || refuse "no initrd"

# Now and then an emulated cmpxchg16b leaves flags that are none, and the kernel dies of them.
timeout -k 10 "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-cx16 -smp 1 -m 1G \
	-nodefaults -display none -no-reboot -serial "file:$work/console" -serial stdio \
	-kernel "$vmlinuz" -initrd "$work/initrd.cpio" ${disks[@]+"${disks[@]}"} \
	-append "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check systemd.show_status=1 \
TERM=dumb SYSTEMD_COLORS=0 systemd.log_target=journal-or-kmsg \
systemd.default_timeout_start_sec=300" \
	-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
	</dev/null >"$work/output" 2>"$work/stderr" &
guest=$!
wait "$guest"
status=$?
guest=
grep -v '^run-boot: status ' "$work/output"
[ -z "$verbose" ] || cat "$work/console" >&2
[ "$status" != 124 ] || { echo "run-boot: killed after $limit s" >&2; exit 124; }
told=$(sed -n 's/\r$//; s/^run-boot: status //p' "$work/output" | tail -n 1)
# What systemd could not do on its way out is a failure as well.
grep -a FAILED "$work/console"
if [ -n "$told" ]; then
	! grep -qa FAILED "$work/console" || exit 1
	exit "$told"
fi
tail -n 40 "$work/stderr" "$work/console" >&2
exit 1
