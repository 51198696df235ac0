#!/usr/bin/env bash
# Installs what scripts/release.sh has built: programs, man pages, completions of shells, units of
# systemd, rules of udev, documents; by root or below DESTDIR also an example of
# /etc/braid/arrays.toml, where there is none. Starts and restarts nothing.
# usage: PREFIX=/usr/local DESTDIR= install.sh [DIRECTORY OF THE PROGRAMS [PROGRAM...]]
#        (PROGRAM: braid, braid-bench, or both)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
programs=${1:-target/programs}
shift $(($# > 0))
[ $# -gt 0 ] || set -- braid braid-bench
prefix=${PREFIX:-/usr/local}
root=${DESTDIR-}$prefix
share=$root/share

for program; do
	if [ ! -x "$programs/$program" ]; then
		echo "install.sh: no $program in $programs; build it: make release" >&2
		exit 1
	fi
done

# Debian's tools want plain files to be the same for everybody.
umask 022
for program; do
	install -d "$root/bin" "$share/man/man1" "$share/bash-completion/completions" \
		"$share/zsh/site-functions" "$share/fish/vendor_completions.d"
	install "$programs/$program" "$root/bin/$program"
	"$programs/$program" completions bash >"$share/bash-completion/completions/$program"
	"$programs/$program" completions zsh >"$share/zsh/site-functions/_$program"
	"$programs/$program" completions fish >"$share/fish/vendor_completions.d/$program.fish"
	"$programs/$program" man "$share/man/man1"
done
# Of other sections are what the programs have in common, and the file of arrays.
for page in "$share"/man/man1/*.[57]; do
	[ -f "$page" ] || continue
	install -D -m 644 "$page" "$share/man/man${page##*.}/${page##*/}"
	rm "$page"
done

# with_paths MODE FILE TO: what calls the program has to know where it is.
with_paths() {
	sed "s|@BINDIR@|$prefix/bin|g" "$2" >"$3"
	chmod "$1" "$3"
}
case " $* " in
*" braid "*)
	units=$root/lib/systemd/system
	install -d "$units" "$root/lib/systemd/system-generators" "$root/lib/udev/rules.d" \
		"$share/doc/braid/docs/performance"
	for unit in contrib/systemd/*.{service,target,timer}; do
		with_paths 644 "$unit" "$units/$(basename "$unit")"
	done
	with_paths 755 contrib/systemd/braid-generator \
		"$root/lib/systemd/system-generators/braid-generator"
	with_paths 644 contrib/udev/63-braid.rules "$root/lib/udev/rules.d/63-braid.rules"
	install -m 644 README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md SECURITY.md \
		LICENSE-APACHE LICENSE-MIT contrib/alerts.yml contrib/alerts.test.yml contrib/grafana.json \
		contrib/arrays.toml "$share/doc/braid"
	install -m 644 docs/*.md "$share/doc/braid/docs"
	install -m 644 docs/performance/*.svg "$share/doc/braid/docs/performance"
	config=${DESTDIR-}/etc/braid
	if [ -n "${DESTDIR-}" ] || [ "$(id -u)" = 0 ] && [ ! -e "$config/arrays.toml" ]; then
		install -d "$config"
		install -m 644 contrib/arrays.toml "$config"
	fi
	;;
esac
echo "installed below $root"
