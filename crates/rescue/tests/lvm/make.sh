#!/usr/bin/env bash
# Makes physical volumes by LVM2 itself, with logical volumes that the kernel's device-mapper wrote
# stamps into: volumes.tar.gz, beside this script. Needs what scripts/setup.sh installs, and lvm2.
# usage: make.sh
set -eu
cd "$(dirname "$(realpath "$0")")"
work=$(mktemp -d "${TMPDIR:-/tmp}/rescue-lvm.XXXXXX")
trap 'rm -rf "$work"' EXIT
for volume in pv0 pv1 pv2; do truncate -s 40M "$work/$volume"; done
here=$PWD
cd "$work"
TMPDIR=$work "$here/../../../../tests/md/run-md.sh" "$here/make-guest.sh" pv0 pv1 pv2
tar --sort=name --mtime=@0 --owner=0 --group=0 -Scf - pv0 pv1 pv2 |
	gzip -9n >"$here/volumes.tar.gz"
