//! Work of executors that processes wait for.

use braid_array::fabric::{NoteOp, VolumeOp};
use braid_array::{Buf, Compute, IoId, IoOp};

use super::claims::ClaimId;

/// Something a process waits for.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) process: usize,
    pub(super) io: IoId,
    pub(super) claims: Vec<ClaimId>,
    pub(super) task: Task,
}

/// What is done for a process.
#[derive(Debug)]
pub(super) enum Task {
    Io {
        /// The number of the process's device.
        device: usize,
        /// The store beside that is meant.
        beside: bool,
        op: IoOp,
        /// The cache's mark when a flush was issued.
        mark: u64,
        /// The machine waits for it no longer.
        abandoned: bool,
    },
    Compute {
        compute: Compute,
        /// The machine waits for it no longer.
        abandoned: bool,
    },
    Load(Buf),
    Volume(VolumeOp),
    Note(NoteOp),
    /// After this name, and how many at most.
    Survey(String, usize),
}
