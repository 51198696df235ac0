#!/usr/bin/env bash
# Runs promtool as Debian packages it. Its package, `prometheus`, is unpacked into target/promtool
# and not installed: a Prometheus that starts with the machine is not for a test to bring.
# usage: promtool.sh WORD...
# Status: promtool's own. 125: it cannot be had here.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 125
refuse() { echo "promtool.sh: $*" >&2; exit 125; }

if command -v promtool >/dev/null; then
	exec promtool "$@"
fi
promtool=$PWD/target/promtool
mkdir -p target
# Two that want it at the same time get it once.
exec 9>target/promtool.lock
flock 9
if [ ! -x "$promtool" ]; then
	command -v apt-get >/dev/null || refuse "no apt-get here; install promtool"
	work=$(mktemp -d) || refuse "no temporary directory"
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && apt-get download prometheus) >"$work/log" 2>&1 ||
		refuse "cannot download prometheus: $(tail -n 1 "$work/log"); run apt-get update"
	dpkg-deb --fsys-tarfile "$work"/*.deb | tar -xC "$work" ./usr/bin/promtool ||
		refuse "cannot unpack promtool"
	mv "$work/usr/bin/promtool" "$promtool" || refuse "cannot write $promtool"
fi
flock -u 9
"$promtool" "$@"
