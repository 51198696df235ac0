# In a machine that has booted with the package installed and two lines of arrays.toml: a member is
# pulled under load, everybody is told, a spare is taken, and the package is upgraded meanwhile. In
# the end another member is pulled. SECOND is set at the boot after that, without both: the package
# is removed then.

now() { date +%s%N; }
# took WHAT SINCE: how long it took.
took() { echo "$1 after $((($(now) - $2) / 1000000)) ms"; }

# With `nofail` the boot does not wait for it.
until_true mountpoint -q /data
[ "$(findmnt -no SOURCE /data)" = /dev/ublkb0 ] || fail "something else: $(findmnt /data)"
systemctl is-active --quiet braid@home braid.target || fail "the service does not run"
systemctl show -p StatusText braid@home | grep -q "serves home" || fail "no status"
systemctl is-active --quiet braid-scrub@home.timer || fail "no timer"
! grep -qs ^md /proc/mdstat || fail "the kernel has taken the members: $(cat /proc/mdstat)"
typed() { [ "$(lsblk -no FSTYPE /dev/disk/by-id/virtio-m0)" = braid_raid_member ]; }
until_true typed
# pull DISK: it is gone at once. Sets `disk` and `pulled`.
pull() {
	disk=$(basename "$(readlink -f "/dev/disk/by-id/virtio-$1")")
	pulled=$(now)
	echo 1 >"/sys/block/$disk/device/../remove" || fail "cannot pull $disk"
}
write() { dd if=/dev/urandom of="$1" bs=1M count=4 conv=fsync status=none || fail "cannot write"; }

# Of no other packages: to read of the machine's hundreds takes minutes here.
mkdir -p /run/dpkg/{info,updates}
: >/run/dpkg/status
packages() {
	local how=(--admindir=/run/dpkg --no-triggers --force-depends --force-confold)
	dpkg "${how[@]}" "$@" </dev/null >/run/dpkg.txt 2>&1 || fail "dpkg: $(cat /run/dpkg.txt)"
}
install_it() { packages -i /deb/braid.deb; }

if [ -n "${SECOND-}" ]; then
	tested home 1 || fail "not degraded"
	said braid@home "members are missing after 40 s: /dev/disk/by-id/virtio-m1" || fail "said softly"
	sha256sum --quiet -c /data/sums || fail "not what was written"
	step "a stop lasts"
	umount /data || fail "cannot unmount"
	systemctl stop braid@home
	stopped() { udevadm settle && [ "$(systemctl is-active braid@home)" = inactive ]; }
	stopped || fail "started again"
	systemctl start braid@home
	systemctl daemon-reload
	braid stop home
	until_true stopped

	step "the package is removed"
	# The machine's files may forbid that services are started and stopped.
	[ ! -x /usr/sbin/policy-rc.d ] || mount --bind /bin/true /usr/sbin/policy-rc.d
	install_it
	packages --purge braid
	left=$(systemctl list-units --state=active,activating,failed --plain --no-legend 'braid*')
	[ -z "$left" ] || fail "units are left: $left"
	stopped || fail "started again"
	exit 0
fi
! said braid@home "members are missing" || fail "all were there"
tested home 0 || fail "not healthy"
until_true systemctl is-active --quiet braid-monitor

step "somebody listens"
cat >/run/hook.py <<'PYTHON'
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said = self.rfile.read(int(self.headers['Content-Length']))
        with open('/run/hook', 'ab') as heard: heard.write(said + b'\n')
        self.send_response(204)
        self.end_headers()
    def log_message(self, *words): pass
http.server.HTTPServer(('127.0.0.1', 8081), Hook).serve_forever()
PYTHON
/usr/bin/python3 /run/hook.py &
: >/run/hook
metrics() { busybox wget -qO- http://127.0.0.1:9101/metrics 2>/dev/null; }
page() { busybox wget -qO- http://127.0.0.1:8082/api/state 2>/dev/null; }
until_true eval 'metrics | grep -q "^braid_array_members{array=\"home\",state=\"active\"} 3$"'
until_true eval 'page | grep -q m2'

step "load"
load /data
goes_on ublkb0

step "a member is pulled"
pull m2
until_true grep -qs "Subject: Fail event" /run/mail
took "mail" "$pulled"
until_true grep -q '"Fail"' /run/hook
took "webhook" "$pulled"
until_true eval 'metrics | grep -q "state=\"failed\"} 1$"'
took "metrics" "$pulled"
until_true eval 'page | grep -qi faulty'
took "page" "$pulled"
! said braid@home "has become smaller" || fail "a disk that was pulled is told as a smaller one"
(sleep 2; printf q) | TERM=xterm script -qc "stty rows 40 cols 120; braid top" /run/top >/dev/null
grep -qa "$disk" /run/top || fail "top: $(tail -c 2000 /run/top)"
loaded

step "the package is upgraded meanwhile"
echo "UPGRADE_ARRAYS=yes" >/etc/default/braid
process=$(systemctl show -p MainPID --value braid@home)
exe() { readlink "/proc/$process/exe"; }
# The first time it finds no version of itself, and leaves all alone.
install_it
[ "$(exe)" = "/usr/bin/braid (deleted)" ] || fail "replaced too early: $(exe)"
goes_on ublkb0
install_it
grep "requests waited" /run/dpkg.txt || fail "not upgraded"
[ "$(exe)" = /usr/bin/braid ] || fail "the old program serves: $(exe)"
systemctl is-active --quiet braid@home || fail "the service has ended"
[ "$(systemctl show -p MainPID --value braid@home)" = "$process" ] || fail "another process"
goes_on ublkb0

step "a spare is taken"
until_true tested home 0
until_true grep -q SpareActive /run/hook
braid status home
goes_on ublkb0
end_of_load
write /data/whole

step "a member is pulled, and there is no other spare"
pull m1
write /data/degraded
until_true tested home 1
sha256sum /data/whole /data/degraded >/data/sums || fail "cannot read"
systemctl is-active --quiet braid@home || fail "the service has ended"
sync
step "done"
