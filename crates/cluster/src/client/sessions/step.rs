//! The way of a node that was lost and comes back.

/// How far a node that comes back is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Step {
    Connecting,
    /// A recovery target is asked which node it is.
    Asking,
    /// Does it know of no newer client?
    Granting,
    /// It has; what it was told last may still count.
    Granted,
    /// It drops what it had of slice-sets: they went on without it.
    Settling,
    Opening,
    /// Is it the member that was lost?
    Looking,
    Preparing,
    /// Its journal is emptied: what it had recorded counts no more.
    Emptying,
    /// Another one is being wired.
    Prepared,
    Wiring,
    /// A member is copied to it.
    Copying,
    /// What was copied is made durable.
    Flushing,
    /// A sample of that is read back.
    ReadingBack,
}
