# Sets the compiler for the profile `checked`: it lints what it compiles of the workspace, in the
# same pass, as a second one only to lint takes half as long as a build. To be sourced by whatever
# builds that profile: builds with and without it share nothing.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
