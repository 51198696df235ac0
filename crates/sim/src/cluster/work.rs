//! Work of executors that processes wait for.

use braid_array::fabric::{NoteOp, VolumeOp};
use braid_array::{Buf, Compute, IoId, IoOp, MemberId};

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
        member: MemberId,
        op: IoOp,
        /// The cache's mark when a flush was issued.
        mark: u64,
    },
    Compute(Compute),
    Load(Buf),
    Volume(VolumeOp),
    Note(NoteOp),
    /// After this name, and how many at most.
    Survey(String, usize),
}
