//! A copy of the state for people and scripts.

use super::Keeper;
use super::members::State;
use super::sync::Ranges;
use crate::status::{ArrayState, BitmapStatus, MemberStatus, Status};

impl Keeper {
    /// It.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut superblock = self.superblock.clone();
        superblock.resync_offset = if self.clean.on_disk { self.clean.durable_resynced } else { 0 };
        superblock.feature_map |= self.elsewhere.all_features();
        let left = self.sync.left.as_ref().filter(|_| self.sync.left_behind);
        let unsynced_sectors = left.map_or(0, Ranges::sectors);
        // Who hears "clean" may rely on it, so the members know it before.
        let active = self.clean.active || !self.is_told(self.clean.ticket);
        let state = if self.failed {
            ArrayState::Failed
        } else if self.read_only || self.writes_over {
            ArrayState::ReadOnly
        } else if (active || unsynced_sectors > 0) && self.is_redundant() {
            ArrayState::Active
        } else {
            ArrayState::Clean
        };
        let members = self
            .members
            .iter()
            .map(|(member, m)| MemberStatus {
                member,
                device: m.device.clone(),
                role: m.state.role().filter(|_| m.state.is_live()),
                number: m.superblock.dev_number as u16,
                state: m.state.public(),
                replacement: matches!(m.state, State::Rebuilding { replacement: true, .. }),
                want_replacement: m.want_replacement,
                devflags: m.superblock.devflags,
                events: self.superblock.events,
                errors: m.errors,
                unreliable: m.state.is_live() && m.doubts.any(),
                slow_ms: None,
                refused: None,
                recovery_offset_sectors: match m.state {
                    State::Rebuilding { offset, .. } => Some(offset),
                    _ => None,
                },
            })
            .collect();
        Status {
            superblock,
            array_sectors: self.space.array_sectors(),
            used_member_sectors: self.space.member_sectors(),
            state,
            writes_over: self.writes_over && !self.read_only,
            degraded: self.members.degraded(),
            members,
            sync: self.sync.status(self.now),
            mismatch_sectors: self.sync.checked_once.then_some(self.sync.mismatch_sectors),
            unreadable_sectors: self.sync.unread.sectors,
            unreadable: self.sync.unread.places(),
            trusted_sectors: self.sync.trusted.sectors,
            trusted: self.sync.trusted.places(),
            uncompared_sectors: self.sync.uncompared_sectors,
            unsynced_sectors,
            held_up: self.held_up(),
            bitmap: self.intent.as_ref().map(|intent| BitmapStatus {
                chunk_bytes: intent.bitmap.superblock.chunk_bytes.into(),
                bits: intent.bitmap.bits(),
                dirty_bits: intent.dirty_bits(),
            }),
            journal_bytes: self.elsewhere.journal_bytes,
            waiting: None,
            view: None,
            children: Vec::new(),
        }
    }
}
