#!/usr/bin/env bash
# Installs the Debian packages that the named jobs need and that are missing, and a Rust toolchain
# where there is none. For the book, mdbook.
# usage: setup.sh [build|test|demo|bench|rxe|deb|static|book]...
#        (as root; otherwise it says what to install)
set -euo pipefail

declare -A packages=(
	# A C compiler links Rust programs and builds the shim of the md kernel's runner.
	[md]="gcc libc6-dev user-mode-linux mdadm busybox-static kmod"
	[live]="fuse3 e2fsprogs fuse2fs fdisk xfsprogs fio util-linux procps"
	[nbd]="qemu-utils libnbd-bin python3-libnbd openssl"
	# The model of arrays over nodes.
	[model]="python3"
	# Without these, the fabric over libfabric is left out.
	[ofi]="gcc libc6-dev pkg-config libfabric-dev libclang-dev"
	[rdma]="iproute2 ibverbs-utils ibverbs-providers"
	# A newer kernel in a guest.
	[kernel]="qemu-system-x86 busybox-static cpio kmod xz-utils"
	[isal]="gcc libc6-dev libisal-dev"
	[lab]="iproute2 libnbd-bin"
	# Completions are tried in them; bash is there.
	[shells]="zsh fish"
	# They make what lies on disks.
	[rescue]="fdisk gdisk xz-utils zstd bzip2 zip p7zip-full qemu-utils gddrescue util-linux
		e2fsprogs xfsprogs btrfs-progs lvm2 ntfs-3g dosfstools exfatprogs f2fs-tools
		squashfs-tools xorriso cryptsetup-bin"
	# What the comparisons run; with less the report has gaps, and says which.
	[compare]="fio bonnie++ util-linux mount e2fsprogs xfsprogs btrfs-progs fuse3 qemu-utils nbdkit"
	# Servers without RAID, beside which exports are measured.
	[servers]="nbdkit qemu-system-common"
	# Packages; a program that needs no library, and what is C in it.
	[deb]="dpkg-dev binutils lintian"
	[static]="musl-tools"
	# A machine that boots.
	[boot]="systemd systemd-sysv udev dbus e2fsprogs"
	# A report is looked at before it is called good.
	[browser]="chromium"
	# A C compiler links mdbook.
	[book]="gcc libc6-dev"
)
wanted=()
for job in "${@:-test}"; do
	case $job in
	test)
		wanted+=(${packages[md]} ${packages[live]} ${packages[nbd]} ${packages[model]})
		wanted+=(${packages[ofi]} ${packages[lab]} ${packages[compare]} ${packages[browser]})
		wanted+=(${packages[kernel]} ${packages[boot]} ${packages[deb]} ${packages[static]})
		wanted+=(${packages[rescue]} ${packages[shells]})
		;;
	build) wanted+=(${packages[ofi]}) ;;
	deb) wanted+=(${packages[ofi]} ${packages[deb]}) ;;
	static) wanted+=(${packages[static]}) ;;
	book) wanted+=(${packages[book]}) ;;
	demo) wanted+=(${packages[md]} ${packages[live]} ${packages[lab]}) ;;
	rxe) wanted+=(${packages[ofi]} ${packages[rdma]} ${packages[kernel]}) ;;
	bench)
		wanted+=(${packages[ofi]} ${packages[isal]} ${packages[lab]} ${packages[compare]})
		wanted+=(${packages[servers]})
		;;
	*)
		echo "setup.sh: no job named $job; try build, test, demo, bench, rxe, deb, static or book" >&2
		exit 2
		;;
	esac
done

# Where rustup puts it, the Makefile finds it.
has_cargo() {
	command -v cargo >/dev/null || [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]
}
has_cargo || wanted+=(curl ca-certificates)

install_packages() {
	local missing=() package state log
	if ! command -v dpkg-query >/dev/null; then
		echo "setup.sh: not a Debian; install what these packages hold: ${wanted[*]}" >&2
		return
	fi
	for package in "${wanted[@]}"; do
		state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
		[ "$state" = installed ] || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "setup.sh: as root, install: apt-get install --no-install-recommends ${missing[*]}" >&2
		return
	fi
	echo "setup.sh: installing ${missing[*]}"
	log=$(mktemp)
	export DEBIAN_FRONTEND=noninteractive
	if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } \
		>"$log" 2>&1; then
		cat "$log" >&2
		echo "setup.sh: apt-get failed; what needs ${missing[*]} will be skipped" >&2
		[ -z "${CI-}" ] || exit 1
	fi
	rm -f "$log"
}

# By rustup, for this user, without a change to any profile. Of this version, as a newer one's
# clippy may find something.
rust=1.95.0
install_rust() {
	local host from directory
	host=$(uname -m)-unknown-linux-gnu
	from=https://static.rust-lang.org/rustup/dist/$host/rustup-init
	directory=$(mktemp -d)
	echo "setup.sh: installing Rust by rustup into ${CARGO_HOME:-$HOME/.cargo}"
	if ! { cd "$directory" && curl -sSfO "$from" && curl -sSfO "$from.sha256" &&
		[ "$(sha256sum <rustup-init | cut -d' ' -f1)" = "$(cut -d' ' -f1 <rustup-init.sha256)" ] &&
		chmod +x rustup-init &&
		./rustup-init -qy --no-modify-path --default-toolchain "$rust" --profile minimal \
			-c clippy -c rustfmt >/dev/null; }; then
		rm -rf "$directory"
		echo "setup.sh: no cargo here, and rustup cannot be had from $from;" \
			"install a Rust toolchain from https://rustup.rs" >&2
		exit 1
	fi
	rm -rf "$directory"
}

# Without what serves the book and looks at it while it is written: a third of the packages.
mdbook=0.5.4
install_mdbook() {
	echo "setup.sh: installing mdbook $mdbook by cargo: three minutes"
	if ! cargo install --quiet --locked --version "$mdbook" --no-default-features \
		--features search mdbook; then
		echo "setup.sh: mdbook cannot be installed; the pages can be read in docs" >&2
		exit 1
	fi
}

# Debian has no package of it.
fsx=0.3.2
install_fsx() {
	echo "setup.sh: installing fsx $fsx by cargo: a minute"
	if ! cargo install --quiet --locked --version "$fsx" fsx; then
		echo "setup.sh: fsx cannot be installed; what needs it will be skipped" >&2
		[ -z "${CI-}" ] || exit 1
	fi
}
has_fsx() {
	command -v fsx >/dev/null || [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/fsx" ]
}

install_packages
has_cargo || install_rust
case " $* " in
*" book "*) command -v mdbook >/dev/null || install_mdbook ;;
esac
case " ${*:-test} " in
*" test "*) has_fsx || install_fsx ;;
esac
