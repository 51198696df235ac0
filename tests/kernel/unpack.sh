# Sourced by who boots a guest, in the directory of the repository: a kernel as Debian packages it,
# unpacked into target/kernel, not installed; two that want it at the same time get it once. Sets
# `kernel`, the directory, `vmlinuz` and `release`. Uses `work`, a directory, and `refuse`.
kernel=$PWD/target/kernel
mkdir -p target
exec 9>target/kernel.lock
flock 9
if ! compgen -G "$kernel/boot/vmlinuz-*" >/dev/null; then
	package=
	# Debian 12 has it beside its own kernel, which is older; later Debians as their own.
	for name in linux-image-6.12-amd64 linux-image-amd64; do
		package=$(apt-cache depends "$name" 2>/dev/null | sed -n 's/.*Depends: //p' | head -1)
		[ -z "$package" ] || break
	done
	[ -n "$package" ] || refuse "apt knows no linux-image-6.12-amd64; run apt-get update"
	(cd "$work" && apt-get download "$package") >"$work/log" 2>&1 ||
		refuse "cannot download $package: $(tail -n 1 "$work/log")"
	rm -rf "$kernel" "$kernel.new" && mkdir -p "$kernel.new" &&
		dpkg-deb -x "$work"/*.deb "$kernel.new" || refuse "cannot unpack $package"
	release=$(basename "$kernel.new"/boot/vmlinuz-*)
	depmod -b "$kernel.new" "${release#vmlinuz-}" && mv "$kernel.new" "$kernel" ||
		refuse "depmod failed"
fi
flock -u 9
vmlinuz=$(echo "$kernel"/boot/vmlinuz-*)
release=${vmlinuz##*/vmlinuz-}

# as_insmod_takes_it FROM TO: a module without its compression.
as_insmod_takes_it() {
	case $1 in *.xz) xz -dc "$1" >"$2" ;; *) cp "$1" "$2" ;; esac
}

# modules_in_order NAME...: their files, and those of what they need, in the order of loading.
modules_in_order() {
	for module; do
		modprobe -d "$kernel" -S "$release" --show-depends "$module" | sed -n 's/^insmod //p'
	done | awk '!seen[$1]++ { print $1 }'
}
