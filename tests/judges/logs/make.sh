#!/usr/bin/env bash
# Makes the arrays of this directory anew with a real md kernel: each is written to, and the guest
# is killed meanwhile (or the array stopped). Then md assembles copies, and what it makes of them
# is what others are to make of them. README.md has the files; stamp.c what blocks hold.
#
# usage: make.sh [-c] [NAME...]    without a name all of arrays.txt
#   -c  makes nothing: does md still make the same of them?
#
# A kill is a power cut: the guest's disks are files, it writes them in order, and what it did not
# come to is lost. Writes to members' data are delayed (each member's differently), superblocks and
# logs are not, so a cut finds rows half written.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
run_md=$here/../../md/run-md.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/md-logs.XXXXXX")
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/stamp" "$here/stamp.c"
cc -O2 -o "$work/dump" "$here/dump.c"

# The files of the guest's disks, and the script that it runs.
prepare() { # KIND DEVICES LEVEL LAYOUT EXTRA SIZES DONE
	local member sizes
	read -ra sizes <<<"$6"
	IMAGES=()
	for ((member = 0; member < $2; member++)); do
		IMAGES+=("m$member.img")
		truncate -s "${sizes[0]}M" "m$member.img"
	done
	if [ "$1" = journal ]; then
		IMAGES+=(journal.img)
		truncate -s "${sizes[1]}M" journal.img
	fi
	{
		echo "STAMP=$work/stamp"
		cat "$here/make-guest.sh"
		echo "create $1 $2 $3 $4 '$5'"
		echo "echo ready"
		echo "$7"
		echo wait
	} >"$work/script"
}

# Runs it, keeps what it prints in $work/log, and kills the guest at the END.
run_until() { # END
	local end=$1 answered=0 line guest limit=120
	mkfifo "$work/lines"
	"$run_md" -t 120 "$work/script" "${IMAGES[@]}" >"$work/lines" &
	guest=$!
	exec 3<"$work/lines"
	rm "$work/lines"
	: >"$work/log"
	while line= && IFS= read -r -t "$limit" line <&3; do
		echo "$line" >>"$work/log"
		case $line in
		ready) [ "$end" != idle ] || limit=10 ;;
		'd '*) answered=$((answered + 1)) ;;
		esac
		[ "$answered" != "$end" ] || break
	done
	if [ "$end" = stop ]; then
		wait $guest
	else
		kill -TERM $guest
		wait $guest || :
	fi
	cat <&3 >>"$work/log"
	exec 3<&-
}

# From what the writers said: what each block holds, and what it may hold as well. Prints
# `BLOCK NUMBER`, and `BLOCK OLD NEW` where a write was not answered.
account() { # FILLED
	awk -v first="${1%% *}" -v count="${1##* }" '
	function take(number,  at) {
		for (at = from[number]; at < from[number] + blocks[number]; at++) holds[at] = number
		delete from[number]
	}
	BEGIN { for (at = first; at < first + count; at++) holds[at] = 1 }
	$1 == "b" { from[$2] = $3; blocks[$2] = $4 }
	$1 == "d" { take($2) }
	END {
		for (number in from)
			for (at = from[number]; at < from[number] + blocks[number]; at++) new[at] = number
		for (at in new) {
			old = at in holds ? holds[at] : 0
			holds[at] = old " " new[at]
		}
		for (at in holds) print at, holds[at]
	}' "$work/log" | sort -n
}

# What a disk may lose of a log. In PPL: the last unit's partial parity, or the area's first header.
bad_parity() { zero "$1" $((16 + $(places "$1" unit | tail -n 1) + 8)); }
bad_header() { zero "$1" 16; }

# In a journal: of the block in the middle the first page, or itself; or the first block.
bad_page() { zero "$1" $(($(middle "$1") + 8)); }
bad_block() { zero "$1" "$(middle "$1")"; }
bad_tail() { zero "$1" $((2048 + $(places "$1" block | sed -n 1p))); }
middle() {
	local middle
	middle=$(places "$1" block | awk '{ at[NR] = $1 } END { print at[int(NR / 2)] }')
	echo $((2048 + middle))
}

places() { "$work/dump" "$1" | sed -n "s/^$2 at \([0-9]*\) .*/\1/p"; }
zero() { dd if=/dev/zero of="$1" bs=512 seek="$2" count=8 conv=notrunc status=none; }

spoil() { # WHAT
	local image
	for image in "${IMAGES[@]}"; do
		case $1,$image in *,journal.img | bad_parity,* | bad_header,*) "$1" "$image" ;; esac
	done
}

# The members, and the journal, that md gets in each case: `CASE IMAGE...`.
cases() { # LEVEL
	local image rest
	echo "all ${IMAGES[*]}"
	for image in "${IMAGES[@]}"; do
		rest=" ${IMAGES[*]} "
		rest=${rest/ $image / }
		image=${image%.img}
		echo "without-${image#m} $rest"
	done
	[ "$1" != 6 ] || echo "without-0-3 m1.img m2.img m4.img journal.img"
}

# What md makes of copies: expected.txt and the files of `replay`.
judge() { # LEVEL
	local case images
	{
		echo "STAMP=$work/stamp"
		cat "$here/replay.sh"
		echo "attach ${IMAGES[*]}"
		echo 'mdadm --examine "${LOOPS[@]}" >examine.txt'
		echo detach
		cases "$1" | while read -r case images; do
			echo "replay $case $PWD/$case $images"
		done
	} >"$work/script"
	cases "$1" | while read -r case images; do
		mkdir "$case"
		# shellcheck disable=SC2086 # words
		cp --sparse=always $images "$case"
	done
	"$run_md" -t 120 "$work/script" >expected.txt || hung $? "$1"
	for case in $(cases "$1" | cut -d' ' -f1); do
		[ ! -e "$case/$case.blocks" ] || mv "$case/$case.blocks" .
		[ ! -e "$case/$case.dmesg" ] || mv "$case/$case.dmesg" .
		rm -r "$case"
	done
}

# md does not come back from some: of the last case that is an answer, too.
hung() { # STATUS LEVEL
	local cases
	cases=$(cases "$2" | cut -d' ' -f1)
	if [ "$1" = 124 ] && [ "$(wc -l <expected.txt)" = $(($(wc -l <<<"$cases") - 1)) ]; then
		echo "$(tail -n 1 <<<"$cases") hangs" >>expected.txt
	else
		cat expected.txt
		return 1
	fi
}

# Fails where md's answer is not what the writers know. Without a member, what was not answered may
# be anything; where md had to be forced, all may.
verify() {
	local case sum how rest failed=0
	while read -r case sum how rest; do
		[ "$how" != run ] || verify_case "$case.blocks" || failed=1
	done <expected.txt
	return $failed
}

verify_case() {
	awk -v file="$1" '
	FNR == NR { old[$1] = $2; new[$1] = $3; next }
	{
		found[$1] = 1
		if (!($1 in old) || (new[$1] == "" && $2 != old[$1])) { print file, "wrong:", $0; bad = 1 }
		else if (new[$1] != "") {
			if ($2 == old[$1]) olds++
			else if ($2 == new[$1]) news++
			else others++
		}
	}
	END {
		for (at in old)
			if (!(at in found)) {
				if (new[at] == "") { print file, "zero:", at; bad = 1 }
				else if (old[at] == 0) olds++
				else others++
			}
		printf "%s: of unanswered blocks %d old, %d new, %d neither\n", file, olds, news, others
		exit bad
	}' holds.txt "$1"
}

# In the archive only `all` has all its blocks: of the others those that differ.
shorten() {
	local file
	for file in without-*.blocks; do
		[ -e "$file" ] || continue
		awk 'FNR == NR { all[$1] = $2; next } { here[$1] = 1 } all[$1] != $2
		END { for (at in all) if (!(at in here)) print at, 0 }' all.blocks "$file" |
			sort -n >"$file.short"
		mv "$file.short" "$file"
	done
}

# Rows of the array whose parity does not fit before md replays.
torn() {
	local offset size arguments=() number=0 member
	while read -r offset size; do
		member=${IMAGES[number]}
		number=$((number + 1))
		[ "$member" != journal.img ] || continue
		arguments+=("$member" $((offset * 512)) $((size * 512)))
	done < <(awk '/Version :/ { offset = 0; used = 0 }
		/Avail Dev Size :/ { used = $5 }
		/Used Dev Size :/ { used = $5 }
		/Data Offset :/ { offset = $4 }
		/Checksum :/ { print offset, int(used / 128) * 128 }' examine.txt)
	echo "rows torn: $("$work/stamp" torn "${arguments[@]}")" | tee -a expected.txt
}

one() { # NAME KIND DEVICES LEVEL LAYOUT EXTRA SIZES END DONE
	local name=$1 level=$4 member
	mkdir "$work/$name"
	cd "$work/$name"
	prepare "$2" "$3" "$4" "$5" "$6" "$7" "$9"
	run_until "${8% *}"
	account "$(sed -n 's/.*fill \([0-9]* [0-9]*\).*/\1/p' <<<"$9")" >holds.txt
	grep -v '^[bd] [0-9 ]*$\|^ready$' "$work/log" || :
	case $8 in *' '*) spoil "${8#* }" ;; esac
	for member in "${IMAGES[@]}"; do fallocate -d "$member"; done
	"$work/dump" "${IMAGES[@]}" >log.txt
	echo "$2 members=$3 level=$4 layout=$5 chunk=64K $6; $9; end=$8" | tr -s ' ' >create.txt
	judge "$level"
	echo "== $name: $(grep -c ' .* ' holds.txt || :) blocks unanswered"
	cat expected.txt
	case $level,$9 in 6,* | *leave*) ;; *) torn ;; esac
	case $8 in
	*' '*) verify || : ;; # md cannot know
	*) verify || { echo "$name: md's answer is not what was written"; FAILED+=" $name"; } ;;
	esac
	[ ! -e all.blocks ] || shorten
	cd "$work"
	tar --sparse --owner=0 --group=0 --sort=name --mtime=@0 -c "$name" | gzip -9n >"$here/$name.tar.gz"
	stat -c '%n %s' "$here/$name.tar.gz"
	rm -r "${work:?}/$name"
}

# Of an archive that is there.
compare() { # NAME LEVEL
	tar -C "$work" -xzf "$here/$1.tar.gz"
	cd "$work/$1"
	mv expected.txt old.txt
	IMAGES=(m?.img)
	[ ! -e journal.img ] || IMAGES+=(journal.img)
	judge "$2"
	if diff <(grep -v '^rows' old.txt) expected.txt; then
		echo "$1: the same"
	else
		FAILED+=" $1"
	fi
	cd "$work"
	rm -r "${work:?}/$1"
}

FAILED='' ACTION=one
[ "${1-}" != -c ] || { ACTION=compare; shift; }
while IFS='|' read -r name kind extra sizes end what; do
	name=${name// /}
	[ $# = 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
	if [ $ACTION = compare ]; then
		read -r _ _ level _ <<<"$kind"
		compare "$name" "$level" </dev/null
		continue
	fi
	# shellcheck disable=SC2086 # words
	one "$name" $kind "$(xargs <<<"$extra")" "$(xargs <<<"$sizes")" "$(xargs <<<"$end")" \
		"$what" </dev/null
done < <(grep -v '^#' "$here/arrays.txt")
[ -z "$FAILED" ] || { echo "failed:$FAILED"; exit 1; }
