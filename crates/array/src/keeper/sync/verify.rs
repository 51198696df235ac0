//! What a member was given is read back before it takes a role over: of what was rebuilt on it, a
//! sample of units is compared with what the others say. One that cannot read them, or holds
//! something else, fails; a member that it was to replace stays.

use super::{Done, Phase, Unit, Work};
use crate::MemberId;
use crate::events::{Fault, SyncAction};
use crate::keeper::Keeper;
use crate::keeper::intent::Intent;
use crate::keeper::members::State;

/// One unit in so many is read back, and the last one: two hundredths of what was written.
const ONE_IN: u64 = 64;
/// No more than about so many, each of which may be a seek.
const MOST: u64 = 1024;

impl Keeper {
    /// What was done is durable: what members are to take over with is read back first.
    pub(super) fn begin_to_verify(&mut self) {
        let rebuilt = self.sync.action == SyncAction::Recovery && !self.rebuilt().is_empty();
        let complete = self.sync.interrupted.is_none() && !self.failed;
        if rebuilt && complete && self.rules.reads_back {
            self.sync.phase = Phase::Verifying(0);
            self.pump_verify(0);
        } else {
            self.take_over();
        }
    }

    /// Asks for the next units of the sample, from this place on.
    pub(super) fn pump_verify(&mut self, mut next: u64) {
        while self.sync.interrupted.is_none()
            && !self.sync.paused
            && next < self.sync.end
            && self.sync.units.len() < self.rules.units_at_once
        {
            for (id, role, marked_below) in self.rebuilt() {
                let (unit, sectors) = self.unit_of_role(role, next);
                let dirty = |intent: &Intent| intent.dirty(unit.start, unit.end());
                // What a returning member had all along was not given to it.
                let given = next + sectors > marked_below || self.intent.as_ref().is_none_or(dirty);
                if unit.sectors > 0 && given {
                    self.ask_for(next, unit, Work::Verify(id));
                }
            }
            next = self.next_of_sample(next);
        }
        self.sync.phase = Phase::Verifying(next);
        let over = next >= self.sync.end || self.sync.interrupted.is_some();
        if over && self.sync.units.is_empty() {
            self.take_over();
        }
    }

    /// The place that follows this one in the sample.
    fn next_of_sample(&self, place: u64) -> u64 {
        let (unit, end) = (self.space.unit_sectors(), self.sync.end);
        let last = end.saturating_sub(1) / unit * unit;
        let step = (end / MOST).next_multiple_of(unit).max(unit * ONE_IN);
        if place < last { last.min(place + step) } else { end }
    }

    /// Members that have all of the role that they are to take over: that, and below which row they
    /// were given only what the bitmap marks.
    fn rebuilt(&self) -> Vec<(MemberId, u16, u64)> {
        let end = self.space.member_sectors();
        let targets = self.members.iter().filter(|(id, _)| self.sync.targets.contains(id));
        targets
            .filter_map(|(id, member)| match member.state {
                State::Rebuilding { role, offset, marked_below, .. } if offset >= end => {
                    Some((id, role, marked_below))
                }
                _ => None,
            })
            .collect()
    }

    /// A unit of what a member was given was read back, or could not be.
    pub(super) fn verified(&mut self, id: MemberId, unit: Unit, done: &Done) {
        let Some(member) = self.members.get(id) else { return };
        let copied = matches!(member.state, State::Rebuilding { replacement: true, .. });
        let reason = match (done, copied) {
            (Done::Well { equal: false }, true) => "does not hold what was copied to it",
            (Done::Well { equal: false }, false) => "does not hold what was rebuilt on it",
            (Done::Unread(_), true) => "what was copied to it cannot be read back",
            (Done::Unread(_), false) => "what was rebuilt on it cannot be read back",
            // It, or the array, has failed meanwhile.
            (Done::Well { equal: true } | Done::Alone | Done::Full | Done::Failed, _) => return,
        };
        let row = member.state.role().and_then(|role| self.space.row_of(role, unit.start));
        let sector = row.map(|row| member.absolute(row));
        self.fail_member(id, reason, Fault { sector, errno: None });
    }
}
