//! What was copied to a node is read back before it takes the place of a member that serves.

use braid_array::code::Cell;
use braid_array::{Action, Buf, Compute, IoError, Outcome, Refusal, SECTOR_BYTES};

use super::extent::{Extent, Piece, Whose};
use super::setup::LinkState;
use super::step::Step;
use super::{Client, IoPurpose, Key, Message, SyncSpace};
use crate::digest::digest_bytes;

/// One slice in so many is read back, and the last one.
const ONE_IN: u64 = 64;
/// No more than about so many, each of which may be a seek.
const MOST: u64 = 1024;
const ADVICE: &str = "see whether its storage is well, and replace the member by another one";

/// The comparison of a copy with its original, by a sample of slices: both nodes tell the digests
/// of what they have stored. It runs between [`Client::begin_to_read_back`] and the exchange of the
/// two, one block at a time, and nobody writes to the slice of that block meanwhile. Slices that
/// were written since they were copied do not count: the bitmap marks them. A copy target that
/// cannot read a block, or has stored something else, is failed, and the old member stays.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    /// First place of the next slice in the space of background work.
    next: u64,
    block: Option<Block>,
}

/// A block that is read.
#[derive(Debug)]
struct Block {
    key: Key,
    row: u16,
    /// Digests of what the member has stored, and the node that it was copied to.
    bufs: [Buf; 2],
    /// Answers that are missing.
    left: u8,
    unread: [bool; 2],
    /// Nobody wants to know any more.
    abandoned: bool,
}

impl ReadBack {
    /// How many buffers it holds.
    pub(super) fn buffers(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bufs.len())
    }
}

impl Client {
    /// All that was copied is durable.
    pub(super) fn begin_to_read_back(&mut self) {
        let beside = self.beside();
        let link = &mut self.links[usize::from(beside)];
        link.state = LinkState::Returning(Step::ReadingBack);
        link.due = None;
        self.read_back.next = 0;
    }

    /// Asks for the next block of the sample. When there is none the new one takes over.
    pub(super) fn read_back(&mut self, place: u16) {
        let reading = LinkState::Returning(Step::ReadingBack);
        let beside = usize::from(self.beside());
        while self.links[beside].state == reading && self.read_back.block.is_none() {
            let (start, end) = (self.read_back.next, self.space.sync_sectors());
            if start >= end {
                return self.exchange();
            }
            let key = self.space.key(start);
            let (from, to) = self.space.range(key);
            let used = self.areas.get(&key).is_some_and(|area| area.sets > 0);
            if used || self.keeper.copy_has_not(from, to) {
                self.read_back.next = self.next_of_sample(start);
                continue;
            }
            let Some(bufs) = self.stage(2, self.slice_len(key.1)) else { return };
            self.areas.entry(key).or_default().readers += 1;
            self.filling.hold(key);
            self.read_back_block(place, key, 0, [bufs[0], bufs[1]]);
        }
    }

    /// The place of the slice that follows the one at this place in the sample.
    fn next_of_sample(&self, place: u64) -> u64 {
        let (end, slice) = (self.space.sync_sectors(), self.space.unit_sectors());
        let first = |place: u64| self.space.range(self.space.key(place)).0;
        let last = first(end - 1);
        let step = (end / MOST).max(slice * ONE_IN);
        if first(place) < last { first((place + step).min(last)) } else { end }
    }

    /// Both are asked for the digest of a block.
    fn read_back_block(&mut self, place: u16, key: Key, row: u16, bufs: [Buf; 2]) {
        let beside = self.beside();
        let (at, len) = (key.1 * self.slice_bytes(), self.slice_len(key.1));
        let extent = Extent { stripe: key.0, index: 0, at, len };
        let [held, given] = bufs.map(|into| Piece {
            cell: Cell { row, node: place },
            extent,
            into,
            whose: Whose::ReadBack,
        });
        let sector = self.data_sector(beside);
        let sector = sector + self.pipeline.member_byte(key.0, row, at) / SECTOR_BYTES;
        let base = self.pipeline.base_reads();
        let block = Block { key, row, bufs, left: 2, unread: [false; 2], abandoned: false };
        self.read_back.block = Some(block);
        self.queue_or_fail(held);
        let link = &mut self.links[usize::from(beside)];
        let Some(slot) = link.take_slot(base) else { return self.read_back_came(true, false) };
        link.slots[usize::from(slot)] = Some(given);
        self.give_time();
        let to = given.into.offset;
        self.send(beside, &Message::Digest { slot, sector, bytes: len, to });
    }

    fn queue_or_fail(&mut self, piece: Piece) {
        if self.alive(piece.cell.node) {
            self.queue(piece);
        } else {
            self.read_back_came(false, false);
        }
    }

    /// One of them, the new one or the old one, has told its digest, or cannot read the block.
    pub(super) fn read_back_came(&mut self, new: bool, ok: bool) {
        let beside = self.beside();
        let Some(block) = &mut self.read_back.block else { return };
        block.left -= 1;
        block.unread[usize::from(new)] |= !ok;
        if new && !block.abandoned {
            self.links[usize::from(beside)].due = None;
        }
        let Some(block) = self.read_back.block.as_ref().filter(|block| block.left == 0) else {
            return;
        };
        match (block.abandoned, block.unread) {
            (true, _) => self.read_back_ends(),
            (_, [_, true]) => self.not_copied("what was copied to it cannot be read back"),
            // The others have given it to the new one, or will.
            (_, [true, false]) => self.next_block(),
            (_, [false, false]) => {
                let [a, b] = block.bufs.map(|buf| buf.slice(0, digest_bytes(buf.len)));
                let io = self.io(IoPurpose::ReadBack);
                let compute = Compute::Compare { a, b };
                self.actions.push_back(Action::Compute { io, compute });
            }
        }
    }

    /// The digests were compared.
    pub(super) fn read_back_compared(&mut self, result: Result<Outcome, IoError>) {
        let Some(block) = &self.read_back.block else { return };
        let equal = matches!(result, Ok(Outcome::Checked(checked)) if checked.differs() == 0);
        let (from, to) = self.space.range(block.key);
        match block.abandoned {
            true => self.read_back_ends(),
            // What is marked the others give to the new one.
            false if equal || self.keeper.is_marked(from, to) => self.next_block(),
            false => self.not_copied("it does not hold what was copied to it"),
        }
    }

    /// The next row of the slice, or the next slice.
    fn next_block(&mut self) {
        let copied = self.newcomer.as_ref().and_then(|one| one.copied());
        let (Some((place, ..)), Some(block)) = (copied, &self.read_back.block) else { return };
        let Block { key, row, bufs, .. } = *block;
        if row + 1 < self.pipeline.rows() {
            return self.read_back_block(place, key, row + 1, bufs);
        }
        self.read_back_ends();
        self.let_slice_go(key);
        self.read_back.next = self.next_of_sample(self.read_back.next);
    }

    fn read_back_ends(&mut self) {
        if let Some(block) = self.read_back.block.take() {
            self.staging.give(block.bufs);
        }
    }

    /// The new one is of no use.
    fn not_copied(&mut self, reason: &'static str) {
        let beside = self.beside();
        let copied = self.newcomer.as_ref().and_then(|one| one.copied());
        let Some((_, _, spare)) = copied else { return };
        self.read_back_ends();
        let why = Refusal::new(reason, ADVICE);
        self.newcomer_hears(beside, why.clone());
        self.return_fails(beside);
        let spare = self.keeper.spares().find(|one| one.device == spare).map(|one| one.member);
        if let Some(spare) = spare {
            self.keeper.lose_member(spare, why);
        }
        self.carry_out();
    }

    /// There is nobody to read it from any more; the old one may still answer, and until then its
    /// buffer is not free.
    pub(super) fn abandon_read_back(&mut self, place: u16) {
        let Some(block) = &mut self.read_back.block else { return };
        block.abandoned = true;
        let beside = usize::from(self.beside());
        let ours = |piece: &Piece| matches!(piece.whose, Whose::ReadBack);
        let slots = &mut self.links[beside].slots;
        let given = slots.iter_mut().filter_map(|slot| slot.take_if(|piece| ours(piece))).count();
        let queue = &mut self.links[usize::from(place)].queue;
        let queued = queue.len();
        queue.retain(|piece| !ours(piece));
        let held = queued - queue.len();
        let answers = [(true, given), (false, held)];
        for (new, _) in answers.into_iter().filter(|(_, count)| *count > 0) {
            self.read_back_came(new, false);
        }
    }
}
