# What the scenes of `scenes.rs` have in common. LAB is the directory of the test, NET the first
# three numbers of loopback addresses that are this scene's alone, PORT where its nodes listen.
set -eEu -o pipefail
trap 'echo "FAILED: $BASH_COMMAND"' ERR
export BRAID_CONFIG=$LAB/etc/braid/arrays.toml
cd "$LAB"
mkdir -p dev run etc/braid srv mnt man units

disks() { truncate -s 20M dev/sd{a,b,c,d,e,f,g,h} dev/nvme0n1; }

# stored LEVEL MEMBER...: an array `home` on them, which agrees from the beginning.
stored() {
	local level=$1
	shift
	braid create home --level "$level" --raid-devices $# --assume-clean "$@" >/dev/null 2>&1
}
# home [WORD...]: `home` runs on disks, of level 5.
home() {
	disks
	stored 5 "$LAB"/dev/sd{a,b,c}
	braid assemble home "$LAB"/dev/sd{a,b,c} "$@"
}
# images LEVEL: `home` is stored in a.img, b.img and c.img, or in the first two of them.
images() {
	local names=(a.img b.img c.img)
	[ "$1" != 1 ] || names=(a.img b.img)
	truncate -s 40M "${names[@]}"
	stored "$1" "${names[@]}"
}
# lost: a.img, b.img and c.img held an array with an ext4 file system, and have no superblocks any
# more.
lost() {
	local directory file
	truncate -s 40M a.img b.img c.img
	braid create home -l 5 -n 3 -c 64K --assume-clean b.img c.img a.img
	braid assemble home a.img b.img c.img --export "nbd:unix:$LAB/run/lost.nbd"
	truncate -s "$(braid status home --json | sed -n 's/^  "size_bytes": \([0-9]*\),/\1/p')" files
	for directory in {1..30}; do
		mkdir -p "tree/$directory"
		for file in {1..40}; do
			echo "$directory $file" >"tree/$directory/$file"
		done
	done
	/usr/sbin/mkfs.ext4 -q -b 4096 -g 2048 -N 1500 -O 64bit,metadata_csum,^flex_bg -d tree files
	nbdcopy files "nbd+unix:///?socket=$LAB/run/lost.nbd"
	braid stop home
	rm -r tree files
	for file in a.img b.img c.img; do
		dd if=/dev/zero of="$file" bs=8K count=1 conv=notrunc status=none
	done
}
# table_on_home: `home` in a.img, b.img and c.img gets a partition with an ext4 file system.
table_on_home() {
	braid assemble home a.img b.img c.img --export "nbd:unix:$LAB/run/table.nbd"
	truncate -s "$(braid status home --json | sed -n 's/^  "size_bytes": \([0-9]*\),/\1/p')" table
	printf 'label: gpt\nstart=2048, size=16384, name=files\n' |
		/usr/sbin/sfdisk -q --no-tell-kernel table
	truncate -s 8M files
	/usr/sbin/mkfs.ext4 -q -L files files
	dd if=files of=table bs=1M seek=1 conv=notrunc status=none
	nbdcopy table "nbd+unix:///?socket=$LAB/run/table.nbd"
	braid stop home
	rm table files
}
# group_on_mirrors ARCHIVE: three mirrors in images, and a group of LVM2 over them.
group_on_mirrors() {
	local n
	tar xzf "$1"
	for n in 0 1 2; do
		truncate -s $(($(stat -c %s "pv$n") + (4 << 20))) "pv$n" "a$n.img" "b$n.img"
		braid create "md$n" -l 1 -n 2 --assume-clean "a$n.img" "b$n.img"
		braid assemble "md$n" "a$n.img" "b$n.img" --export "nbd:unix:$LAB/run/md$n.nbd"
		truncate -s "$(braid status "md$n" --json |
			sed -n 's/^  "size_bytes": \([0-9]*\),/\1/p')" "pv$n"
		nbdcopy "pv$n" "nbd+unix:///?socket=$LAB/run/md$n.nbd"
		braid stop "md$n"
		rm "pv$n"
	done
}

node() { braid node --listen "$NET.$1:$PORT" --store "$LAB/srv/braid$1" "${@:2}" >/dev/null; }
down() { braid node stop "$NET.$1:$PORT"; }
# data [WORD...]: seven nodes, and the array `data` runs on five of them.
data() {
	local n
	for n in 1 2 3 4 5 6 7; do
		node "$n"
	done
	members=(node://"$NET".{1,2,3,4,5}:"$PORT")
	braid create data --level 6 --layout xor2d --raid-devices 5 --size 8M --journal-size 16M \
		"${members[@]}" >/dev/null
	braid assemble data "${members[@]}" "$@"
}
uuid() { braid detail "$1" | sed -n 's/^ *UUID : //p'; }

# until_status NAME TEXT: its status says so.
until_status() {
	local end=$((SECONDS + 60))
	until braid status "$1" | grep -qF -- "$2"; do
		[ $SECONDS -lt $end ] || { braid status "$1"; return 1; }
	done
}
# killed NAME: its process dies without a chance to say anything.
killed() {
	local pid
	pid=$(braid status "$1" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
	kill -KILL "$pid"
	while kill -0 "$pid" 2>/dev/null; do :; done
}
# killed_while_written NAME SOCKET
killed_while_written() {
	qemu-img bench -q -w -t none -f raw -c 1000000 \
		"nbd+unix:///$1?socket=$2" >/dev/null 2>&1 &
	until_status "$1" active
	killed "$1"
	wait $! || true
}
# for_a_moment WORD...: what runs until a signal ends it.
for_a_moment() { timeout 2 "$@" || [ $? = 124 ]; }
