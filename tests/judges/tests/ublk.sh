# In a guest whose kernel has ublk: block devices of arrays, under fio, ext4 and kill -9. BRAID is
# the command. Members are files in the guest's memory, which outlive the process that serves them.

fail() { echo "FAIL $*"; tail -n 5 /run/braid/*.log 2>/dev/null; dmesg | tail -n 5; exit 1; }
until_true() {
	local end=$((SECONDS + 60))
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "waited in vain for: $*"
		sleep 0.05
	done
}
# refused WORDS COMMAND...: it fails, and says so.
refused() {
	local words=$1 said
	shift
	said=$("$@" 2>&1) && fail "$*: not refused: $said"
	[[ $said == *$words* ]] || fail "$*: says \"$said\", not \"$words\""
}
braid() { "$BRAID" "$@" || fail "braid $*"; }
queue() { cat "/sys/block/$1/queue/$2"; }
is() { [ "$2" = "$3" ] || fail "$1 is $2, not $3"; }
writes() { awk '{ print $5 }' "/sys/block/$1/stat"; }
has_written() { [ "$(writes "$1")" -ge "$2" ]; }
step() { echo "$((SECONDS))s: $*"; }
served_by() { pgrep -f "^$BRAID .*$1" | head -n 1; }

mkdir /run/t /run/t/mnt
cd /run/t || fail "no directory"
for number in 0 1 2 3; do truncate -s 48M "m$number"; done
members=(m0 m1 m2)

step "without the driver"
refused "modprobe ublk_drv" "$BRAID" create early --level 1 -n 2 mem:32M mem:32M --export ublk
modprobe ublk_drv || fail "no ublk_drv"

step "a new array"
braid create a --level 5 -n 3 --chunk 64K --assume-clean "${members[@]}" >/dev/null
braid assemble a "${members[@]}" --export ublk
[ -b /dev/ublkb0 ] || fail "no device"
braid status a | grep -q ublk:0 || fail "status: $("$BRAID" status a)"
braid status a --json | grep -q '"ublk:0"' || fail "status: $("$BRAID" status a --json)"
is chunk "$(queue ublkb0 minimum_io_size)" 65536
is stripe "$(queue ublkb0 optimal_io_size)" 131072
is cache "$(queue ublkb0 write_cache) $(queue ublkb0 fua)" "write back 1"
[ "$(queue ublkb0 discard_max_bytes)" -gt 0 ] || fail "no discard"
[ "$(queue ublkb0 write_zeroes_max_bytes)" -gt 0 ] || fail "no zeroes"
bytes=$(blockdev --getsize64 /dev/ublkb0)

step "fio"
# Of all sizes, longer ones than the array takes at once among them.
fio --name=verify --filename=/dev/ublkb0 --direct=1 --ioengine=libaio --iodepth=32 \
	--rw=randwrite --bsrange=4k-2m --size=32M --verify=crc32c --randseed=1 \
	--output=/run/t/fio.txt || fail "fio: $(tail -n 20 /run/t/fio.txt)"

step "zeroes and discards"
fallocate -z -o 1M -l 3M /dev/ublkb0 || fail "cannot write zeroes"
cmp -n $((3 << 20)) -i $((1 << 20)):0 /dev/ublkb0 /dev/zero || fail "not zeroes"
blkdiscard -o 8M -l 8M /dev/ublkb0 || fail "cannot discard"

step "ext4"
mkfs.ext4 -q -F /dev/ublkb0 && mount /dev/ublkb0 mnt || fail "no file system"
head -c 8M /dev/urandom >content
for number in 1 2 3; do cp content "mnt/$number"; done
rm mnt/2 && fstrim mnt || fail "fstrim"
refused "mounted on /run/t/mnt" "$BRAID" stop a
umount mnt && e2fsck -f -n /dev/ublkb0 >/dev/null || fail "e2fsck"

step "seen from no mount of ours"
unshare --mount --propagation private sh -c 'mount /dev/ublkb0 mnt && exec sleep 600' &
until_true grep -qs ublkb0 "/proc/$!/mounts"
refused "in use" "$BRAID" stop a
kill $!
wait

step "kill under load"
mount /dev/ublkb0 mnt || fail "cannot be mounted again"
for number in 1 3; do cmp content "mnt/$number" || fail "$number has changed"; done
fio --name=load --filename=mnt/load --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite \
	--bs=16k --size=20M --rate=1m --verify=crc32c --randseed=2 --output=/run/t/load.txt &
load=$!
for round in 1 2 3; do
	until_true has_written ublkb0 $(($(writes ublkb0) + 40))
	kill -KILL "$(served_by a)" || fail "there is nobody"
	[ $round != 2 ] || refused "ublk:0" "$BRAID" assemble a "${members[@]}" --export ublk:3
	braid assemble a "${members[@]}" --export "$([ $round = 3 ] && echo ublk:0 || echo ublk)"
	step "round $round: writes $(writes ublkb0)"
	kill -0 $load || fail "the load ended: $(tail -n 20 /run/t/load.txt)"
	is devices "$(echo /dev/ublkb*)" /dev/ublkb0
done
step "upgrade under load"
for round in 1 2 3; do
	until_true has_written ublkb0 $(($(writes ublkb0) + 40))
	step "$(braid upgrade a)"
	kill -0 $load || fail "the load ended: $(tail -n 20 /run/t/load.txt)"
	is devices "$(echo /dev/ublkb*)" /dev/ublkb0
done
wait $load || fail "fio: $(tail -n 20 /run/t/load.txt)"
for number in 1 3; do cmp content "mnt/$number" || fail "$number has changed"; done
umount mnt && e2fsck -f -n /dev/ublkb0 >/dev/null || fail "e2fsck after kills"

step "upgrade with more requests than the device has tags"
fio --name=deep --filename=/dev/ublkb0 --direct=1 --ioengine=libaio --iodepth=256 --rw=randread \
	--bs=4k --time_based --runtime=600 --output=/run/t/deep.txt &
deep=$!
reads() { awk '{ print $1 }' "/sys/block/$1/stat"; }
has_read() { [ "$(reads "$1")" -ge "$2" ]; }
until_true has_read ublkb0 $(($(reads ublkb0) + 1000))
said=$(braid upgrade a) || fail "$said"
step "$said"
until_true has_read ublkb0 $(($(reads ublkb0) + 1000))
kill $deep
wait $deep

step "clean stop"
is size "$(blockdev --getsize64 /dev/ublkb0)" "$bytes"
braid stop a
is devices "$(echo /dev/ublk*)" /dev/ublk-control
braid assemble a "${members[@]}" --readonly --export ublk:5
is read-only "$(blockdev --getro /dev/ublkb5)" 1
mount -o ro,noload /dev/ublkb5 mnt && cmp content mnt/3 || fail "what was written is not there"
refused "somebody else's" "$BRAID" create b --level 1 -n 2 mem:32M mem:32M --export ublk:5
step "stop by force"
"$BRAID" stop --force a || fail "not stopped"
until_true [ ! -e /dev/ublkb5 ]
umount mnt
is devices "$(echo /dev/ublk*)" /dev/ublk-control
step "done"
