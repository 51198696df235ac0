//! Verification of a copied member: samples are read back before it replaces the serving member.

use braid_array::code::Cell;
use braid_array::keeper::SyncSpace;
use braid_array::{Buf, Compute, Instant, IoError, Outcome, Role, SECTOR_BYTES};

use super::context::{Cx, Shared};
use super::decode::Decodes;
use super::extent::{Piece, Whose};
use crate::client::Key;
use crate::client::out::IoPurpose;
use crate::client::retry::PATIENCE_MILLIS;
use crate::client::session_key::SessionKey;
use crate::digest::digest_bytes;
use crate::wire::Message;

/// One slice in this many is read back, and the last one.
const ONE_IN: u64 = 64;
/// Approximate limit of the sample; each slice may cost a seek.
const MOST: u64 = 1024;

/// Result of the verification of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Verdict {
    /// All of the sample is equal.
    Copied,
    /// The target does not hold it, for this reason.
    NotCopied(&'static str),
}

/// Comparison of a copy with its original, by a sample of slices: both nodes return the digests of
/// their stored content. The comparison runs when everything copied is durable, before the roles
/// are exchanged, one block at a time. No write goes to the slice of that block meanwhile. Slices
/// written since they were copied do not count: the bitmap marks them. A copy target that cannot
/// read a block, or has stored other content, is failed, and the old member stays.
#[derive(Debug, Default)]
pub(in crate::client) struct ReadBack {
    /// The role of the member that was copied, while its copy is read.
    role: Option<Role>,
    /// First place of the next slice in the space of background work.
    next: u64,
    block: Option<Block>,
    verdict: Option<Verdict>,
    /// Until when the target may take.
    due: Option<Instant>,
}

/// A block that is read.
#[derive(Debug)]
struct Block {
    key: Key,
    row: u16,
    /// Digests of the content of the member, and of the node that it was copied to.
    bufs: [Buf; 2],
    /// Answers that are missing.
    left: u8,
    unread: [bool; 2],
    /// The result is no longer wanted.
    abandoned: bool,
}

impl ReadBack {
    /// Begins the verification; everything copied of this role is durable.
    pub(in crate::client) fn begin(&mut self, role: Role) {
        self.role = Some(role);
        self.next = 0;
        self.verdict = None;
        self.due = None;
    }

    pub(in crate::client) const fn take_verdict(&mut self) -> Option<Verdict> {
        self.verdict.take()
    }

    /// Until when the target may take for what it was asked.
    pub(in crate::client) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the number of buffers in use.
    pub(super) fn buffers(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bufs.len())
    }

    /// Returns the slice that must not be written.
    pub(super) fn key(&self) -> Option<Key> {
        self.block.as_ref().filter(|block| !block.abandoned).map(|block| block.key)
    }

    /// Asks for the next block of the sample, if none is under way.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, decodes: &mut Decodes) {
        while let Some(role) = self.role
            && self.block.is_none()
        {
            let start = self.next;
            if start >= cx.shared.space.sync_sectors() {
                return self.judge(Verdict::Copied);
            }
            let key = cx.shared.space.key(start);
            let (from, to) = cx.shared.space.range(key);
            let slice = cx.shared.whole_slice(key);
            let mut cells = (0..cx.shared.pipeline.rows()).map(|row| Cell { row, node: role });
            let unknown = cells.any(|cell| cx.is_unknown(&slice, cell));
            if unknown || cx.shared.areas.is_written(key) || cx.keeper.copy_has_not(from, to) {
                self.next = next_of_sample(cx.shared, start);
                continue;
            }
            let len = cx.shared.whole_slice(key).len;
            let Some(bufs) = decodes.stage(cx.shared, 2, len) else { return };
            cx.shared.areas.reader_begins(key);
            self.read(cx, role, (key, 0), [bufs[0], bufs[1]]);
        }
    }

    /// Requests the digest of a block from both nodes.
    fn read(&mut self, cx: &mut Cx<'_>, role: Role, (key, row): (Key, u16), bufs: [Buf; 2]) {
        let target = SessionKey::CopyTarget;
        let extent = cx.shared.whole_slice(key);
        let cell = Cell { row, node: role };
        let [held, given] = bufs.map(|into| Piece { cell, extent, into, whose: Whose::ReadBack });
        let block = Block { key, row, bufs, left: 2, unread: [false; 2], abandoned: false };
        self.block = Some(block);
        if cx.members.alive(role) {
            cx.shared.reads.queue(held);
        } else {
            self.came(cx, false, false);
        }
        let base = cx.shared.pipeline.base_reads();
        let Some(slot) = cx.shared.reads.occupy(target, base, given) else {
            return self.came(cx, true, false);
        };
        let byte = cx.shared.pipeline.member_byte(key.stripe, row, extent.at);
        let sector = cx.members.entry(target).data_sector + byte / SECTOR_BYTES;
        let bytes = extent.len;
        let to = given.into.offset;
        self.due = Some(cx.now().plus_millis(PATIENCE_MILLIS));
        cx.send(target, &Message::Digest { slot, sector, bytes, to });
    }

    /// Takes the answer of the new or the old node: its digest, or a read error.
    pub(super) fn came(&mut self, cx: &mut Cx<'_>, new: bool, ok: bool) {
        let Some(block) = &mut self.block else { return };
        block.left -= 1;
        block.unread[usize::from(new)] |= !ok;
        if new && !block.abandoned {
            self.due = None;
        }
        if block.left > 0 {
            return;
        }
        match (block.abandoned, block.unread) {
            (true, _) => self.end_block(cx.shared),
            (_, [_, true]) => {
                self.not_copied(cx, "what was copied to it cannot be read back");
            }
            // The others have given it to the new one, or will.
            (_, [true, false]) => self.next_block(cx),
            (_, [false, false]) => {
                let [a, b] = block.bufs.map(|buf| buf.slice(0, digest_bytes(buf.len)));
                cx.out.compute(IoPurpose::ReadBack, Compute::Compare { a, b });
            }
        }
    }

    /// Judges the result of a digest comparison.
    pub(super) fn compared(&mut self, cx: &mut Cx<'_>, result: Result<Outcome, IoError>) {
        let Some(block) = &self.block else { return };
        let equal = matches!(result, Ok(Outcome::Checked(checked)) if checked.differs() == 0);
        let (from, to) = cx.shared.space.range(block.key);
        if block.abandoned {
            self.end_block(cx.shared);
        } else if equal || cx.keeper.is_marked(from, to) {
            // What is marked the others give to the new one.
            self.next_block(cx);
        } else {
            self.not_copied(cx, "it does not hold what was copied to it");
        }
    }

    /// Continues with the next row of the slice, or the next slice.
    fn next_block(&mut self, cx: &mut Cx<'_>) {
        let (Some(role), Some(block)) = (self.role, &self.block) else { return };
        let Block { key, row, bufs, .. } = *block;
        if row + 1 < cx.shared.pipeline.rows() {
            return self.read(cx, role, (key, row + 1), bufs);
        }
        self.end_block(cx.shared);
        cx.shared.areas.reader_gone(key);
        self.next = next_of_sample(cx.shared, self.next);
    }

    fn end_block(&mut self, shared: &mut Shared) {
        if let Some(block) = self.block.take() {
            shared.staging.give(block.bufs);
        }
    }

    /// Ends the verification: the copy is unusable.
    fn not_copied(&mut self, cx: &mut Cx<'_>, reason: &'static str) {
        if let Some(key) = self.key() {
            self.end_block(cx.shared);
            cx.shared.areas.reader_gone(key);
        }
        self.judge(Verdict::NotCopied(reason));
    }

    const fn judge(&mut self, verdict: Verdict) {
        self.role = None;
        self.verdict = Some(verdict);
    }

    /// Ends the verification without a result: the target is gone. The old member may still answer;
    /// until then its buffer is not free.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, role: Role) {
        self.role = None;
        self.verdict = None;
        self.due = None;
        let Some(block) = &mut self.block else { return };
        if block.abandoned {
            return;
        }
        block.abandoned = true;
        let key = block.key;
        cx.shared.areas.reader_gone(key);
        let ours = |whose| whose == Whose::ReadBack;
        let target = SessionKey::CopyTarget;
        if cx.shared.reads.abandon(target, ours) > 0 {
            self.came(cx, true, false);
        }
        if cx.shared.reads.withdraw(role, ours) > 0 {
            self.came(cx, false, false);
        }
    }
}

/// Returns the place of the next slice of the sample.
fn next_of_sample(shared: &Shared, place: u64) -> u64 {
    let end = shared.space.sync_sectors();
    let slice = shared.space.unit_sectors();
    let first = |place: u64| shared.space.range(shared.space.key(place)).0;
    let last = first(end - 1);
    let step = (end / MOST).max(slice * ONE_IN);
    if first(place) < last { first((place + step).min(last)) } else { end }
}
