//! What the system refuses, as people are told.

use std::io;

use braid_array::Refusal;

/// The system has no more of something.
pub(crate) fn refused_by_system(error: &io::Error) -> Refusal {
    Refusal::new(
        format!("the system refuses: {}", describe(error)),
        "check its limits (memory, descriptors)",
    )
}

/// An error of the system without Rust's "(os error N)".
pub(crate) fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
