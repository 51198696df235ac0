# In a guest whose disk is an array over vhost-user: fio and ext4, while the process that serves it
# is killed and comes back.

fail() { echo "FAIL $*"; dmesg | tail -n 5; exit 1; }
step() { echo "$((SECONDS))s: $*"; }
queue() { cat "/sys/block/vda/queue/$1"; }
is() { [ "$2" = "$3" ] || fail "$1 is $2, not $3"; }

modprobe virtio_blk || fail "no virtio_blk"
[ -b /dev/vda ] || fail "no disk"
is chunk "$(queue minimum_io_size)" 65536
is stripe "$(queue optimal_io_size)" 131072
is cache "$(queue write_cache)" "write back"
is name "$(cat /sys/block/vda/serial)" guest
[ "$(queue discard_max_bytes)" -gt 0 ] || fail "no discard"
[ "$(queue write_zeroes_max_bytes)" -gt 0 ] || fail "no zeroes"

mkdir /run/t /run/t/mnt
cd /run/t || fail "no directory"
for round in 1 2 3 4 5 6 7 8; do
	step "fio, round $round"
	fio --name=verify --filename=/dev/vda --direct=1 --ioengine=libaio --iodepth=32 \
		--rw=randwrite --bsrange=4k-1m --size=32M --verify=crc32c --randseed=$round \
		--output=fio.txt || fail "fio: $(tail -n 20 fio.txt)"
done

step "zeroes and discards"
fallocate -z -o 1M -l 3M /dev/vda || fail "cannot write zeroes"
cmp -n $((3 << 20)) -i $((1 << 20)):0 /dev/vda /dev/zero || fail "not zeroes"
blkdiscard -o 8M -l 8M /dev/vda || fail "cannot discard"

step "ext4"
mkfs.ext4 -q /dev/vda || fail "mkfs.ext4"
mount /dev/vda mnt || fail "mount"
fio --name=files --directory=mnt --nrfiles=8 --size=16M --rw=randwrite --bs=16k --fsync=8 \
	--ioengine=libaio --iodepth=8 --verify=crc32c --output=fio.txt ||
	fail "fio on ext4: $(tail -n 20 fio.txt)"
umount mnt || fail "umount"
e2fsck -fn /dev/vda || fail "e2fsck"
step "done"
