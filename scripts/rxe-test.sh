#!/usr/bin/env bash
# Runs the libfabric tests over verbs, on soft RoCE (rdma_rxe): in a guest under QEMU with the
# kernel that Debian packages, because few machines have an RDMA device, and not every kernel the
# driver. Nothing on this machine changes but a cache of the kernel in target/rxe.
#
# usage: rxe-test.sh [-t SECONDS] [-v] [ARGUMENT...]
#   -t  kill the guest after so long (default 900); the status is then 124
#   -v  the guest's kernel messages to stderr afterwards
#   ARGUMENT... goes to the tests instead of `ofi_verbs --ignored`
#
# In the guest, this machine's / is the root, read-only.
# Status: the tests' own. 125: the guest could not run them.
set -u
cd "$(dirname "$(realpath "$0")")/.."
limit=900 verbose=
while getopts t:v option; do
	case $option in
	t) limit=$OPTARG ;;
	v) verbose=1 ;;
	*) sed -n '6,9s/^# \{0,1\}//p' "$0" >&2; exit 125 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- ofi_verbs --ignored
refuse() { echo "rxe-test: $*" >&2; exit 125; }
PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod \
	rdma:iproute2 xz:xz-utils ibv_devices:ibverbs-utils; do
	command -v "${tool%:*}" >/dev/null || refuse "no ${tool%:*} here; install package ${tool#*:}"
done
compgen -G '/usr/lib/*/libibverbs/librxe-rdmav*.so' >/dev/null ||
	refuse "libibverbs has no driver for rxe; install package ibverbs-providers"

work=$(mktemp -d "${TMPDIR:-/tmp}/rxe-test.XXXXXX") || refuse "no temporary directory"
trap 'rm -rf "$work"' EXIT

# --- the kernel, unpacked, not installed
kernel=$PWD/target/rxe
if ! compgen -G "$kernel/boot/vmlinuz-*" >/dev/null; then
	package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)
	[ -n "$package" ] || refuse "apt knows no linux-image-amd64; run apt-get update"
	(cd "$work" && apt-get download "$package") >"$work/log" 2>&1 ||
		refuse "cannot download $package: $(tail -1 "$work/log")"
	rm -rf "$kernel" && mkdir -p "$kernel" && dpkg-deb -x "$work"/*.deb "$kernel" ||
		refuse "cannot unpack $package"
fi
image=$(echo "$kernel"/boot/vmlinuz-*)
release=${image##*/vmlinuz-}
[ -e "$kernel/lib/modules/$release/modules.dep" ] || depmod -b "$kernel" "$release" ||
	refuse "depmod failed"

# --- the tests
built=(cargo test -p braid-host --features "images,ofi" --lib --no-run)
"${built[@]}" --quiet || refuse "the tests do not build"
tests=$("${built[@]}" 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
[ -x "$tests" ] || refuse "no test program"

# --- the guest's first steps: load what it needs, and take this machine's root
mkdir -p "$work/tree"/{bin,dev,proc,sys,host,modules}
cp "$(command -v busybox)" "$work/tree/bin/"
number=100
for module in virtio_pci 9pnet_virtio 9p dummy crc32_generic ib_uverbs rdma_ucm \
	rdma_rxe; do
	modprobe -d "$kernel" -S "$release" --show-depends "$module" | sed -n 's/^insmod //p'
done | awk '!seen[$1]++ { print $1 }' | while read -r file; do
	number=$((number + 1)) to=$work/tree/modules/$number-$(basename "${file%.xz}")
	case $file in *.xz) xz -dc "$file" >"$to" ;; *) cp "$file" "$to" ;; esac
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
$b mkdir -p /host/dev/shm
for part in run dev/shm; do $b mount -t tmpfs tmpfs /host/$part; done
$b cp /guest /host/run/guest
exec $b chroot /host /bin/bash /run/guest
INIT

# --- what the guest runs; its output has a serial line of its own
{
	printf 'cd %q\n' "$PWD"
	printf 'export PATH=%q HOME=/run TMPDIR=/run LC_ALL=C RUST_BACKTRACE=0\n' "$PATH"
	cat <<'GUEST'
stty -F /dev/ttyS1 raw -echo
exec </dev/null >/dev/ttyS1 2>&1
ulimit -l unlimited
ip link set lo up
ip link add rdma0 type dummy && ip address add 10.99.0.1/24 dev rdma0 && ip link set rdma0 up
rdma link add rxe0 type rxe netdev rdma0
ibv_devices
export BRAID_TEST_ADDRESS=10.99.0.1
# The default needs longer queues than the driver has; we talk to one peer per endpoint.
export FI_UNIVERSE_SIZE=2
GUEST
	printf '%q ' "$tests" "$@" --test-threads 1
	echo
	cat <<'GUEST'
echo "rxe-test: status $?"
sync
exec busybox poweroff -f
GUEST
} >"$work/tree/guest"
chmod +x "$work/tree/init"
(cd "$work/tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initrd" ||
	refuse "no initrd"

# --- in software: it is slow, but works in every virtual machine
timeout -k 10 "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2G \
	-nodefaults -display none -no-reboot -serial "file:$work/console" -serial stdio \
	-kernel "$image" -initrd "$work/initrd" \
	-append "console=ttyS0 quiet loglevel=4 panic=-1" \
	-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
	</dev/null 2>"$work/stderr" | tee "$work/output"
status=${PIPESTATUS[0]}
[ -z "$verbose" ] || cat "$work/console" >&2
[ "$status" != 124 ] || { echo "rxe-test: killed after $limit s" >&2; exit 124; }
told=$(sed -n 's/\r$//; s/^rxe-test: status //p' "$work/output" | tail -1)
[ -n "$told" ] && exit "$told"
tail -n 20 "$work/stderr" "$work/console" >&2
refuse "the guest ended without a word"
