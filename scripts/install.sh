#!/usr/bin/env bash
# Installs what scripts/release.sh has built: programs, man pages, completions of shells, documents.
# usage: PREFIX=/usr/local DESTDIR= install.sh [DIRECTORY OF THE PROGRAMS]
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
programs=${1:-target/programs}
root=${DESTDIR-}${PREFIX:-/usr/local}
share=$root/share

for program in braid braid-bench; do
	if [ ! -x "$programs/$program" ]; then
		echo "install.sh: no $program in $programs; build it: make release" >&2
		exit 1
	fi
done
install -d "$root/bin" "$share/man/man1" "$share/doc/braid/docs" \
	"$share/bash-completion/completions" "$share/zsh/site-functions" \
	"$share/fish/vendor_completions.d"
for program in braid braid-bench; do
	install "$programs/$program" "$root/bin/$program"
	"$programs/$program" completions bash >"$share/bash-completion/completions/$program"
	"$programs/$program" completions zsh >"$share/zsh/site-functions/_$program"
	"$programs/$program" completions fish >"$share/fish/vendor_completions.d/$program.fish"
	"$programs/$program" man "$share/man/man1"
done
install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT contrib/alerts.yml \
	"$share/doc/braid"
install -m 644 docs/*.md "$share/doc/braid/docs"
echo "installed below $root"
