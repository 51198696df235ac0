# Run by make.sh under a kernel with device-mapper: the volume group of the tests on D0, D1 and D2.
for module in dm-mod dm-mirror dm-raid dm-snapshot dm-thin-pool dm-cache dm-cache-smq; do
	/run/modprobe "$module" || fail "no $module"
done
mkdir -p /run/lvm /run/lock/lvm /run/etc
export LVM_SYSTEM_DIR=/run/etc LVM_SUPPRESS_FD_WARNINGS=1
config='devices { use_devicesfile=0 md_component_detection=0 scan_lvs=0 }
	backup { backup=0 archive=0 } global { event_activation=0 use_lvmpolld=0
	thin_check_executable="" cache_check_executable="" }
	activation { udev_sync=0 udev_rules=0 monitoring=0 verify_udev_operations=1 }'
volume() { lvm "$@" --config "$config" -y >/run/said 2>&1 || fail "$* $(cat /run/said)"; }

# stamp NAME NUMBER: at every 32 KiB of a volume, the volume's number and the offset, 8 bytes each.
stamp() {
	local bytes offset
	bytes=$(blockdev --getsize64 "/dev/vg/$1") || fail "blockdev $1"
	python3 - "/dev/vg/$1" "$2" "$bytes" <<-'P' || fail "stamp $1"
		import sys
		path, number, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
		with open(path, "r+b") as volume:
		    for offset in range(0, size, 32768):
		        volume.seek(offset)
		        volume.write(number.to_bytes(8, "little") + offset.to_bytes(8, "little"))
	P
}

volume pvcreate --dataalignment 1m "$D0" "$D2"
volume pvcreate --metadatacopies 2 "$D1"
volume vgcreate -s 512k vg "$D0" "$D1" "$D2"
volume lvcreate -n linear -L 3m vg "$D1"
volume lvcreate -n striped -i 3 -I 64k -L 6m vg
volume lvcreate -n pair -i 2 -I 32k -L 2m vg "$D0" "$D2"
# In pieces, over two volumes.
volume lvextend -L +2m vg/linear "$D0"
volume lvextend -L +1536k vg/linear "$D2"
volume lvcreate --type mirror -m 1 --mirrorlog core -n mirrored -L 1m vg
volume lvcreate --type raid1 -m 1 -n twice -L 1m vg
volume lvcreate --type thin-pool -n pool -L 2m vg
volume lvcreate --thin -n thin -V 8m vg/pool
volume lvcreate -n slow -L 1m vg
volume lvcreate --type cache-pool -n fast -L 8m vg
volume lvconvert --type cache --cachepool vg/fast vg/slow
volume lvcreate -n origin -L 1m vg "$D1"
stamp linear 1
stamp striped 2
stamp pair 3
stamp origin 4
volume lvcreate --snapshot -n frozen -L 1m vg/origin
# Often enough that the text has gone around in its area of 1 MiB.
for ((turn = 0; turn < 120; turn++)); do
	volume vgchange --addtag "turn$turn" vg
done
for ((turn = 0; turn < 118; turn++)); do
	volume vgchange --deltag "turn$turn" vg
done
lvm lvs -a --segments -o +devices,seg_start vg --config "$config"
lvm vgs -o +seqno vg --config "$config"
volume vgchange -an vg
