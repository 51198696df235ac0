//! Reading back what a member was given, before it takes a role over: a sample of the units that
//! were rebuilt on it is compared with what the others say. A member that cannot read them, or
//! holds something else, fails; a member that it was to replace stays.

use super::{Sync, WorkPhase};
use crate::assemble::Had;
use crate::events::SyncAction;
use crate::keeper::Work;
use crate::keeper::core::Core;
use crate::keeper::intent::Intent;
use crate::keeper::members::State;
use crate::{MemberId, Role};

/// One unit in so many is read back, and the last one: two hundredths of what was written.
const ONE_IN: u64 = 64;
/// No more than about so many, each of which may be a seek.
const MOST: u64 = 1024;

impl Sync {
    /// Begins to read back what members are to take over with: all of it is durable.
    pub(super) fn begin_to_verify(&mut self, core: &mut Core) {
        let rebuilt = self.action == SyncAction::Recovery && !self.rebuilt(core).is_empty();
        let complete = self.interrupted.is_none() && !core.service.failed;
        if rebuilt && complete && core.rules.reads_back {
            self.phase = WorkPhase::Verifying(0);
            self.pump_verify(core, 0);
        } else {
            self.take_over(core);
        }
    }

    /// Asks for the next units of the sample, from this place on.
    pub(super) fn pump_verify(&mut self, core: &mut Core, mut next: u64) {
        while self.interrupted.is_none()
            && !self.paused
            && next < self.end
            && self.units.len() < core.rules.units_at_once
        {
            for (id, role, had) in self.rebuilt(core) {
                let (unit, sectors) = self.unit_of_role(core, role, next);
                let dirty = |intent: &Intent| intent.dirty(unit.start, unit.end());
                // What a returning member had all along was not given to it.
                let given = had.ends_before(next + sectors)
                    || core.metadata.intent.as_ref().is_none_or(dirty);
                if unit.sectors > 0 && given {
                    self.ask_for(core, next, unit, Work::Verify(id));
                }
            }
            next = self.next_of_sample(core, next);
        }
        self.phase = WorkPhase::Verifying(next);
        let over = next >= self.end || self.interrupted.is_some();
        if over && self.units.is_empty() {
            self.take_over(core);
        }
    }

    /// The place that follows this one in the sample.
    fn next_of_sample(&self, core: &Core, place: u64) -> u64 {
        let unit = core.space.unit_sectors();
        let end = self.end;
        let last = end.saturating_sub(1) / unit * unit;
        let step = (end / MOST).next_multiple_of(unit).max(unit * ONE_IN);
        if place < last { last.min(place + step) } else { end }
    }

    /// Members that have all of the role that they are to take over: that, and what they had of it,
    /// of which they were given only what the bitmap marks.
    fn rebuilt(&self, core: &Core) -> Vec<(MemberId, Role, Had)> {
        let end = core.space.member_sectors();
        let targets = core.members.iter().filter(|(id, _)| self.targets.contains(id));
        targets
            .filter_map(|(id, member)| match member.state {
                State::Rebuilding { role, offset, had, .. } if offset >= end => {
                    Some((id, role, had))
                }
                _ => None,
            })
            .collect()
    }
}
