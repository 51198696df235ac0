# In a machine that has booted with an array `vault` that its fstab mounts over FUSE and a loop
# device, and with three storage nodes. An array `far` over these is made, and is there at the boot
# after that, for which AGAIN is set.

process() { systemctl show -p MainPID --value "$1"; }
# restarted UNIT TIMES: the manager has started it again so often, and it serves.
restarted() {
	[ "$(systemctl show -p NRestarts --value "$1")" = "$2" ] && systemctl is-active --quiet "$1"
}
# on MOUNTPOINT FILE: the loop device there shows this file. Sets `loop`.
on() {
	until_true mountpoint -q "$1"
	loop=$(basename "$(findmnt -no SOURCE "$1")")
	[ "$(cat "/sys/block/$loop/loop/backing_file")" = "$2" ] || fail "$1: $(findmnt "$1")"
}
stands() {
	mountpoint -q /data || fail "nothing is mounted"
	! said data.mount Unmount || fail "it was mounted anew"
	! said srv-array.mount Unmount || fail "the array was mounted anew"
	goes_on "$loop"
}
mailed() { grep -qs "Subject: $1 event" /run/mail; }
# scrubbed RESULT: how the check of `vault` has ended.
scrubbed() {
	[ "$(systemctl show -p Result --value braid-scrub@vault)" = "$1" ] &&
		! systemctl is-active --quiet braid-scrub@vault
}

on /data /srv/array/vault
until_true systemctl is-active --quiet multi-user.target
systemctl is-active --quiet braid@vault braid-node@{a,b,c} braid-monitor braid-scrub@vault.timer ||
	fail "not all of them run"
if [ -n "${AGAIN-}" ]; then
	on /far /srv/far/far
	tested vault 0 || fail "vault is not healthy"
	tested far 0 || fail "far is not healthy"
	sha256sum --quiet -c /data/sums || fail "not what was written"
	exit 0
fi

step "its process is killed under load"
load /data
goes_on "$loop"
kill -KILL "$(process braid@vault)"
until_true restarted braid@vault 1
stands

step "its process hangs"
kill -STOP "$(process braid@vault)"

step "meanwhile an array is made of the nodes"
braid create far -l 5 -n 3 --size 24M node://127.0.0.1:700{1..3}/far >/dev/null || fail "create"
cat /more/arrays.toml >>/etc/braid/arrays.toml
cat /more/fstab >>/etc/fstab
systemctl daemon-reload
systemctl start braid@far || fail "far is not started"
mkfs.ext4 -q /srv/far/far || fail "no file system on far"
systemctl start far.mount || fail "far is not mounted"
dd if=/dev/urandom of=/far/before bs=1M count=4 conv=fsync status=none || fail "cannot write"

step "a node is killed"
kill -KILL "$(process braid-node@b)"
dd if=/dev/urandom of=/far/after bs=1M count=4 conv=fsync status=none || fail "cannot write"
until_true restarted braid-node@b 1
until_true tested far 0

step "the watchdog has ended the process that hangs"
until_true restarted braid@vault 2
said braid@vault "Watchdog timeout" || fail "something else has ended it"
stands
end_of_load

step "a check finds what does not fit"
dd if=/dev/urandom of=/dev/disk/by-id/virtio-m2 bs=64K count=1 seek=640 oflag=direct status=none ||
	fail "cannot write to a member"
systemctl start braid-scrub@vault
until_true scrubbed exit-code
until_true mailed MismatchFound
said braid-monitor "MismatchFound vault" || fail "it does not stand in the journal"

step "and nothing after a repair"
braid repair vault --wait >/dev/null
systemctl start braid-scrub@vault
until_true scrubbed success
[ "$(systemctl show -p ExecMainStatus --value braid-scrub@vault)" = 0 ] || fail "not checked"
systemctl is-active --quiet braid-monitor || fail "the monitor has ended"

dd if=/dev/urandom of=/data/content bs=1M count=4 conv=fsync status=none || fail "cannot write"
sha256sum /data/content /far/before /far/after >/data/sums || fail "cannot read"
sync
step "done"
