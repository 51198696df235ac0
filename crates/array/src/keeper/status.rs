//! A copy of the state for people and scripts.

use super::core::{Core, Service};
use super::intent::Intent;
use super::members::{Members, State};
use super::spill::Spill;
use super::sync::Ranges;
use super::{Keeper, KeeperView};
use crate::events::SyncAction;
use crate::format::journal::BLOCK_SECTORS;
use crate::format::superblock::feature;
use crate::status::{
    ArrayState, BitmapStatus, JournalMode, JournalStatus, MemberStatus, Status, SyncStatus,
};

impl KeeperView<'_> {
    /// Returns the status of the array.
    #[must_use]
    pub fn status(self) -> Status {
        let Core { service, metadata, members, .. } = &self.keeper.core;
        let clean = &metadata.clean;
        let mut superblock = metadata.superblock.clone();
        superblock.resync_offset = metadata.resync_offset(clean.on_disk);
        superblock.feature_map |= metadata.journals.all_features();
        let has_journal = superblock.has(feature::JOURNAL);
        let unsynced = &self.keeper.sync.unsynced;
        let left = if unsynced.left_behind { unsynced.left.as_ref() } else { None };
        let unsynced_sectors = left.map_or(0, Ranges::sectors);
        // Who hears "clean" may rely on it, so the members know it before.
        let active = clean.active || !metadata.is_done(clean.ticket);
        let state = state(*service, active || unsynced_sectors > 0);
        let sync = &self.keeper.sync;
        let scrub = &sync.scrub;
        let intent = metadata.intent.as_ref();
        let bitmap_sectors = intent.map_or(0, |intent| intent.bitmap.size_sectors());
        let statuses = members
            .iter()
            .map(|(member, m)| MemberStatus {
                member,
                device: m.device.clone(),
                role: if m.state.is_live() { m.state.role() } else { None },
                number: m.superblock.dev_number as u16,
                state: m.state.public(),
                replacement: matches!(m.state, State::Rebuilding { replacement: true, .. }),
                want_replacement: m.want_replacement,
                needed: self.keeper.core.needs(member),
                devflags: m.superblock.devflags,
                data_sectors: m.data_room(),
                told_sectors: m.superblock.data_size,
                data_offset: m.superblock.data_offset,
                head_sectors: m.head_room(bitmap_sectors),
                events: metadata.superblock.events,
                errors: m.errors,
                corrected_reads: m.superblock.corrected_reads,
                unreliable: m.state.is_live() && m.doubts.any(),
                slow_ms: None,
                refused: None,
                awaited: false,
                recovery_offset_sectors: m.state.rebuilt_below(),
            })
            .collect();
        Status {
            superblock,
            array_sectors: self.keeper.core.space.array_sectors(),
            used_member_sectors: self.keeper.core.space.member_sectors(),
            state,
            writes_over: service.writes_over && !service.read_only,
            degraded: members.degraded(),
            members: statuses,
            sync: sync_status(self.keeper),
            mismatch_sectors: scrub.checked_once.then_some(scrub.mismatch_sectors),
            unreadable_sectors: sync.unread.sectors,
            unreadable: sync.unread.places(),
            trusted_sectors: scrub.trusted.sectors,
            trusted: scrub.trusted.places(),
            uncompared_sectors: scrub.uncompared_sectors,
            unsynced_sectors,
            held_up: sync.held_up(),
            bitmap: metadata.intent.as_ref().map(bitmap),
            journal: if has_journal { journal(members) } else { None },
            journal_mode: JournalMode::default(),
            integrity: None,
            journal_bytes: metadata.journals.journal_bytes,
            spill: self.keeper.core.spill.as_ref().map(Spill::status),
            waiting: None,
            view: None,
            children: Vec::new(),
        }
    }
}

/// The background work, a reshape of whose end the members are told, or the resync of what is new,
/// which begins as soon as the members know of that.
fn sync_status(keeper: &Keeper) -> SyncStatus {
    let Core { now, service, metadata, space, .. } = &keeper.core;
    let status = keeper.sync.status(*now);
    if keeper.growing.is_concluding() {
        let total_sectors = space.sync_sectors();
        let done_sectors = total_sectors;
        return SyncStatus { action: SyncAction::Reshape, total_sectors, done_sectors, ..status };
    }
    if !(service.growing && metadata.has_to_resync()) {
        return status;
    }
    let total_sectors = space.sync_sectors();
    let done_sectors = metadata.clean.resynced.min(total_sectors);
    SyncStatus { action: SyncAction::Resync, total_sectors, done_sectors, ..status }
}

fn state(service: Service, is_active: bool) -> ArrayState {
    if service.failed {
        ArrayState::Failed
    } else if service.read_only || service.writes_over {
        ArrayState::ReadOnly
    } else if is_active && service.redundant {
        ArrayState::Active
    } else {
        ArrayState::Clean
    }
}

fn bitmap(intent: &Intent) -> BitmapStatus {
    let bitmap = &intent.bitmap;
    let dirty_bits = intent.dirty_bits();
    let parts = bitmap.bits().min(BitmapStatus::PARTS);
    BitmapStatus {
        chunk_bytes: bitmap.superblock.chunk_bytes.into(),
        bits: bitmap.bits(),
        dirty_bits,
        marks: if dirty_bits > 0 { bitmap.counts(parts) } else { Vec::new() },
    }
}

/// Returns what the keeper knows of a journal.
fn journal(members: &Members) -> Option<JournalStatus> {
    let (member, found) = members.journal()?;
    let size_sectors = found.superblock.data_size / BLOCK_SECTORS * BLOCK_SECTORS;
    Some(JournalStatus {
        member,
        size_sectors,
        used_sectors: None,
        mode: JournalMode::WriteThrough,
        dirty_bytes: 0,
    })
}
