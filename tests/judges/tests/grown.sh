# The guest's side of grown.rs: md changes the shape of an array of its own.

# grow_by_md NAME SEED DEVICES DIRECTORY CREATE_ARGUMENTS GROW_ARGUMENTS: members beyond DEVICES are
# spares before. The file that grown.rs reads: size.txt (bytes afterwards).
grow_by_md() {
	local name=$1 seed=$2 devices=$3 create=$5 grow=$6 before after
	cd "$4" || fail "$name: no directory"
	attach m?.img
	# shellcheck disable=SC2086 # arguments are words
	md --create /dev/md0 --run --assume-clean --homehost=judge --name="$name" -e1.2 \
		-n "$devices" $create "${LOOPS[@]:0:devices}"
	idle md0
	"$PATTERN" write /dev/md0 "$seed" || fail "$name: md cannot write"
	before=$(blockdev --getsize64 /dev/md0)
	local new=("${LOOPS[@]:devices}")
	[ ${#new[@]} = 0 ] || md /dev/md0 --add "${new[@]}"
	# shellcheck disable=SC2086 # arguments are words
	md --grow /dev/md0 $grow
	idle md0
	after=$(blockdev --getsize64 /dev/md0)
	[ "$after" = "$before" ] ||
		"$PATTERN" write /dev/md0 "$seed" "$before" $((after - before)) ||
		fail "$name: md cannot write what is new"
	echo "$after" >size.txt
	md --stop /dev/md0
	detach
	echo "$name: grown by md, $SECONDS s"
}
