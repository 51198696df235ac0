# In a machine that has booted: a file system of its fstab lies on the array `home`. WITHOUT is set
# where a member is missing from the beginning.

# With `nofail` the boot does not wait for it.
until_true mountpoint -q /data
[ "$(findmnt -no SOURCE /data)" = /dev/ublkb0 ] || fail "something else: $(findmnt /data)"
systemctl is-active --quiet braid@home braid.target || fail "the service does not run"
systemctl show -p StatusText braid@home | grep -q "serves home" || fail "no status"
systemctl is-active --quiet braid-scrub@home.timer || fail "no timer"
! grep -qs ^md /proc/mdstat || fail "the kernel has taken the members: $(cat /proc/mdstat)"
typed() { [ "$(lsblk -no FSTYPE /dev/disk/by-id/virtio-m0)" = braid_raid_member ]; }
until_true typed

if [ -n "${WITHOUT-}" ]; then
	tested home 1 || fail "not degraded"
	said braid@home "members are missing after 40 s: /dev/disk/by-id/virtio-m2" || fail "said softly"
	[ "$(cat /data/file)" = one ] || fail "the file is not there"
	sha256sum --quiet -c /data/sums || fail "not what was written"
	exit 0
fi
! said braid@home "members are missing" || fail "all were there"
tested home 0 || fail "not healthy"
echo one >/data/file
dd if=/dev/urandom of=/data/before bs=1M count=4 conv=fsync status=none || fail "cannot write"
disk=$(basename "$(readlink -f /dev/disk/by-id/virtio-m2)")
echo 1 >"/sys/block/$disk/device/../remove" || fail "cannot pull $disk"
dd if=/dev/urandom of=/data/after bs=1M count=4 conv=fsync status=none || fail "cannot write"
until_true tested home 1
sha256sum /data/before /data/after >/data/sums || fail "cannot read"
systemctl is-active --quiet braid@home || fail "the service has ended"
