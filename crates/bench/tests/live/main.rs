//! The comparisons with the real programs. `braid` has to be built, too: all of the workspace is.

mod cluster;
mod cut_off;
mod engine;
mod lab;
mod levels;
mod once;
mod policies;
mod rig;
mod spaces;
mod states;
#[path = "../../../cli/tests/live/support/mod.rs"]
mod support;
mod turns;
