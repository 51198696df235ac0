//! What waits for a resync, sector by sector, and what of it is lost with a member: where sums may
//! not fit the data, they do not tell what a strip held that is gone.
//!
//! Such data cannot be read any more, and is not rebuilt. So that it stays so after a stop, and for
//! md, the sums it would be computed from are noted in the bad-block logs of the members that hold
//! them; then nothing waits any more. Where the logs have no room, the resync stays pending, and
//! the array is dirty and degraded to whoever assembles it. A write that makes sums of all data
//! makes both readable again.

use super::Ranges;
use crate::MemberId;
use crate::events::ArrayEvent;
use crate::format::superblock::MAX_SECTOR;
use crate::keeper::{Keeper, Redundancy};

const NO_ROOM: &str = "what no parity vouches for does not fit the bad-block logs";

/// What is to become of a part of a stripe that waits for a resync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// All data can be read: its sums can be made to fit.
    Waits,
    /// There are no sums to make fit.
    Over,
    /// Data is lost that its sums do not tell.
    Lost,
}

impl Keeper {
    /// Does the array have sums of which some may not fit, and nobody vouches for them?
    fn sums_in_doubt(&self) -> bool {
        let sums = matches!(self.space.redundancy(), Redundancy::Parity(_));
        self.rules.marks_lost && sums && self.has_to_resync()
    }

    /// A write has made sums from all data of these rows: they fit.
    pub fn note_fitting(&mut self, start: u64, end: u64) {
        if !self.sums_in_doubt() {
            return;
        }
        self.know_what_waits();
        self.sync.missed.remove(start, end);
        if let Some(left) = &mut self.sync.left {
            left.remove(start, end);
        }
    }

    /// A resync has come this far: nothing below waits.
    pub(super) fn note_resynced(&mut self) {
        if self.sums_in_doubt()
            && let Some(left) = &mut self.sync.left
        {
            left.remove(0, self.clean.resynced);
        }
    }

    /// Bits of the bitmap that are needed tell what a missing member lacks, too: what waits for a
    /// resync is kept apart from them before there are any.
    pub(crate) fn know_what_waits(&mut self) {
        if self.sums_in_doubt() && self.sync.left.is_none() {
            self.sync.left = Some(self.waiting());
        }
    }

    /// What waits for a resync, as the offset and the bitmap say.
    fn waiting(&self) -> Ranges {
        let (from, end) = (self.clean.resynced, self.space.sync_sectors());
        let mut waiting = Ranges::default();
        match &self.intent {
            None => waiting.insert(from, end),
            Some(intent) => {
                for (first, last) in intent.needed() {
                    if last > from && first < end {
                        waiting.insert(first.max(from), last.min(end));
                    }
                }
            }
        }
        waiting
    }

    /// How many sectors of each member wait for a resync, without which the others' parity does
    /// not tell what it held.
    pub(crate) fn unvouched_sectors(&mut self) -> u64 {
        self.know_what_waits();
        let left = self.sync.left.as_ref().filter(|_| self.rules.marks_lost);
        left.map_or(0, Ranges::sectors)
    }

    /// No resync will bring in line what is left: what is lost with members is noted as lost.
    pub(super) fn write_off(&mut self) {
        if !self.sums_in_doubt() || self.vouched || self.sync.unmarkable {
            return;
        }
        self.know_what_waits();
        let Some(waiting) = self.sync.left.clone() else { return };
        let (mut left, mut lost) = (waiting.clone(), 0);
        let before: Vec<_> =
            self.members.iter().map(|(id, member)| (id, member.bad_blocks.clone())).collect();
        for (start, end) in waiting.iter() {
            let mut row = start;
            while row < end {
                let (sums, sectors) = self.space.sums_at(row);
                let sectors = sectors.min(end - row);
                let fate = self.fate(&sums, row, sectors);
                if fate == Fate::Lost && !self.mark_sums(&sums, row, sectors) {
                    for (id, bad_blocks) in before {
                        if let Some(member) = self.members.get_mut(id) {
                            member.bad_blocks = bad_blocks;
                        }
                    }
                    self.sync.unmarkable = true;
                    self.sync.resync_waits.get_or_insert(NO_ROOM.into());
                    return;
                }
                if fate == Fate::Lost {
                    lost += sectors;
                }
                if fate != Fate::Waits {
                    left.remove(row, row + sectors);
                }
                row += sectors;
            }
        }
        let changed = |(id, bad_blocks): &(MemberId, _)| {
            self.members.get(*id).is_some_and(|member| member.bad_blocks != *bad_blocks)
        };
        for (id, _) in before.into_iter().filter(changed).collect::<Vec<_>>() {
            self.wish_bad_blocks(id);
        }
        if lost > 0 {
            self.notify(ArrayEvent::DataLost { sectors: lost });
        }
        self.clean.resynced = left.first().unwrap_or(MAX_SECTOR);
        self.sync.left = Some(left);
        self.end_if_nothing_waits();
    }

    fn fate(&self, sums: &[u16], row: u64, sectors: u64) -> Fate {
        let readable = |role: &u16| self.members.view(*role, row, sectors, &[]).reader.is_some();
        let mut data = (0..self.space.roles()).filter(|role| !sums.contains(role));
        if !data.all(|role| readable(&role)) {
            return Fate::Lost;
        }
        let held = |role: &u16| self.members.view(*role, row, sectors, &[]).writable();
        if sums.iter().any(held) { Fate::Waits } else { Fate::Over }
    }

    /// Notes sums as bad on who holds them. False when a log has no room for that.
    fn mark_sums(&mut self, sums: &[u16], row: u64, sectors: u64) -> bool {
        for role in sums {
            while let Some(place) = self.members.view(*role, row, sectors, &[]).reader {
                let Some(member) = self.members.get_mut(place.member) else { return false };
                let has_log = member.superblock.bblog_size_sectors != 0;
                if !has_log || !member.bad_blocks.insert(place.sector, sectors) {
                    return false;
                }
            }
        }
        true
    }

    /// All that waited has been written, or written off: the superblocks may say so after a flush.
    pub(super) fn end_if_nothing_waits(&mut self) {
        if self.sums_in_doubt() && self.sync.left.as_ref().is_some_and(Ranges::is_empty) {
            self.nothing_waits();
            self.wish_superblock(true);
        }
    }
}
