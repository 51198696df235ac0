//! A member is copied to the node that is to take its place: slices, and of these the blocks that
//! wait for a slot at the copy target or are under way.

use std::collections::{BTreeMap, VecDeque};

use braid_array::code::Cell;
use braid_array::keeper::Done;
use braid_array::{Buf, Instant, Role, SECTOR_BYTES};

use super::context::{Cx, Note};
use super::extent::{Piece, Whose};
use crate::client::Key;
use crate::client::out::RequestKind;
use crate::client::retry::PATIENCE_MILLIS;
use crate::client::session_key::SessionKey;
use crate::ids::Slot;
use crate::wire::Message;

/// A slice that is being copied.
#[derive(Debug)]
struct Slice {
    /// Blocks of it that are not over.
    left: u16,
    /// All that are over were copied.
    ok: bool,
}

/// A block of one that is on its way, into a slot at the target.
#[derive(Clone, Copy, Debug)]
struct OnItsWay {
    key: Key,
    row: u16,
    into: Slot,
}

/// The copy of a serving member. The old member's node reads a slice and puts it to the target, and
/// the client tells the target where to store it. No write goes to the slice meanwhile. The target
/// has no part in anything that is written.
///
/// ```text
/// none ─► copying ⇄ paused (the client makes durable and reads back what was copied) ─► none
/// ```
#[derive(Debug, Default)]
pub(in crate::client) struct Copies {
    /// The role of the member that is copied, while there is a target.
    role: Option<Role>,
    copying: bool,
    slices: BTreeMap<Key, Slice>,
    /// Blocks that wait for a slot at the target.
    waiting: VecDeque<(Key, u16)>,
    free: Vec<Slot>,
    /// By number.
    under_way: BTreeMap<u32, OnItsWay>,
    next: u32,
    /// Blocks that the target stores.
    storing: u32,
    /// Until when the target may take for what it was asked.
    due: Option<Instant>,
}

impl Copies {
    /// Begins the copy of this role, through this many slots.
    pub(in crate::client) fn begin(&mut self, role: Role, slots: u16) {
        let free = Slot::all(slots).rev().collect();
        let role = Some(role);
        *self = Self { role, copying: true, free, next: self.next, ..Self::default() };
    }

    /// Nothing is copied for now.
    pub(in crate::client) const fn pause(&mut self) {
        self.copying = false;
    }

    pub(in crate::client) const fn resume(&mut self) {
        self.copying = self.role.is_some();
    }

    /// Until when the target may take for what it was asked.
    pub(in crate::client) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns whether every slice queued so far has been copied.
    pub(in crate::client) fn is_done(&self) -> bool {
        self.slices.is_empty()
    }

    /// Begins to copy a slice that is not in use. Returns false when no copy is under way any more.
    pub(super) fn copy(&mut self, cx: &mut Cx<'_>, key: Key) -> bool {
        if !self.copying {
            return false;
        }
        let left = cx.shared.pipeline.rows();
        cx.shared.areas.reader_begins(key);
        self.slices.insert(key, Slice { left, ok: true });
        self.waiting.extend((0..left).map(|row| (key, row)));
        true
    }

    /// Requests the waiting blocks that find a slot.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        let Some(node) = self.role else { return };
        if !self.copying {
            return;
        }
        while let Some(into) = self.free.pop() {
            let Some((key, row)) = self.waiting.pop_front() else {
                return self.free.push(into);
            };
            let number = self.next;
            self.next = number.wrapping_add(1);
            self.under_way.insert(number, OnItsWay { key, row, into });
            let extent = cx.shared.whole_slice(key);
            let cell = Cell { row, node };
            if cx.is_unknown(&extent, cell) {
                // The others may tell it, when the new one has the role.
                self.block_over(cx, number, false);
                continue;
            }
            cx.shared.reads.queue(Piece {
                cell,
                extent,
                into: Buf { offset: 0, len: extent.len },
                whose: Whose::Copy { number, into },
            });
        }
    }

    /// A block is on its way to the target.
    pub(super) fn sent(&mut self, cx: &mut Cx<'_>, number: u32) {
        let Some(&OnItsWay { key, row, into: slot }) = self.under_way.get(&number) else { return };
        let target = SessionKey::CopyTarget;
        let entry = cx.members.entry(target);
        let slice = cx.shared.whole_slice(key);
        let byte = cx.shared.pipeline.member_byte(key.stripe, row, slice.at);
        let sector = entry.data_sector + byte / SECTOR_BYTES;
        let bytes = slice.len;
        let now = cx.now();
        let message = |tag| Message::StoreCopied { tag, slot, sector, bytes };
        cx.out.request((target, entry.peer), RequestKind::StoreCopied(number), now, message);
        self.storing += 1;
        self.due = Some(now.plus_millis(PATIENCE_MILLIS));
    }

    /// The target has stored a block.
    pub(super) fn stored(&mut self, cx: &mut Cx<'_>, number: u32) {
        self.storing = self.storing.saturating_sub(1);
        let now = cx.now();
        self.due = (self.storing > 0).then(|| now.plus_millis(PATIENCE_MILLIS));
        self.block_over(cx, number, true);
    }

    /// A block is copied, or cannot be read.
    pub(super) fn block_over(&mut self, cx: &mut Cx<'_>, number: u32, ok: bool) {
        let Some(OnItsWay { key, into, .. }) = self.under_way.remove(&number) else { return };
        self.free.push(into);
        let Some(slice) = self.slices.get_mut(&key) else { return };
        slice.left -= 1;
        slice.ok &= ok;
        if slice.left > 0 {
            return;
        }
        let ok = slice.ok;
        self.slices.remove(&key);
        cx.shared.areas.reader_gone(key);
        let done = if ok { Done::Well { equal: true } } else { Done::Unread(vec![]) };
        cx.note(Note::TaskOver { key, done });
    }

    /// Ends the copy: the target is gone.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>) {
        let Some(role) = self.role else { return };
        cx.shared.reads.withdraw(role, |whose| matches!(whose, Whose::Copy { .. }));
        let slices = std::mem::take(&mut self.slices);
        *self = Self { next: self.next, ..Self::default() };
        for key in slices.into_keys() {
            cx.shared.areas.reader_gone(key);
            cx.note(Note::TaskOver { key, done: Done::Failed });
        }
    }

    /// Returns the slices that must not be written.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.slices.keys().copied()
    }
}
