#!/usr/bin/env bash
# Stands for the compiler of the workspace's own crates in the profile `checked`; called by cargo as
# RUSTC_WORKSPACE_WRAPPER with the compiler and its arguments.
#
# Each crate is compiled twice, as a library and with its unit tests in it. The second time it has
# all of its code, and is linted; and what unit tests do is little, so that it need not be optimised
# as programs are, which takes twice as long as all else. (A plain sh would drop variables whose
# names have a hyphen, as those of programs have by which tests find them.)
case " $* " in
*" --test "*) exec clippy-driver "$@" -C opt-level=1 ;;
*) exec "$@" ${CHECKED_RUSTC_ARGS-} ;;
esac
