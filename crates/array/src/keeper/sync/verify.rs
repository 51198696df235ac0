//! A member that is replaced goes for good, so what was copied is read back before: a sample of
//! units is compared with what the old one holds. A new one that cannot read them, or holds
//! something else, fails, and the old one stays.

use super::{Done, Phase, Unit, Work};
use crate::MemberId;
use crate::events::{Fault, SyncAction};
use crate::keeper::Keeper;
use crate::keeper::members::State;

/// One unit in so many is read back, and the last one: two hundredths of what was copied.
const ONE_IN: u64 = 64;
/// No more than about so many, each of which may be a seek.
const MOST: u64 = 1024;

impl Keeper {
    /// What was done is durable: what members are to take over from others is read back first.
    pub(super) fn begin_to_verify(&mut self) {
        let copied = self.sync.action == SyncAction::Recovery && !self.replacements().is_empty();
        if copied && self.sync.interrupted.is_none() && !self.failed {
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
            for (id, role) in self.replacements() {
                let (unit, _) = self.unit_of_role(role, next);
                if unit.sectors > 0 {
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

    /// Members that have all of a role that another one holds.
    fn replacements(&self) -> Vec<(MemberId, u16)> {
        let end = self.space.member_sectors();
        let copied = self.members.iter().filter(|(id, _)| self.sync.targets.contains(id));
        copied
            .filter_map(|(id, member)| match member.state {
                State::Rebuilding { role, offset, replacement: true, .. } if offset >= end => {
                    Some((id, role))
                }
                _ => None,
            })
            .collect()
    }

    /// A unit of what was copied to a member was read back, or could not be.
    pub(super) fn verified(&mut self, id: MemberId, unit: Unit, done: &Done) {
        let reason = match done {
            Done::Well { equal: false } => "does not hold what was copied to it",
            Done::Unread(_) => "what was copied to it cannot be read back",
            // It, or the array, has failed meanwhile.
            Done::Well { equal: true } | Done::Alone | Done::Full | Done::Failed => return,
        };
        let Some(member) = self.members.get(id) else { return };
        let row = member.state.role().and_then(|role| self.space.row_of(role, unit.start));
        let sector = row.map(|row| member.absolute(row));
        self.fail_member(id, reason, Fault { sector, errno: None });
    }
}
