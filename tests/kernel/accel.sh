# Sourced by who boots a guest under QEMU. Uses `work`, a directory.

# has_kvm: does a guest run by KVM here? There are machines that have /dev/kvm, and no guest starts.
# The guest is a boot sector that writes 0x10 to a port, whereupon QEMU ends with 33.
has_kvm() {
	[ -w /dev/kvm ] || return 1
	printf '\272\364\000\260\020\356\364\353\375' >"$work/sector"
	truncate -s 510 "$work/sector" && printf '\125\252' >>"$work/sector"
	timeout -k 1 5 qemu-system-x86_64 -accel kvm -m 32M -nodefaults -display none -no-reboot \
		-device isa-debug-exit,iobase=0xf4,iosize=1 \
		-drive "file=$work/sector,format=raw,if=floppy,readonly=on" </dev/null >/dev/null 2>&1
	[ $? = 33 ]
}

# set_accel OPTION...: sets `accel`, KVM where that runs guests, asked once a boot of this machine;
# else these.
set_accel() {
	local answers boot
	mkdir -p target
	boot=$(cat /proc/sys/kernel/random/boot_id)
	answers=target/kvm
	exec 8>target/kvm.lock
	flock 8
	if [ "$(cut -d' ' -f1 "$answers" 2>/dev/null)" != "$boot" ]; then
		has_kvm && echo "$boot yes" >"$answers" || echo "$boot no" >"$answers"
	fi
	exec 8>&-
	accel=("$@")
	! grep -q yes "$answers" || accel=(-accel kvm)
}
