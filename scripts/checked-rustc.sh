#!/usr/bin/env bash
# Stands for the compiler of the workspace's own crates in the profile `checked`; called by cargo as
# RUSTC_WORKSPACE_WRAPPER with the compiler and its arguments.
#
# Each crate is compiled twice, as a library and with its unit tests in it. The second time it has
# all of its code, and is linted; and what most unit tests do is so little that to optimise it takes
# longer than they do. Those of `array` and `parity` compute, and so do programs of tests alone. (A
# plain sh would drop variables whose names have a hyphen, as those of programs have by which tests
# find them.)
level=1
case " $* " in
*" --crate-name braid_array "* | *" --crate-name braid_parity "*) ;;
*" --crate-name braid_"*) level=0 ;;
esac
case " $* " in
*" --test "*) exec clippy-driver "$@" -C opt-level=$level ;;
*) exec "$@" ${CHECKED_RUSTC_ARGS-} ;;
esac
