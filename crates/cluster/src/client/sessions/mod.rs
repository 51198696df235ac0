//! The sessions with the nodes: how each comes about, at the start and when a node comes back,
//! takes the place of another one, or is given a copy; and how it ends.

pub(super) mod absent;
pub(super) mod copy_target;
pub(super) mod departed;
pub(super) mod losing;
pub(super) mod presence;
pub(super) mod recovery;
pub(super) mod refused;
pub(super) mod returning;
pub(super) mod setup;
pub(super) mod silence;
pub(super) mod spare;
pub(super) mod step;
