//! What is thrown at the decoders, and what must hold whatever is thrown: plain functions, for the
//! driver in `main` and for cargo-fuzz in `libfuzzer/`.
#![forbid(unsafe_code)]

mod messages;
pub mod mutate;
mod start;
mod targets;

pub use targets::{TARGETS, Target};

/// The target of this name.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of that name")
}
