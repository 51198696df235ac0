//! Invariants of the engine that hold whenever the client has nothing to do at once.

use braid_array::Role;
use std::collections::BTreeMap;

use super::{Engine, Shared};
use crate::client::Key;
use crate::client::membership::Membership;
use crate::client::out::{ClientOut, IoPurpose, RequestKind};
use crate::ids::Position;

/// The keeper's record of a write: first and last place in its space, and whether it is open.
type Write = (u64, u64, bool);

impl Engine {
    pub(in crate::client) fn check(
        &self,
        shared: &Shared,
        members: &Membership,
        out: &ClientOut,
        running: bool,
    ) -> Result<(), String> {
        self.buffers_are_somewhere(shared)?;
        self.sets.check(&in_flight(out))?;
        self.areas_are_counted(shared)?;
        self.lease.check(members, shared, &self.sets, running)?;
        self.flushes.check(|number| {
            let kinds = out.requests.values().map(|(_, kind)| kind);
            kinds.filter(|kind| matches!(kind, RequestKind::Flush(n) if *n == number)).count()
        })?;
        if members.alive_roles().any(|role| !shared.reads.is_counted(role)) {
            return Err("a slot is neither free nor in use".to_owned());
        }
        match shared.requests.unanswered() {
            Some(id) => Err(format!("{id:?} is over and not answered")),
            None => Ok(()),
        }
    }

    fn buffers_are_somewhere(&self, shared: &Shared) -> Result<(), String> {
        let held = self.sets.buffers() + self.decodes.buffers() + self.compares.buffers();
        let found = shared.staging.free() + held + self.read_back.buffers();
        let all = shared.staging.all();
        if found != all { Err(format!("{found} of {all} buffers")) } else { Ok(()) }
    }

    fn areas_are_counted(&self, shared: &Shared) -> Result<(), String> {
        let mut counts: BTreeMap<Key, (u32, u32, u32)> = BTreeMap::new();
        for (key, _) in self.queue.keys() {
            counts.entry(key).or_default().0 += 1;
        }
        for (key, committing, _) in self.sets.keys() {
            let count = counts.entry(key).or_default();
            count.0 += 1;
            count.2 += u32::from(committing);
        }
        let decoding = self.decodes.ranges().map(|range| shared.key_of(range));
        let copying = self.copies.keys().chain(self.read_back.key());
        for key in decoding.chain(self.compares.keys()).chain(copying) {
            counts.entry(key).or_default().1 += 1;
        }
        for (key, area) in shared.areas.iter() {
            let found = counts.remove(key).unwrap_or_default();
            let counted = (area.sets, area.readers, area.committing);
            if found != counted {
                return Err(format!("{found:?} in slice {key:?}, counted {counted:?}"));
            }
            if area.committing == 0 && !area.late_reads.is_empty() {
                return Err(format!("reads of slice {key:?} wait for nothing"));
            }
            if area.listed != shared.areas.listed().contains(key) {
                return Err(format!("slice {key:?} says that it is listed: {}", area.listed));
            }
        }
        counts.keys().next().map_or(Ok(()), |key| Err(format!("slice {key:?} is not known")))
    }

    /// The writes that the keeper has to know of.
    pub(in crate::client) fn writes(&self, shared: &Shared) -> Vec<Write> {
        let announced = |(key, announced): (Key, bool)| announced.then_some((key, false));
        let waiting = self.queue.keys().filter_map(announced);
        let open = self.sets.keys().filter(|(_, _, background)| !background);
        let range = |(key, writing)| {
            let (start, end) = shared.space.range(key);
            (start, end, writing)
        };
        waiting.chain(open.map(|(key, ..)| (key, true))).map(range).collect()
    }

    /// Requests under way that change data, and units of background work that were asked for.
    pub(in crate::client) fn counts(&self, shared: &Shared) -> (usize, usize) {
        (shared.requests.writers(), self.work.len())
    }

    /// Returns the number of untagged answers that a member owes.
    pub(in crate::client) fn owed_by(&self, shared: &Shared, role: Role) -> usize {
        self.sets.owed_by(role) + shared.reads.used(role)
    }
}

/// By position, the puts and the computations under way for slice-sets.
fn in_flight(out: &ClientOut) -> BTreeMap<Position, (u32, u32)> {
    let mut in_flight: BTreeMap<Position, (u32, u32)> = BTreeMap::new();
    for purpose in out.ios.values() {
        match purpose {
            IoPurpose::Put { position } => in_flight.entry(*position).or_default().0 += 1,
            IoPurpose::Copy { position } | IoPurpose::Sum { position, .. } => {
                in_flight.entry(*position).or_default().1 += 1;
            }
            IoPurpose::Decode { .. } | IoPurpose::Compare { .. } | IoPurpose::ReadBack => {}
        }
    }
    in_flight
}
