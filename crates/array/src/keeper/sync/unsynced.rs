//! The sectors that wait for a resync, and the data that is lost among them with a member: where
//! sums may not fit the data, they do not tell what a strip held that is gone.
//!
//! Such data cannot be read any more, and is not rebuilt. So that it stays so after a stop, and for
//! md, the sums it would be computed from are noted in the bad-block logs of the members that hold
//! them; then nothing waits any more. Where the logs have no room, the resync stays pending, and
//! the array is dirty and degraded to whoever assembles it. A write that makes sums of all data
//! makes both readable again.

use std::borrow::Cow;

use super::Ranges;
use crate::MemberId;
use crate::events::ArrayEvent;
use crate::format::superblock::MAX_SECTOR;
use crate::keeper::core::Core;
use crate::keeper::{Redundancy, Strips};

const NO_ROOM: &str = "what no parity vouches for does not fit the bad-block logs";

/// The fate of a part of a stripe that waits for a resync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// All data can be read: its sums can be made to fit.
    Waits,
    /// There are no sums to make fit.
    Over,
    /// Data is lost that its sums do not tell.
    Lost,
}

/// The ranges that wait for a resync. `left` is `None` as long as offset and bitmap say it all,
/// then [`know_what_waits`](Self::know_what_waits) keeps it apart from them; it shrinks by
/// [`note_fitting`](Self::note_fitting) and by background work, or is lost by
/// [`write_off`](Self::write_off), until [`nothing_waits`](Self::nothing_waits).
#[derive(Debug, Default)]
pub(in crate::keeper) struct Unsynced {
    /// The waiting ranges, sector by sector.
    pub(in crate::keeper) left: Option<Ranges>,
    /// A resync has been there, and could not bring it in line.
    pub(in crate::keeper) left_behind: bool,
    /// Lost data cannot be noted, before something changes.
    pub(super) unmarkable: bool,
    /// Ranges that the running resync could not bring in line so far.
    pub(super) missed: Ranges,
    /// The reason why the ranges that were left are not tried again before something changes.
    pub(super) resync_waits: Option<Cow<'static, str>>,
    /// The array was started by force where sums may not fit, and no resync has ended since.
    pub(in crate::keeper) vouched: bool,
    /// Ranges that wait because their sums are noted as bad, and are in doubt for nothing else.
    pub(super) noted: Ranges,
}

impl Unsynced {
    /// Returns whether the array has sums of which some may not fit.
    fn sums_in_doubt(&self, core: &Core) -> bool {
        let sums = matches!(core.space.redundancy(), Redundancy::Parity(_));
        sums && core.metadata.has_to_resync()
    }

    /// Returns whether anything of this range is left, as far as that is known sector by sector.
    fn is_left(&self, start: u64, end: u64) -> bool {
        self.left.as_ref().is_some_and(|left| left.overlaps(start, end))
    }

    /// Returns whether this range of sync space is known to be in step: nothing of it waits for a
    /// resync, but for sums that are noted as bad.
    pub(in crate::keeper) fn in_step(&self, core: &Core, start: u64, end: u64) -> bool {
        let metadata = &core.metadata;
        end <= metadata.clean.resynced
            || metadata.intent.as_ref().is_some_and(|intent| !intent.needs_resync(start, end))
            || self.left.is_some() && !self.is_left(start, end)
            || self.noted.covers(start, end)
    }

    /// Takes note that a write has made sums from all data of these rows: they fit. Returns whether
    /// the rows waited for a resync.
    pub(in crate::keeper) fn note_fitting(&mut self, core: &Core, start: u64, end: u64) -> bool {
        if !self.sums_in_doubt(core) {
            return false;
        }
        self.know_what_waits(core);
        self.missed.remove(start, end);
        let waited = self.is_left(start, end);
        if let Some(left) = &mut self.left {
            left.remove(start, end);
        }
        waited
    }

    /// The space has become longer than so many sectors: what is new waits for a resync.
    pub(in crate::keeper) fn extend(&mut self, core: &mut Core, synced: u64) {
        let end = core.space.sync_sectors();
        if end <= synced {
            return;
        }
        if let Some(intent) = &mut core.metadata.intent
            && !crate::broken("grow-bitmap")
        {
            intent.need(synced, end);
            core.metadata.queue_whole_bitmap();
        }
        if let Some(left) = &mut self.left {
            left.insert(synced, end);
        }
        let clean = &mut core.metadata.clean;
        clean.resynced = clean.resynced.min(synced);
        clean.durable_resynced = clean.durable_resynced.min(synced);
    }

    /// A resync has come this far: nothing below waits.
    pub(super) fn note_resynced(&mut self, core: &Core) {
        if self.sums_in_doubt(core)
            && let Some(left) = &mut self.left
        {
            left.remove(0, core.metadata.clean.resynced);
        }
    }

    /// Bits of the bitmap that are needed tell what a missing member lacks, too: what waits for a
    /// resync is kept apart from them before there are any.
    pub(in crate::keeper) fn know_what_waits(&mut self, core: &Core) {
        if self.sums_in_doubt(core) && self.left.is_none() {
            self.left = Some(Self::waiting(core));
        }
    }

    /// Returns the ranges that wait for a resync, as the offset and the bitmap say.
    fn waiting(core: &Core) -> Ranges {
        let from = core.metadata.clean.resynced;
        let end = core.space.sync_sectors();
        let mut waiting = Ranges::default();
        match &core.metadata.intent {
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

    /// Returns how many sectors of each member wait for a resync, without which the others' parity
    /// does not tell what it held.
    pub(in crate::keeper) fn unvouched_sectors(&mut self, core: &Core) -> u64 {
        self.know_what_waits(core);
        self.left.as_ref().map_or(0, Ranges::sectors)
    }

    /// Tells whether there are sums that may not fit, and are not durably noted as bad.
    pub(in crate::keeper) fn any_unnoted(&self, core: &Core) -> bool {
        if !core.metadata.doubts_told() {
            return true;
        }
        match &self.left {
            Some(left) if core.metadata.has_to_resync() => {
                if left.is_empty() || self.noted.is_empty() {
                    return !left.is_empty();
                }
                let mut unnoted = left.clone();
                self.noted.iter().for_each(|(start, end)| unnoted.remove(start, end));
                !unnoted.is_empty()
            }
            _ => core.metadata.has_to_resync(),
        }
    }

    /// No resync will bring in line what is left: what is lost with members is noted as lost.
    pub(super) fn write_off(&mut self, core: &mut Core) {
        if !self.sums_in_doubt(core) || self.vouched || self.unmarkable {
            return;
        }
        self.know_what_waits(core);
        let Some(waiting) = self.left.clone() else { return };
        let mut left = waiting.clone();
        let mut lost = 0;
        let before: Vec<_> =
            core.members.iter().map(|(id, member)| (id, member.bad_blocks.clone())).collect();
        for (start, end) in waiting.iter() {
            let mut place = start;
            // One after the other: it may be all of the array.
            while place < end {
                let strips = core.space.strips_at(place, end);
                let fate = fate(core, &strips);
                // Sums that are known there were formed since.
                let is_noted = self.noted.covers(place, place + strips.places);
                let is_lost = fate == Fate::Lost && !is_noted;
                if is_lost && !mark_sums(core, &strips) {
                    for (id, bad_blocks) in before {
                        if let Some(member) = core.members.get_mut(id) {
                            member.bad_blocks = bad_blocks;
                        }
                    }
                    self.unmarkable = true;
                    self.resync_waits.get_or_insert(NO_ROOM.into());
                    return;
                }
                if is_lost {
                    lost += strips.sectors;
                }
                if fate != Fate::Waits {
                    left.remove(place, place + strips.places);
                }
                place += strips.places;
            }
        }
        let changed = |(id, bad_blocks): &(MemberId, _)| {
            core.members.get(*id).is_some_and(|member| member.bad_blocks != *bad_blocks)
        };
        for (id, _) in before.into_iter().filter(changed).collect::<Vec<_>>() {
            core.metadata.queue_doubts(id);
        }
        if lost > 0 {
            core.out.notify(ArrayEvent::DataLost { sectors: lost });
        }
        core.metadata.clean.resynced = left.first().unwrap_or(MAX_SECTOR);
        self.left = Some(left);
        self.end_if_nothing_waits(core);
    }

    /// All that waited has been written, or written off: the superblocks may say so after a flush.
    pub(super) fn end_if_nothing_waits(&mut self, core: &mut Core) {
        if self.sums_in_doubt(core) && self.left.as_ref().is_some_and(Ranges::is_empty) {
            self.nothing_waits(core);
            core.metadata.queue_superblock(true);
        }
    }

    /// No part of the array waits for a resync any more.
    pub(in crate::keeper) fn all_resynced(&mut self, core: &mut Core) {
        self.nothing_waits(core);
        core.metadata.clean.durable_resynced = MAX_SECTOR;
    }

    /// The same, as far as memory goes.
    pub(super) fn nothing_waits(&mut self, core: &mut Core) {
        self.left = None;
        self.noted = Ranges::default();
        self.left_behind = false;
        self.resync_waits = None;
        self.vouched = false;
        core.metadata.clean.resynced = MAX_SECTOR;
        self.note_bits_in_line(core);
    }

    /// Bits of the bitmap are needed for what is not in line alone, once no role is missing.
    pub(super) fn note_bits_in_line(&mut self, core: &mut Core) {
        if core.members.degraded() == 0
            && let Some(intent) = &mut core.metadata.intent
        {
            intent.resynced(|start, end| self.is_left(start, end));
        }
    }
}

/// Decides what becomes of a part of a stripe.
fn fate(core: &Core, strips: &Strips) -> Fate {
    let view = |role, row| core.members.view(role, row, strips.sectors, &[]);
    if !strips.data.iter().all(|&(role, row)| view(role, row).reader.is_some()) {
        return Fate::Lost;
    }
    let held = strips.sums.iter().any(|&(role, row)| view(role, row).writable());
    if held { Fate::Waits } else { Fate::Over }
}

/// Notes sums as bad on who holds them. False when a log has no room for that.
fn mark_sums(core: &mut Core, strips: &Strips) -> bool {
    for &(role, row) in &strips.sums {
        while let Some(place) = core.members.view(role, row, strips.sectors, &[]).reader {
            let Some(member) = core.members.get_mut(place.member) else { return false };
            let has_log = member.superblock.bblog_size_sectors != 0;
            if !has_log || !member.bad_blocks.insert(place.sector, strips.sectors) {
                return false;
            }
        }
    }
    true
}
