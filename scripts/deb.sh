#!/usr/bin/env bash
# Makes Debian packages of what scripts/release.sh has built: braid and braid-bench. Installing or
# upgrading them starts and stops no array.
# usage: deb.sh [DIRECTORY OF THE PROGRAMS [WHERE THE PACKAGES GO]]
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
programs=${1:-target/programs}
to=${2:-target/debian}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
# The time of the last change, or of the release: the same files make the same package.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date -r Cargo.toml +%s)}"
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-The authors of Braid} <${DEBEMAIL:-braid@localhost}>"

# depends PROGRAM: packages of the libraries that it is linked with.
depends() {
	mkdir -p "$work/shlibs/debian"
	printf 'Source: braid\n\nPackage: braid\nArchitecture: any\n' >"$work/shlibs/debian/control"
	cp "$programs/$1" "$work/shlibs/$1"
	(cd "$work/shlibs" && dpkg-shlibdeps -O "$1" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# copyright: in Debian's format; MIT's license is called Expat there.
copyright() {
	cat <<-'TEXT'
		Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
		Upstream-Name: Braid

		Files: *
		Copyright: 2026 the Braid maintainers
		License: Apache-2.0 or Expat

		License: Apache-2.0
		 On Debian systems it is in /usr/share/common-licenses/Apache-2.0.

		License: Expat
	TEXT
	sed -n '/^Permission/,$p' LICENSE-MIT | sed 's/^$/./; s/^/ /'
}

# package NAME DEPENDS: files from install.sh, a control file that ends with what is on stdin, and
# the scripts contrib/debian/NAME.*
package() {
	local name=$1 tree=$work/$1 page
	DESTDIR=$tree PREFIX=/usr scripts/install.sh "$programs" "$name" >/dev/null
	mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$name"
	{
		printf 'braid (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n' "$version"
		printf ' -- %s  %s\n' "$maintainer" "$(date -Rud "@$SOURCE_DATE_EPOCH")"
	} | gzip -9n >"$tree/usr/share/doc/$name/changelog.gz"
	find "$tree/usr/share/man" -name '*.[157]' -exec gzip -9n {} +
	copyright >"$tree/usr/share/doc/$name/copyright"
	install -D -m 644 contrib/debian/lintian-overrides "$tree/usr/share/lintian/overrides/$name"
	for page in preinst postinst prerm postrm; do
		[ ! -f "contrib/debian/$name.$page" ] ||
			install -m 755 "contrib/debian/$name.$page" "$tree/DEBIAN/$page"
	done
	if [ "$name" = braid ]; then
		rm "$tree/usr/share/doc/braid/"LICENSE-*
		gzip -9n "$tree/usr/share/doc/braid/CHANGELOG.md"
		sed -i 's/(CHANGELOG.md)/(CHANGELOG.md.gz)/' "$tree/usr/share/doc/braid/README.md"
		echo /etc/braid/arrays.toml >"$tree/DEBIAN/conffiles"
	fi
	{
		printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$name" "$version" "$architecture"
		printf 'Maintainer: %s\n' "$maintainer"
		printf 'Installed-Size: %s\n' "$(du -ks --exclude DEBIAN "$tree" | cut -f1)"
		printf 'Section: admin\nPriority: optional\nDepends: %s\n' "$(depends "$name")$2"
		cat
	} >"$tree/DEBIAN/control"
	(cd "$tree" && find usr -type f -exec md5sum {} + | sort -k2) >"$tree/DEBIAN/md5sums"
	find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group --build "$tree" "$to" >/dev/null
	echo "$to/${name}_${version}_$architecture.deb"
}

mkdir -p "$to"
package braid "" <<'CONTROL'
Recommends: fuse3, udev
Suggests: braid-bench, mdadm, nbd-client
Description: RAID in user space, in the on-disk format of Linux md
 Serves arrays of disks, files and storage nodes over NBD, FUSE, vhost-user and
 ublk. Members move between Linux md and Braid in both directions. Arrays that
 /etc/braid/arrays.toml names are started at boot.
CONTROL
package braid-bench ", braid (= $version)" <<'CONTROL'
Recommends: fio
Description: measurements of RAID arrays beside other implementations
 Compares arrays of Braid with those of md, btrfs and others in one run, and
 writes a report.
CONTROL
