# The guest's side of mixed.rs: md makes the arrays of a box with disks of two sizes, and LVM2 puts
# volumes over two of them.

/run/modprobe dm-mod || fail "no dm-mod"
mkdir -p /run/lvm /run/lock/lvm /run/etc
export LVM_SYSTEM_DIR=/run/etc LVM_SUPPRESS_FD_WARNINGS=1
lvm_config='devices { use_devicesfile=0 md_component_detection=0 scan_lvs=0 }
	backup { backup=0 archive=0 } global { event_activation=0 use_lvmpolld=0 }
	activation { udev_sync=0 udev_rules=0 monitoring=0 verify_udev_operations=1 }'
volumes() { lvm "$@" --config "$lvm_config" -y >/run/said 2>&1 || fail "$* $(cat /run/said)"; }

# part DISK NUMBER: attaches a partition, one more of LOOPS. TABLE has its start and length in MiB.
part() {
	local start length
	read -r start length <<<"${TABLE[$2]}"
	LOOPS+=("$(losetup -f --show -o $((start << 20)) --sizelimit $((length << 20)) "$1")") ||
		fail "losetup $1 $2"
}
# array NUMBER PARTITION ARGUMENTS DISK...: /dev/mdNUMBER over this partition of the disks.
array() {
	local number=$1 partition=$2 arguments=$3 disk first=${#LOOPS[@]}
	shift 3
	for disk; do
		part "$disk" "$partition"
	done
	# shellcheck disable=SC2086 # arguments are several
	md --create "/dev/md$number" --run --assume-clean --homehost=box -n $# $arguments \
		"${LOOPS[@]:first}"
}

# box DIRECTORY TREE: the files of TREE in an ext4 and in a btrfs, each over both large arrays.
box() {
	cd "$1" || fail "no directory"
	LOOPS=()
	array 0 1 "-l1 -e0.90" d0.img d1.img d2.img d3.img
	array 2 3 "-l5 -c64 -e1.2 --name=box:2" d0.img d1.img d2.img d3.img
	array 3 4 "-l1 -e1.2 --name=box:3" d2.img d3.img
	mkfs.ext4 -q -L system /dev/md0 || fail "mkfs.ext4"
	volumes pvcreate /dev/md2 /dev/md3
	volumes vgcreate vg1 /dev/md2 /dev/md3
	volumes lvcreate -n volume_1 -L 80m vg1 /dev/md2
	volumes lvcreate -n volume_2 -L 120m vg1 /dev/md2
	volumes lvextend -L +24m vg1/volume_1 /dev/md3
	volumes lvextend -L +24m vg1/volume_2 /dev/md3
	mkfs.ext4 -q -b 4096 -d "$2" /dev/vg1/volume_1 || fail "mkfs.ext4"
	mkfs.btrfs -q --rootdir "$2" /dev/vg1/volume_2 || fail "mkfs.btrfs"
	sync
	volumes vgchange -an vg1
	idle md2
	md --stop /dev/md0 /dev/md2 /dev/md3
	detach
	echo "made, $SECONDS s"
}
