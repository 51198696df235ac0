//! What the system refuses, as people are told.

use std::io;

use braid_array::Refusal;

use crate::member::describe;

/// The system has no more of something.
pub(crate) fn refused_by_system(error: &io::Error) -> Refusal {
    Refusal::new(
        format!("the system refuses: {}", describe(error)),
        "check its limits (memory, descriptors)",
    )
}
