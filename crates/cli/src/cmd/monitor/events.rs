//! Changes of all arrays between two looks, as events with mdadm's names. No I/O.
//!
//! [`Watch`] goes from look to look. An array is
//!
//! - *unknown*: `DegradedArray` is told when it is seen so, `NewArray` unless it was there before
//!   the monitor was;
//! - *known*: told from what it was at the last look. An array stays known while it does not
//!   answer, and over a restart of the monitor, after which it may be told degraded once more;
//! - *gone*: `DeviceDisappeared`, and unknown again.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::events::SyncAction;
use braid_array::status::MemberState;
use serde::{Deserialize, Serialize};

use super::event::Event;
use super::next;
use super::seen::{Seen, Sync, node_of};

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alert {
    pub(super) event: Event,
    pub(super) array: String,
    pub(super) uuid: String,
    /// The member, or the address of the node.
    pub(super) member: Option<String>,
    /// Label of the member, if it is a disk.
    #[serde(default)]
    pub(super) disk: Option<String>,
    /// Role of the member.
    #[serde(default)]
    pub(super) role: Option<u16>,
    /// Roles without a member that is in sync.
    #[serde(default)]
    pub(super) lacks: Vec<u16>,
    /// Warning of the disk.
    #[serde(default)]
    pub(super) warning: Option<String>,
    /// Sectors that a check found to differ, or a repair has rewritten.
    #[serde(default)]
    pub(super) sectors: Option<u64>,
    /// Shape of an array before and after a change, in words.
    #[serde(default)]
    pub(super) change: Option<String>,
    /// Members that may still fail, in words; `None` of an array that has failed or is gone.
    #[serde(default)]
    pub(super) may_fail: Option<String>,
    /// Id of the condition that the event tells of.
    #[serde(default)]
    pub(super) id: Option<String>,
    /// Next step, if any: what to do, or the command.
    #[serde(default)]
    pub(super) next: Option<String>,
    /// State of the array, in the words of `braid status --json`.
    pub(super) state: Vec<String>,
}

impl Alert {
    fn new(event: Event, array: &Seen, member: Option<&str>) -> Self {
        let found = event == Event::MismatchFound;
        Self {
            disk: member.and_then(|member| array.disks.get(member).cloned()),
            role: member.and_then(|member| array.roles.get(member).copied()),
            lacks: array.lacks.clone(),
            warning: None,
            sectors: found.then_some(array.mismatch_sectors),
            change: None,
            may_fail: array.may_fail.clone(),
            id: next::id(event, array),
            next: next::step(event, array, member),
            event,
            array: array.name.clone(),
            uuid: array.uuid.clone(),
            member: member.map(str::to_owned),
            state: array.state.clone(),
        }
    }

    /// To see that alerts arrive.
    pub(super) fn test(array: &Seen) -> Self {
        Self::new(Event::TestMessage, array, None)
    }

    /// Returns the alert of a warning by the disk under a member.
    pub(super) fn disk(array: &Seen, member: &str, warning: String) -> Self {
        Self { warning: Some(warning), ..Self::new(Event::DiskWarning, array, Some(member)) }
    }

    /// Returns the alert of an array that is degraded, or has failed.
    pub(super) fn degraded(array: &Seen) -> Option<Self> {
        let event = if array.has_failed() { Event::ArrayFailed } else { Event::DegradedArray };
        (array.degraded > 0).then(|| Self::new(event, array, None))
    }
}

/// An array as it was told of last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) seen: Seen,
    /// `DegradedArray` was told, and it has been so since.
    pub(super) degraded: bool,
}

/// Last reported state of all arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watch {
    told: BTreeMap<Key, Told>,
    /// There was a look before, of this monitor or the one before it.
    begun: bool,
    /// Arrays that this monitor has not seen yet, but the one before it.
    unseen: BTreeSet<Key>,
}

/// Name and UUID: an array started under another name counts as another array.
type Key = (String, String);

impl Watch {
    /// Continues from the state reported by the previous monitor.
    pub(super) fn resume(told: Vec<Told>) -> Self {
        let told: BTreeMap<_, _> = told.into_iter().map(|told| (key(&told.seen), told)).collect();
        Self { unseen: told.keys().cloned().collect(), told, begun: true }
    }

    /// Returns the last reported state of all arrays.
    pub(super) fn told(&self) -> Vec<Told> {
        self.told.values().cloned().collect()
    }

    /// The next look: arrays that answered, and the names of those that run and did not.
    pub(super) fn look(&mut self, seen: Vec<Seen>, silent: &BTreeSet<String>) -> Vec<Alert> {
        let mut alerts = self.forget_the_gone(&seen, silent);
        let before: BTreeSet<String> =
            self.told.values().map(|told| told.seen.served().to_owned()).collect();
        for array in seen {
            // An array within another comes with it.
            let comes = self.begun && !before.contains(array.served());
            alerts.extend(self.take(array, comes));
        }
        self.begun = true;
        alerts
    }

    fn forget_the_gone(&mut self, seen: &[Seen], silent: &BTreeSet<String>) -> Vec<Alert> {
        let runs = |array: &Seen| seen.iter().any(|other| other.served() == array.served());
        let is_gone = |told: &Told| {
            let known = seen.iter().any(|array| key(array) == key(&told.seen));
            !known && !silent.contains(told.seen.served())
        };
        let gone: Vec<Told> = self.told.values().filter(|told| is_gone(told)).cloned().collect();
        self.told.retain(|_, told| !is_gone(told));
        // An array within another goes with it.
        let told = gone.iter().filter(|gone| {
            let seen = &gone.seen;
            seen.name == seen.served() || runs(seen)
        });
        let gone = |told: &Told| {
            let seen = Seen { state: Vec::new(), may_fail: None, ..told.seen.clone() };
            Alert::new(Event::DeviceDisappeared, &seen, None)
        };
        told.map(gone).collect()
    }

    fn take(&mut self, array: Seen, comes: bool) -> Vec<Alert> {
        let mut alerts = Vec::new();
        let key = key(&array);
        let old = self.told.remove(&key);
        let first_look = self.unseen.remove(&key) || old.is_none();
        if comes && array.name == array.served() {
            alerts.push(Alert::new(Event::NewArray, &array, None));
        }
        let was_told = old.as_ref().is_some_and(|old| old.degraded);
        if first_look && !was_told {
            alerts.extend(Alert::degraded(&array));
        }
        let degraded = array.degraded > 0 && (was_told || first_look);
        if let Some(old) = &old {
            alerts.extend(grown(&old.seen, &array));
            alerts.extend(members(&old.seen, &array));
            if array.has_failed() && !old.seen.has_failed() && (was_told || !first_look) {
                alerts.push(Alert::new(Event::ArrayFailed, &array, None));
            }
        }
        let blank = Seen::default();
        let old = old.as_ref().map_or(&blank, |old| &old.seen);
        alerts.extend(work(old, &array));
        let shape = if array.shape.is_empty() { &old.shape } else { &array.shape }.clone();
        let lost = array.lost_witnesses.difference(&old.lost_witnesses);
        alerts.extend(lost.map(|node| Alert::new(Event::NodeLost, &array, Some(node))));
        // What a scrub that still runs has found is told when it ends.
        let mismatch_sectors = match array.sync {
            Some(sync) if sync.is_scrub() => old.mismatch_sectors,
            _ => array.mismatch_sectors,
        };
        self.told.insert(key, Told { seen: Seen { mismatch_sectors, shape, ..array }, degraded });
        alerts
    }
}

fn key(array: &Seen) -> Key {
    (array.name.clone(), array.uuid.clone())
}

/// Returns whether the array has another shape than it had.
fn is_grown(old: &Seen, new: &Seen) -> bool {
    let known = !old.shape.is_empty() && !new.shape.is_empty();
    known && old.shape != new.shape
}

/// Returns the alert about a changed shape.
fn grown(old: &Seen, new: &Seen) -> Option<Alert> {
    let change = format!("{} before, {} now", old.shape, new.shape);
    let alert = || Alert::new(Event::ArrayGrown, new, None);
    is_grown(old, new).then(|| Alert { change: Some(change), ..alert() })
}

/// Returns alerts about changed members.
fn members(old: &Seen, new: &Seen) -> Vec<Alert> {
    let mut alerts = Vec::new();
    for (member, state) in &old.members {
        let now = new.members.get(member).copied();
        let alert = |event| {
            let alert = Alert::new(event, new, Some(member));
            Alert {
                disk: alert.disk.or_else(|| old.disks.get(member).cloned()),
                role: alert.role.or_else(|| old.roles.get(member).copied()),
                ..alert
            }
        };
        match (state, now) {
            (MemberState::InSync, Some(MemberState::InSync))
            | (MemberState::Journal, Some(MemberState::Journal)) => {}
            // The new shape has no role for it.
            (MemberState::InSync, Some(MemberState::Spare)) if is_grown(old, new) => {}
            (MemberState::InSync | MemberState::Journal, now) => {
                alerts.push(alert(Event::Fail));
                let lost = matches!(now, None | Some(MemberState::Faulty));
                if lost && let Some(node) = node_of(member) {
                    alerts.push(Alert::new(Event::NodeLost, new, Some(node)));
                }
            }
            (MemberState::Spare | MemberState::Rebuilding, Some(MemberState::Faulty)) => {
                alerts.push(alert(Event::FailSpare));
            }
            (_, Some(MemberState::InSync)) => alerts.push(alert(Event::SpareActive)),
            _ => {}
        }
    }
    for (member, state) in &new.members {
        let event = match state {
            MemberState::InSync => Event::SpareActive,
            MemberState::Faulty => Event::FailSpare,
            _ => continue,
        };
        if !old.members.contains_key(member) {
            alerts.push(Alert::new(event, new, Some(member)));
        }
    }
    alerts
}

/// Returns alerts about changed background work.
fn work(old: &Seen, new: &Seen) -> Vec<Alert> {
    let mut events = Vec::new();
    let goes_on =
        |was: Sync| new.sync.is_some_and(|is| is.action == was.action && is.mark >= was.mark);
    let ended = old.sync.filter(|was| !goes_on(*was));
    if ended.is_some_and(|was| was.action != SyncAction::Reshape) {
        events.push(Event::RebuildFinished);
    }
    // One that waits goes on later.
    if old.reshapes && !new.reshapes {
        events.push(Event::ReshapeFinished);
    }
    let scrubbing = new.sync.is_some_and(Sync::is_scrub);
    let found_anew = ended.is_some_and(Sync::is_scrub)
        || !scrubbing && new.mismatch_sectors != old.mismatch_sectors;
    if found_anew && new.mismatch_sectors > 0 {
        events.push(Event::MismatchFound);
    }
    let was = if ended.is_some() { None } else { old.sync };
    match (was, new.sync) {
        (None, Some(is)) => events.push(match is.action {
            SyncAction::Reshape => Event::ReshapeStarted,
            _ => Event::RebuildStarted,
        }),
        (Some(was), Some(is)) if is.mark > was.mark => events.push(match is.action {
            SyncAction::Reshape => Event::Reshape(is.mark),
            _ => Event::Rebuild(is.mark),
        }),
        _ => {}
    }
    events.into_iter().map(|event| Alert::new(event, new, None)).collect()
}

#[cfg(test)]
mod tests;
