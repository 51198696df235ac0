//! An update of metadata as a value: what it is to write, and how far it has come.
//! [`phases`](super::phases) carries it out.

use std::collections::BTreeSet;

use crate::MemberId;

/// A superblock, a bad-block log or a page of the bitmap; no page is longer.
pub const PAGE_BYTES: u32 = 4096;

/// Metadata for a member.
#[derive(Clone, Debug)]
pub struct MetaWrite {
    /// The member.
    pub member: MemberId,
    /// Sector of the device.
    pub sector: u64,
    /// Contents: whole blocks, at most a page.
    pub bytes: Vec<u8>,
}

/// Everything that an update has to do.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Anything at all.
    pub(super) any: bool,
    pub(super) flush: bool,
    pub(super) superblock: bool,
    pub(super) bitmap_pages: BTreeSet<usize>,
    pub(super) bad_blocks: BTreeSet<MemberId>,
    /// Chunks of the bitmap that are idle are looked for; never together with `clear_bits`.
    pub(super) nominate: bool,
    /// `events_cleared` becomes the event count that all members have.
    pub(super) note_cleared: bool,
    pub(super) clear_bits: bool,
    pub(super) catch_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdatePhase {
    /// Superblocks of members that missed the last update before the array was started.
    CatchUp,
    Flush,
    Pages,
    /// Superblocks of members that have just become in sync.
    Arrivals,
    /// Superblocks of all others.
    Superblocks,
}

/// The update under way.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) phase: UpdatePhase,
    /// Number of commands that have not been answered.
    pub(super) pending: usize,
    /// Members whose superblocks the phase of arrivals writes, until that is over.
    pub(super) arrivals: Vec<MemberId>,
    /// Members of whose loss the superblocks of the last phase tell first.
    pub(super) losses: Vec<MemberId>,
    /// The superblocks of the last phase, made together with those of the phase before.
    pub(super) superblocks: Vec<MetaWrite>,
    pub(super) wanted: Wanted,
    pub(super) bad_block_pages: Vec<MetaWrite>,
    /// The array was idle when this began, so the superblocks may say clean.
    pub(super) clean: bool,
    /// Progress of recovery, by member, when the flush began; durable after it.
    pub(super) recovered: Vec<(MemberId, u64)>,
    pub(super) resynced: u64,
    /// How far data had moved then.
    pub(super) position: u64,
    /// The tail of the journal when the flush began.
    pub(super) journal_tail: Option<u64>,
}
