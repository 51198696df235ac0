# Has each build of this shell lint what it compiles of the workspace, in the same pass: a second
# one only to lint takes as long as half a build. What one such build has made others use, and
# those without it make all anew.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
