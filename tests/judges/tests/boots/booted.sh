# What scripts share that run in a machine that has booted.

fail() {
	echo "FAIL $*"
	systemctl --failed --no-pager
	journalctl -b --no-pager | grep -i -e braid -e ublk -e data | tail -n 40
	tail -n 20 /run/*.txt
	exit 1
}
until_true() {
	local end=$((SECONDS + 300))
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "waited in vain for: $*"
		sleep 0.1
	done
}
step() { echo "$((SECONDS))s: $*"; }
# tested NAME STATUS: what `detail --test` says of an array.
tested() {
	braid detail "$1" --test >/dev/null
	[ $? = "$2" ]
}
# said UNIT WORDS: in the journal.
said() { journalctl -b --no-pager -u "$1" | grep -qF -- "$2"; }

# load FILE-SYSTEM: fio writes there and verifies, in the background.
load() {
	fio --name=load --directory="$1" --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite \
		--bs=16k --size=16M --rate=1m --verify=crc32c --verify_backlog=32 --verify_fatal=1 \
		--time_based --runtime=600 --output=/run/fio.txt </dev/null >/dev/null &
	load=$!
}
loaded() { kill -0 "$load" || fail "fio has ended"; }
written() { awk '{ print $7 }' "/sys/block/$1/stat"; }
# goes_on DEVICE: what writes there is answered.
goes_on() {
	local before
	before=$(written "$1")
	until_true eval "[ \"\$(written $1)\" -gt $((before + 64)) ]"
	loaded
}
end_of_load() {
	kill -INT "$load"
	wait "$load"
	grep -q "err= 0" /run/fio.txt || fail "fio"
	! grep -q "verify:" /run/fio.txt || fail "fio"
}
