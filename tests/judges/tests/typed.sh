# What pages tell people to type and needs block devices, mounts or the kernel's ublk, in a guest
# that has them: four disks of the kernel's own, with labels. BRAID is the command.
set -eE -o pipefail
trap 'echo "FAILED: $BASH_COMMAND"; dmesg | tail -n 5; cat /run/braid/*.log | tail -n 5' ERR
export BRAID_CONFIG=/run/typed/arrays.toml
cp "$BRAID" /run/bin/
step() { echo "$((SECONDS))s: $*"; }
until_true() {
	local end=$((SECONDS + 120))
	until "$@"; do
		[ $SECONDS -lt $end ]
		sleep 0.05
	done
}
is_disk() { [ -b "$1" ]; }

for module in fuse loop ext4 ublk_drv; do modprobe $module; done
modprobe scsi_debug dev_size_mb=24 per_host_store=1 add_host=4
modprobe sd_mod
# nbdinfo writes to /tmp, wherever the repository lies; what the guest needs of that is there now.
mount -t tmpfs tmpfs /tmp
until_true is_disk /dev/sdd
mkdir /run/typed
cd /run/typed

# stored MEMBER...: an array `home` on them that agrees from the beginning.
stored() {
	braid create home --level 5 --raid-devices 3 --chunk 64K --assume-clean --force "$@" >/dev/null
}
killed() {
	local pid
	pid=$(braid status home --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
	kill -KILL "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}
