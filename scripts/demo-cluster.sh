#!/usr/bin/env bash
# RAID over nodes, shown once: five storage nodes, a file system written to a RAID-6 over them with
# the parity made by the client and then by the nodes, two nodes killed, every byte read back.
# As root the nodes are network namespaces with links of 500 Mbit/s, otherwise plain processes.
# usage: demo-cluster.sh     (called by demo.sh; braid is built already)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
braid=$PWD/target/checked/braid

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-cluster.XXXXXX")
export BRAID_RUN_DIR=$work/run
lab='' nodes=()
clean_up() {
	status=$?
	trap - EXIT
	client stop demo >/dev/null 2>&1 || true
	[ ${#nodes[@]} = 0 ] || kill "${nodes[@]}" 2>/dev/null || true
	wait
	[ -z "$lab" ] || "$braid" bench lab down "$lab" || true
	rm -rf "$work"
	[ "$status" = 0 ] || echo "demo: stopped early, status $status" >&2
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

# at NAME: leaves in ${on[@]} what runs a command on that machine of the lab.
at() {
	on=()
	[ -z "$lab" ] || on=(nsenter "--net=/run/netns/$lab-$1" --)
}
client() {
	printf '%s$ braid %s%s\n' "$bold" "$*" "$plain"
	at c0
	"${on[@]}" "$braid" "$@"
}
sent() { [ -z "$lab" ] || "$braid" bench lab bytes "$lab" | awk '$1 == "c0" { print $3 }'; }

if [ "$(id -u)" = 0 ] && "$braid" bench lab up "demo$$" --nodes 5 --link 500M >"$work/hosts" 2>&1
then
	lab=demo$$
	say "Five storage nodes and a client, each with a link of 500 Mbit/s of its own"
	cat "$work/hosts"
else
	say "Five storage nodes, as processes on this machine (links of their own need root)"
fi
"$braid" key new "$work/key" >/dev/null
export BRAID_KEY=$work/key
members=()
for n in 0 1 2 3 4; do
	address=127.0.0.1
	[ -z "$lab" ] || address=$(awk -v h="n$n" '$1 == h { print $2 }' "$work/hosts")
	at "n$n"
	"${on[@]}" "$braid" node --listen "$address:0" --store "$work/n$n" --foreground \
		>"$work/n$n.out" &
	nodes+=($!)
	for _ in $(seq 100); do
		[ ! -s "$work/n$n.out" ] || break
		sleep 0.05
	done
	members+=("node://$(head -n 1 "$work/n$n.out")")
done

say "A file system in an image"
mkdir "$work/files"
(cd /usr/bin && find . -maxdepth 1 -type f -size +16k -printf '%s %f\n' | sort -k 2 |
	awk '{ sum += $1 } sum < 150e6 { print $2 }' | tar -cf - -T -) | tar -xf - -C "$work/files"
mke2fs -q -t ext4 -d "$work/files" "$work/fs.img" 192M 2>/dev/null
cp --sparse=never "$work/fs.img" "$work/whole.img" && mv "$work/whole.img" "$work/fs.img"
bytes=$(stat -c %s "$work/fs.img")
echo "$(find "$work/files" -type f | wc -l) files, $((bytes / 1048576)) MiB"

say "A RAID-6 over the nodes that survives the loss of any two"
client create demo --level 6 --layout xor2d --raid-devices 5 --size 128M "${members[@]}"

uri="nbd+unix:///?socket=$work/nbd"
# write SCHEDULE: serves the array, writes the image, and leaves how fast that was in $mb_s.
write() {
	client assemble demo --schedule "$1" --export "nbd:unix:$work/nbd" "${members[@]}"
	local before after began ended
	before=$(sent) began=$(date +%s%N)
	nbdcopy --flush --sparse=0 "$work/fs.img" "$uri"
	ended=$(date +%s%N) after=$(sent)
	mb_s=$((bytes * 1000 / (ended - began)))
	echo "written and flushed: $mb_s MB/s"
	[ -z "$lab" ] || awk -v b="$bytes" -v s=$((after - before)) \
		'BEGIN { printf "the client sent %.2f bytes per byte of data\n", s / b }'
}
say "The image is written with the parity made by the client, as usual"
write client
naive=$mb_s
client stop demo
say "Again, with the parity made by the nodes among themselves"
write encoder
echo "$((mb_s * 100 / naive)) % of the rate with client-made parity"
[ -n "$lab" ] || echo "(without links of their own, processor and memory decide, not the network)"

say "Two nodes die"
victims=(1 3)
for n in "${victims[@]}"; do
	kill -9 "${nodes[$n]}"
	wait "${nodes[$n]}" 2>/dev/null || true
done
nbdcopy "$uri" "$work/back.img"
client status demo
cmp -n "$bytes" "$work/fs.img" "$work/back.img"
truncate -s "$bytes" "$work/back.img"
e2fsck -fn "$work/back.img" >"$work/fsck" 2>&1 || { cat "$work/fsck"; exit 1; }
echo "every byte was read back from three nodes; the file system is clean"
client stop demo
