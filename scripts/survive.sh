#!/usr/bin/env bash
# Kills and stops nodes and the client of an array over five nodes, again and again, while fio
# writes and verifies on ext4 over it. After each round what was flushed is there, `braid check`
# finds no mismatch, and e2fsck nothing to mend. As root; plain processes over loopback.
# POLICY: the array's consistency policy.
# DRAWN=N: of so many kinds, drawn.
# usage: [POLICY=journal] survive.sh [ROUNDS [KIND...]]   (without: 19 rounds, of all kinds)
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.."
braid=${BRAID:-$PWD/target/release/braid}
fuzz=$(dirname "$braid")/braid-fuzz

# Kind of round, the signal (CUT: what connects them breaks; KNOCK: strangers without the key come
# to them; BACK: killed, and the store goes back to a copy; TEAR: killed while whole stripes are
# written), who gets it, and how it must go on.
#   on       the same client goes on by itself, and its load sees no error
#   again    all nodes that died are started again, and the array is assembled again
#   without  one node is not, and it is assembled without; blocks are written anew, and then the
#            node is back (:return), or a new one takes its place (:add), or another one dies and
#            both come back (:loss)
kinds='
client-kill          KILL client      again
client-node-kill     KILL client+1    again
client-nodes-kill    KILL client+2    again
everything-kill      KILL client+5    again
client-stop          STOP client      on
node-pause           STOP nodes:1     on
everything-stop      STOP client+5    on
node-kill            KILL nodes:1     on
nodes-kill           KILL nodes:2     on
node-stop            STOP nodes:1:long on
nodes-stop           STOP nodes:2:long on
nodes-away           STOP nodes:3:away on
pair-cut             CUT  nodes:2     on
rolling-restart      TERM each        on
strangers            KNOCK nodes:5    on
store-rollback       BACK nodes:1     on
torn-return          TEAR client+5    without:return
torn-add             TEAR client+5    without:add
torn-loss            TEAR client+5    without:loss
'
# Seconds that a process is stopped: well below and well above what a node may be silent; and while
# the array waits for nodes that it cannot do without.
short=2 long=15 away=9
# What the file system has of the array's 192 MiB.
beside=184M
# Seconds after which nothing marks any more what was written once.
marked=10
# Seconds within which it must go on.
patience=${PATIENCE:-60}
# Seconds for which strangers come.
knocking=${KNOCK_SECONDS:-10}
# Seconds that a load may be held up by nodes of which one at a time is started again.
node_timeout=5

verify_by='--verify=crc32c --verify_state_save=0'

rounds=${1:-19}
[ $# = 0 ] || shift
# skip REASON: with CI set that is a failure.
skip() { echo "SKIPPED survive: $*"; [ -z "${CI-}" ]; exit; }
for tool in fio mke2fs e2fsck ss; do
	command -v "$tool" >/dev/null || skip "there is no $tool"
done
if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
	skip "mounting needs root, FUSE and loop devices"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-survive.XXXXXX")
export BRAID_RUN_DIR=$work/run BRAID_KEY=$work/key
array=$work/export/survive mnt=$work/mnt
mkdir "$work/export" "$mnt"
nodes=() members=() client='' load='' ledger=''
clean_up() {
	status=$?
	trap - EXIT
	[ -z "$load$ledger" ] || kill $load $ledger 2>/dev/null
	for pid in $client "${nodes[@]}"; do kill -KILL "$pid"; kill -CONT "$pid"; done 2>/dev/null
	mountpoint -q "$mnt" && umount -l "$mnt"
	mountpoint -q "$work/export" && umount -l "$work/export"
	wait
	if [ "$status" = 0 ]; then rm -rf "$work"; else echo "what is left of it: $work" >&2; fi
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
	echo "FAILED round $round, $kind: $*" >&2
	timeout 5 "$braid" status survive >&2
	tail -n 5 "$work/client.log" >&2
	exit 1
}
now() { date +%s%N; }
seconds_since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", (b - a) / 1e9 }'; }
# within SECONDS COMMAND...: tries until it succeeds.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# start N: the node, at the address it had before.
start() {
	local at=127.0.0.1:0
	[ ! -s "$work/n$1.at" ] || at=$(cat "$work/n$1.at")
	: >"$work/n$1.out"
	"$braid" node --listen "$at" --store "$work/n$1" --foreground \
		>"$work/n$1.out" 2>>"$work/n$1.log" &
	nodes[$1]=$!
	disown
	within 10 test -s "$work/n$1.out" || fail "node $1 does not start: $(tail -1 "$work/n$1.log")"
	head -n 1 "$work/n$1.out" >"$work/n$1.at"
	members[$1]=node://$(cat "$work/n$1.at")
}
assemble_once() {
	: >"$work/client.log"
	"$braid" assemble survive --foreground --export "fuse:$work/export" "${members[@]}" \
		>"$work/client.log" 2>&1 &
	client=$!
	disown
	# It ends with a reason, or serves.
	while kill -0 "$client" 2>/dev/null; do
		! grep -q 'is served' "$work/client.log" || return 0
		sleep 0.05
	done
	umount -l "$work/export" 2>/dev/null
	return 1
}
assemble() {
	within "$patience" assemble_once || fail "not assembled: $(tail -1 "$work/client.log")"
}

# Passes of fio, each of which writes, flushes, and reads back what it wrote.
begin_load() {
	rm -f "$work/load.failed"
	(
		while fio --thread --name=busy --directory="$mnt" --size=8M --rw=randwrite --bsrange=4k-64k \
			--fsync=16 $verify_by --verify_fatal=1 --end_fsync=1 --allow_mounted_write=1 \
			>"$work/load" 2>&1; do :; done
		cp "$work/load" "$work/load.failed"
	) &
	load=$!
	# Lines that are flushed one by one, each noted elsewhere once that is done.
	(
		line=0 last=$(now) longest=0
		while echo "$line" >>"$mnt/ledger" && sync -d "$mnt/ledger"; do
			at=$(now)
			[ "$((at - last))" -lt "$longest" ] || longest=$((at - last))
			last=$at
			printf '%s\n' "$at" "$line" "$longest" >"$work/noted.new"
			mv "$work/noted.new" "$work/noted"
			line=$((line + 1))
			sleep 0.02
		done
	) 2>/dev/null &
	ledger=$!
}
end_load() {
	local pid
	for pid in $ledger $load; do
		pkill -P "$pid"
		kill "$pid"
	done 2>/dev/null
	wait $ledger $load 2>/dev/null
	load='' ledger=''
}
# The longest that a line has taken, and the pause before it: seconds.
longest_pause() { awk 'NR == 3 { printf "%.1f", $1 / 1e9 }' "$work/noted"; }
# noted_since TIME: has a line been flushed that was begun after it?
noted_since() {
	[ -s "$work/noted" ] && [ "$(head -n 1 "$work/noted")" -gt "$1" ]
}

# What was flushed is there.
verify() {
	local last
	fio --name=settled --directory="$mnt" --size=8M --rw=write --bs=64k $verify_by \
		--verify_only --verify_fatal=1 >"$work/verify" 2>&1 ||
		fail "what was flushed before is not there: $(grep -m1 -i 'verify' "$work/verify")"
	last=$(sed -n 2p "$work/noted")
	head -n "$((last + 1))" "$mnt/ledger" | cmp -s - <(seq 0 "$last") ||
		fail "line $last was flushed, and the ledger does not hold all up to it"
	[ ! -e "$work/everywhere" ] || cmp -s "$work/everywhere" "$mnt/everywhere" ||
		fail "what was written everywhere is not there"
}
in_sync() {
	"$braid" status survive >"$work/status" 2>&1 || return 1
	grep -q '\[UUUUU\]' "$work/status" && ! grep -qE 'resync|recover|rebuild' "$work/status"
}
# Everything is there and at rest: the array agrees with itself.
agrees() {
	within "$patience" in_sync || fail "not in sync again: $(cat "$work/status")"
	timeout "$patience" "$braid" check survive --wait --json >"$work/check" 2>&1 ||
		fail "check: $(tail -n 3 "$work/check")"
	within "$patience" in_sync || fail "the check does not end"
	grep -q '"mismatch[a-z_]*": *[1-9]' "$work/check" && fail "check: $(cat "$work/check")"
}
make_file_system() {
	mke2fs -q -F -t ext4 "$array" "$beside" || fail "mke2fs"
	mount -o loop "$array" "$mnt" || fail "the file system cannot be mounted"
}
# The file system agrees with itself too.
reckon() {
	within 10 umount "$mnt" 2>/dev/null || fail "the file system cannot be unmounted"
	agrees
	e2fsck -fn "$array" >"$work/fsck" 2>&1 || fail "e2fsck: $(grep -v ^Pass "$work/fsck")"
	mount -o loop "$array" "$mnt" || fail "the file system cannot be mounted"
	verify
}

# Who is struck: leaves pids in ${victims[@]} and nodes' numbers in ${struck[@]}.
choose() {
	local who=$1 count=0 n
	victims=() struck=()
	case $who in
	client*) victims+=("$client") count=${who#client} count=${count#+} ;;
	nodes:*) count=${who#nodes:} count=${count%%:*} ;;
	esac
	for n in $(shuf -i 0-4 -n "${count:-0}"); do
		struck+=("$n")
		victims+=("${nodes[$n]}")
	done
}
# One node after the other, each once the one before is in sync again.
roll() {
	local n
	for n in $(shuf -i 0-4); do
		struck_at=$(now)
		kill -TERM "${nodes[$n]}"
		within 10 gone "${nodes[$n]}" || fail "node $n does not end"
		start "$n"
		within "$patience" noted_since "$struck_at" || fail "does not go on without node $n"
		within "$patience" in_sync || fail "not in sync again: $(cat "$work/status")"
	done
}
# cut_pair PID PID: breaks what connects two processes of this machine.
cut_pair() {
	local from to cut=0
	while read -r from to; do
		ss -K -tn src "$from" dst "$to" >/dev/null && cut=1
	done < <(ss -Htnp state established | awk -v a="pid=$1," -v b="pid=$2," '
		index($0, a) { of_a[$3 " " $4] = 1 }
		index($0, b) { of_b[$4 " " $3] = 1 }
		END { for (ends in of_a) if (ends in of_b) print ends }')
	[ "$cut" = 1 ] || fail "no connection between $* to break"
}
# What strangers send is not answered, and the load does not notice.
knock() {
	local ports
	ports=$(cat "$work"/n?.at | paste -sd ,)
	"$fuzz" --strangers "$ports" --seconds "$knocking" >"$work/knock" 2>&1 ||
		fail "strangers: $(tail -n 1 "$work/knock")"
	for pid in "${victims[@]}"; do kill -0 "$pid" 2>/dev/null || fail "a node died of them"; done
}
# 2,000 blocks, in the places where they were before.
write_everywhere() {
	head -c 8M /dev/urandom >"$work/everywhere"
	dd if="$work/everywhere" of="$mnt/everywhere" bs=64k conv=notrunc,fsync status=none ||
		fail "a write everywhere failed"
}
is_stopped() { grep -q '^State:.T' "/proc/$1/status"; }
# events N: the event count that the node has stored.
events() { "$braid" examine "${members[$1]}/survive" | awk '$1 == "Events" { print $3 }'; }
# age_copy N: a copy of the node's store, from before everything was written again. Fails when the
# superblock has changed since, as it does where the array is idle for a moment: that tells.
age_copy() {
	local pid=${nodes[$1]} before
	rm -rf "$work/copy"
	write_everywhere
	before=$(events "$1")
	kill -STOP "$pid"
	within 5 is_stopped "$pid" || fail "node $1 does not stop"
	cp -a --sparse=always --reflink=auto "$work/n$1" "$work/copy" || fail "no copy of node $1"
	kill -CONT "$pid"
	within "$patience" in_sync || fail "not in sync again: $(cat "$work/status")"
	write_everywhere
	sleep "$marked"
	[ "$(events "$1")" = "$before" ]
}
# roll_back N: kills the node and puts an old copy in the place of its store.
roll_back() {
	# Beside the file system, which holds writes up while it flushes.
	fio --thread --name=steady --filename="$array" --offset="$beside" --size=4M --rw=randwrite \
		--bs=4k --ioengine=libaio --iodepth=8 --direct=1 --time_based --runtime=600 \
		>"$work/steady" 2>&1 &
	load+=" $!"
	# The round is the harder for it, but good without.
	age_copy "$1" || age_copy "$1" || age_copy "$1" || echo "the superblock of the copy is older"
	struck_at=$(now)
	kill -KILL "${nodes[$1]}"
	within 10 gone "${nodes[$1]}" || fail "${nodes[$1]} lives on"
	rm -r "$work/n$1" && mv "$work/copy" "$work/n$1" || fail "node $1 keeps its store"
}
# tear PID...: kills these while whole stripes are written where the file system was.
tear() {
	end_load
	within 10 umount "$mnt" 2>/dev/null || fail "the file system cannot be unmounted"
	fio --thread --name=stripes --filename="$array" --rw=write --bs=1M --ioengine=libaio \
		--iodepth=8 --direct=1 --time_based --runtime=600 >"$work/stripes" 2>&1 &
	load=$!
	sleep "0.$((RANDOM % 10))"
	kill -KILL "$@"
	for pid; do within 10 gone "$pid" || fail "$pid lives on"; done
}
# Everything is written anew and flushed, and read.
write_anew() {
	head -c "$(stat -c %s "$array")" /dev/urandom >"$work/anew"
	dd if="$work/anew" of="$array" oflag=direct bs=1M conv=notrunc,fsync status=none ||
		fail "a write of everything anew failed"
	is_anew "written anew"
}
is_anew() {
	dd if="$array" iflag=direct bs=1M status=none | cmp -s - "$work/anew" ||
		fail "$1: not what was written anew"
}
strike() {
	local signal=$1 who=$2 pause=$short
	struck_at=$(now)
	[ "$signal" != CUT ] || { cut_pair "${victims[@]}" && return; }
	[ "$signal" != KNOCK ] || { knock && return; }
	[ "$signal" != BACK ] || { roll_back "${struck[0]}" && return; }
	[ "$signal" != TEAR ] || { tear "${victims[@]}" && return; }
	[ "$who" != each ] || { roll && return; }
	kill "-$signal" "${victims[@]}"
	if [ "$signal" = KILL ]; then
		for pid in "${victims[@]}"; do within 10 gone "$pid" || fail "$pid lives on"; done
		return
	fi
	[ "$who" = "${who%:long}" ] || pause=$long
	[ "$who" = "${who%:away}" ] || pause=$away
	# Who is given up is gone on without; who is waited for goes on with the rest.
	[ "$pause" != "$long" ] || within "$long" noted_since "$struck_at"
	sleep "$pause"
	kill -CONT "${victims[@]}"
}
goes_on() {
	within "$patience" noted_since "$struck_at" || fail "does not go on"
	for n in "${struck[@]}"; do
		kill -0 "${nodes[$n]}" 2>/dev/null || start "$n"
	done
	within "$patience" in_sync || fail "not in sync again: $(cat "$work/status")"
	[ ! -e "$work/load.failed" ] || fail "fio: $(grep -m1 -E 'err|verify' "$work/load.failed")"
	kill -0 "$ledger" 2>/dev/null || fail "a write of the ledger failed"
	took=$(longest_pause)
	[ "$1" != each ] || awk -v took="$took" -v most="$node_timeout" 'BEGIN { exit (took > most) }' ||
		fail "held up for $took s"
	end_load
}
# again N...: starts these nodes, and the array.
again() {
	local n
	end_load
	mountpoint -q "$mnt" && { umount "$mnt" 2>/dev/null || umount -l "$mnt"; }
	umount -l "$work/export" 2>/dev/null
	began=$(now)
	for n; do start "$n"; done
	assemble
}
mount_again() {
	mount -o loop "$array" "$mnt" || fail "the file system cannot be mounted"
	echo >"$mnt/first" && sync -d "$mnt/first" || fail "the first write fails"
	took=$(seconds_since "$began")
	verify
}
# without return|add|loss
without() {
	local away=${struck[0]} other=${struck[1]}
	again "${struck[@]:1}"
	write_anew
	took=$(seconds_since "$began")
	case $1 in
	return) start "$away" ;;
	add)
		rm -r "$work/n$away"
		start "$away"
		"$braid" add survive "${members[$away]}" >"$work/add" 2>&1 || fail "$(cat "$work/add")"
		;;
	loss)
		kill -KILL "${nodes[$other]}"
		within 10 gone "${nodes[$other]}" || fail "node $other lives on"
		write_anew
		start "$away"
		start "$other"
		;;
	esac
	agrees
	is_anew "all nodes are back"
	make_file_system
}

one_round() {
	local signal=$1 who=$2 how=$3 began
	rm -f "$mnt/ledger" "$work/noted"
	fio --name=settled --directory="$mnt" --size=8M --rw=write --bs=64k $verify_by \
		--do_verify=0 --end_fsync=1 >"$work/settled" 2>&1 || fail "fio: $(tail -n 3 "$work/settled")"
	sync -f "$mnt"
	begin_load
	began=$(now)
	within "$patience" noted_since "$((began + 500000000))" || fail "the load does not begin"
	sleep "$((RANDOM % 2)).$((RANDOM % 10))"
	choose "$who"
	strike "$signal" "$who"
	case $how in
	on) goes_on "$who" ;;
	again)
		again "${struck[@]}"
		mount_again
		;;
	without:*) without "${how#*:}" ;;
	esac
	[ "${how%:*}" = without ] || reckon
	echo "round $round: $kind, went on after $took s, nothing lost"
	echo "$kind $took" >>"$work/took"
}

# shellcheck disable=SC2046 # kinds are words
[ -z "${DRAWN:-}" ] || set -- $(scripts/drawn.sh "$DRAWN" $(awk 'NF == 4 { print $1 }' <<<"$kinds"))
chosen=$(awk -v wanted=" $* " 'NF == 4 && (wanted ~ /^ *$/ || index(wanted, " " $1 " "))' \
	<<<"$kinds")
[ -n "$chosen" ] || { echo "survive.sh: no kind of round named $*" >&2; exit 2; }

round=0 kind=setting-up
"$braid" key new "$work/key" >/dev/null || fail "no key"
for n in 0 1 2 3 4; do start "$n"; done
"$braid" create survive --level 6 --layout xor2d --raid-devices 5 --size 64M \
	${POLICY:+--consistency-policy "$POLICY"} "${members[@]}" \
	>"$work/create" 2>&1 || fail "create: $(tail -n 3 "$work/create")"
assemble
make_file_system
while [ "$round" -lt "$rounds" ]; do
	read -r kind signal who how _ < <(sed -n "$((round % $(wc -l <<<"$chosen") + 1))p" <<<"$chosen")
	round=$((round + 1))
	one_round "$signal" "$who" "$how"
done
umount "$mnt"
"$braid" stop survive >"$work/stop" 2>&1 || fail "stop: $(cat "$work/stop")"
echo "kind, rounds, seconds until it went on: least, most"
sort -k1,1 -k2n "$work/took" | awk '
	$1 != kind { if (kind) print kind, n, least, most; kind = $1; n = 0; least = $2 }
	{ n++; most = $2 }
	END { print kind, n, least, most }'
echo "test result: ok. $rounds passed; 0 failed"
