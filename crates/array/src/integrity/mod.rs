//! Checksums of a member's data, beside md's: whether its table is to be trusted, which writes make
//! it so, and in which order.
//!
//! md may take the members at any moment, and gives them back without a word. So a table counts
//! only together with a superblock that is expected, and these rules keep it true over any loss of
//! power, each as a list of [steps](IntegrityStep) that a keeper carries out. What lies where:
//! [`format::integrity`](crate::format::integrity).
//!
//! - A page of the table is marked, durably, before the first write to its blocks begins.
//! - Blocks and checksums are durable before the mark is cleared.
//! - A superblock is accepted by the header, durably, before it is written, and so is the one that
//!   it replaces.
//! - All pages are marked, durably, before a superblock of somebody else is accepted.
//! - A marked page proves nothing: it is made anew.

mod accepted;
pub(crate) mod found;
mod marked;
mod new_area;
mod step;
mod trust;

#[cfg(test)]
mod tests;

pub use accepted::AcceptedSuperblocks;
pub use found::{FoundArea, storable};
pub use marked::MarkedPages;
pub use new_area::new_area;
pub use step::{IntegrityStep, IntegrityWrite};
pub use trust::{Trust, TrustError};
