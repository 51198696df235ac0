//! What all of the node machine speaks of.

/// Our name for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u32);

/// An array, by its id.
pub(super) type ArrayId = [u8; 16];

/// What somebody did that no peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation(pub(super) &'static str);
