#!/usr/bin/env bash
# The main job, shown once: an array that a real Linux md kernel made, with a file system on it, is
# served by Braid, loses a disk under load, is rebuilt, checked, and goes back to md.
# usage: demo.sh [IMAGE]     IMAGE: an ext4 file system image of yours, instead of a made one
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
project=$PWD
image=${1:-}
[ -z "$image" ] || image=$(realpath -- "$image")

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-demo.XXXXXX")
export BRAID_RUN_DIR=$work/run
loop='' mounted='' load=''
clean_up() {
	status=$?
	trap - EXIT
	[ -z "$load" ] || kill "$load" 2>/dev/null || true
	[ -z "$mounted" ] || umount "$work/fs" 2>/dev/null || true
	[ -z "$loop" ] || losetup --detach "$loop" 2>/dev/null || true
	braid stop demo >/dev/null 2>&1 || true
	rm -rf "$work"
	[ "$status" = 0 ] || echo "demo: stopped early, status $status" >&2
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
run() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; "$@"; }
braid() { "$project/target/checked/braid" "$@"; }
md() { tests/md/run-md.sh -t 100 "$@"; }

say "Building braid"
# By the profile of the tests, which then have other people's code built. Without what is not run
# here: libfabric, whose bindings are made by eighteen crates. Rescue, which is not run either, and
# the command line are built in a third of the time without optimisation. Members in images stay, as
# crates of the tests would have other features without them.
cargo build --profile checked --quiet -p braid-cli -p braid-bench --no-default-features \
	--features braid-cli/images --config profile.checked.package.braid-rescue.opt-level=0 \
	--config profile.checked.package.braid-cli.opt-level=0

size=128M
if [ -n "$image" ]; then
	# Two members' worth of data, and room for what md keeps for itself.
	size=$(($(stat -c %s "$image") / 2 / 1048576 + 40))M
fi
for i in 0 1 2 3; do truncate -s "$size" "$work/m$i.img"; done
mkdir "$work/mnt" "$work/fs"

say "A Linux md kernel makes a RAID-5 of three disks and puts files on it"
cat >"$work/make.sh" <<GUEST
set -e
mdadm --create /dev/md0 --run --assume-clean --metadata=1.2 --homehost=linux --name=demo \
	--level=5 --raid-devices=3 --chunk=64 \$DEVS 2>/dev/null
if [ -n "$image" ]; then
	dd if="$image" of=/dev/md0 bs=1M status=none conv=fsync
else
	mkfs.ext4 -q /dev/md0
fi
mkdir -p /run/fs && mount /dev/md0 /run/fs
if [ -z "$image" ]; then
	mkdir /run/fs/files
	# Real files, up to 90 MB of them.
	(cd /usr/bin && find . -maxdepth 1 -type f -size +16k -printf '%s %f\n' | sort -k 2 |
		awk '{ sum += \$1 } sum < 90e6 { print \$2 }' | tar -cf - -T -) | tar -xf - -C /run/fs/files
fi
(cd /run/fs && find . -xdev -type f -size +0 -print0 | sort -z | head -z -n 2000 |
	xargs -0 sha256sum) >"$work/files.sha256"
umount /run/fs
scrub md0
cat /proc/mdstat
md --stop /dev/md0
GUEST
members=("$work/m0.img" "$work/m1.img" "$work/m2.img")
md "$work/make.sh" "${members[@]}"
echo "$(wc -l <"$work/files.sha256") files, checksums noted"

say "Braid looks at the members, and serves the array"
run braid assemble --explain "${members[@]}"
run braid assemble demo "${members[@]}" --export "fuse:$work/mnt"
run braid status demo --mdstat

verify() {
	(cd "$work/fs" && sha256sum --quiet --check "$work/files.sha256")
	echo "all files as md wrote them"
}

if [ "$(id -u)" = 0 ] && [ -e /dev/loop-control ]; then
	say "Mounted, like any disk"
	loop=$(losetup --find --show --direct-io=on "$work/mnt/demo")
	mount "$loop" "$work/fs" && mounted=yes
	run df -h --output=source,size,used,target "$work/fs"
	verify
	fio --name=load --directory="$work/fs" --size=32M --rw=randwrite --bs=4k --direct=1 \
		--ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 --loops=5 \
		--verify_state_save=0 \
		--output="$work/fio.txt" &
	load=$!
else
	say "Not root: no mount; reading and writing the file itself"
	fio --name=load --filename="$work/mnt/demo" --readonly --rw=randread --bs=64k --direct=1 \
		--size=64M --ioengine=libaio --iodepth=4 --loops=4 --output="$work/fio.txt" &
	load=$!
fi

for _ in $(seq 100); do # until the load writes
	[ -z "$mounted" ] || ! braid status demo | grep -q active || break
	sleep 0.1
done
say "Under load, a disk fails; another takes its place"
run braid fail demo "$work/m1.img"
run braid status demo
run braid remove demo "$work/m1.img"
run braid limit demo --max 25M
run braid add demo "$work/m3.img"
run braid status demo --watch
if wait "$load"; then load=''; else load=''; cat "$work/fio.txt"; exit 1; fi
if [ -n "$mounted" ]; then
	echo "the load ran through: every block verified"
	verify
else
	echo "the load ran through without an error"
fi

say "Is the redundancy right?"
run braid check demo --wait

say "Back to md"
if [ -n "$mounted" ]; then
	umount "$work/fs"
	mounted=''
	losetup --detach "$loop"
	loop=''
fi
run braid stop demo
cat >"$work/back.sh" <<GUEST
set -e
mdadm --assemble --run /dev/md0 \$DEVS 2>&1 | sed 's/^/md: /'
scrub md0
echo "md: \$MISMATCHES mismatches"
[ "\$MISMATCHES" = 0 ]
e2fsck -fn /dev/md0 >/run/fsck 2>&1 || { cat /run/fsck; exit 1; }
mkdir -p /run/fs && mount /dev/md0 /run/fs
(cd /run/fs && sha256sum --quiet --check "$work/files.sha256")
echo "md: file system clean, all files as they were"
umount /run/fs
cat /proc/mdstat
md --stop /dev/md0
GUEST
md "$work/back.sh" "$work/m0.img" "$work/m3.img" "$work/m2.img"

scripts/demo-cluster.sh

say "Done. Nothing is left behind"
