//! State of an array as of the last look, reduced to the input of alerts.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::events::SyncAction;
use braid_array::format::superblock::feature;
use braid_array::outline::Outline;
use braid_array::status::{ArrayState, MemberState, Status};
use braid_host::control::wire::ControlStatus;
use serde::{Deserialize, Serialize};

use crate::output::conditions;
use crate::output::json::state_words;
use crate::output::redundancy;
use crate::output::shape::of_reshape;

/// mdadm tells of background work at each fifth of it.
const MARK_PERCENT: u64 = 20;

/// An array, or one within it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// `home`, or `home/inner` of one within.
    pub(super) name: String,
    pub(super) uuid: String,
    /// In the words of `braid status --json`.
    pub(super) state: Vec<String>,
    /// Ids of its conditions, the worst one first.
    #[serde(default)]
    pub(super) ids: Vec<String>,
    /// Roles without a member that is in sync.
    pub(super) degraded: u16,
    /// Level, members and size, in words; empty where they are not known.
    #[serde(default)]
    pub(super) shape: String,
    pub(super) members: BTreeMap<String, MemberState>,
    #[serde(default)]
    pub(super) roles: BTreeMap<String, u16>,
    /// Roles without a member that is in sync, by number.
    #[serde(default)]
    pub(super) lacks: Vec<u16>,
    /// Members that may still fail, in words.
    #[serde(default)]
    pub(super) may_fail: Option<String>,
    /// Next step for an array that lacks members and does not recover them.
    #[serde(default)]
    pub(super) next: Option<String>,
    /// The last scrub was a repair.
    #[serde(default)]
    pub(super) repaired: bool,
    /// Labels of members that are disks.
    #[serde(default)]
    pub(super) disks: BTreeMap<String, String>,
    pub(super) sync: Option<Sync>,
    /// Its superblocks tell of a reshape, which may wait.
    #[serde(default)]
    pub(super) reshapes: bool,
    /// Sectors that the last check found to differ.
    pub(super) mismatch_sectors: u64,
    /// Witnesses that are not connected.
    pub(super) lost_witnesses: BTreeSet<String>,
}

/// Background work that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sync {
    pub(super) action: SyncAction,
    /// The last mark that it has passed, in percent.
    pub(super) mark: u64,
}

impl Sync {
    /// Returns whether this is a check or repair.
    pub(super) const fn is_scrub(self) -> bool {
        matches!(self.action, SyncAction::Check | SyncAction::Repair)
    }
}

/// Returns the roles without a member that is in sync.
fn lacks(status: &Status) -> Vec<u16> {
    let in_sync = status.members.iter().filter(|one| one.state == MemberState::InSync);
    let held: BTreeSet<u16> = in_sync.filter_map(|one| Some(one.role?.0)).collect();
    let roles = 0..u16::try_from(status.superblock.raid_disks).unwrap_or(u16::MAX);
    if status.degraded == 0 { Vec::new() } else { roles.filter(|it| !held.contains(it)).collect() }
}

impl Seen {
    /// The array that a process serves, and those within it.
    pub(super) fn all(array: &ControlStatus) -> Vec<Self> {
        let all = within(&array.name, &array.array).into_iter();
        let mut all: Vec<Self> = all.map(|(name, status)| Self::of(name, status)).collect();
        let repaired = array.last_scrub.is_some_and(|last| last.action == SyncAction::Repair);
        for seen in &mut all {
            seen.repaired = repaired;
            let disks = seen.members.keys().filter_map(|member| array.disks.get_key_value(member));
            seen.disks = disks.map(|(member, disk)| (member.clone(), disk.label())).collect();
        }
        all
    }

    fn of(name: String, status: &Status) -> Self {
        let members = status.members.iter().map(|one| (one.device.clone(), one.state));
        let roles = status.members.iter().filter_map(|one| Some((one.device.clone(), one.role?.0)));
        let served = served(&name);
        // Of an array within one that goes on without it, no device is to be brought back.
        let next = if status.state == ArrayState::Failed && name != served {
            None
        } else {
            redundancy::next(served, status)
        };
        let witnesses = status.view.iter().flat_map(|view| &view.witnesses);
        let lost = witnesses.filter(|witness| !witness.reachable);
        Self {
            name,
            uuid: status.superblock.uuid_text(),
            state: state_words(status).into_iter().map(str::to_owned).collect(),
            ids: conditions::ids(&conditions::of(status)),
            degraded: status.degraded,
            shape: shape(status),
            members: members.collect(),
            roles: roles.collect(),
            lacks: lacks(status),
            may_fail: redundancy::may_fail(status),
            next,
            repaired: false,
            disks: BTreeMap::new(),
            sync: sync(status),
            reshapes: status.superblock.has(feature::RESHAPE_ACTIVE),
            mismatch_sectors: status.mismatch_sectors.unwrap_or(0),
            lost_witnesses: lost.map(|witness| witness.address.clone()).collect(),
        }
    }

    /// Returns whether it lacks more members than it can do without.
    pub(super) fn has_failed(&self) -> bool {
        self.state.iter().any(|word| word == "failed")
    }

    /// Returns the name of the array with a process of its own that serves it.
    pub(super) fn served(&self) -> &str {
        served(&self.name)
    }

    /// Returns whether a recovery is under way.
    pub(super) fn recovers(&self) -> bool {
        self.sync.is_some_and(|sync| sync.action == SyncAction::Recovery)
    }
}

/// The array that is served, of a name of [`within`].
fn served(name: &str) -> &str {
    name.split_once('/').map_or(name, |(served, _)| served)
}

/// An array that has not started yet has none, and one that is reshaped that from before, also
/// while its data go back over nodes.
fn shape(status: &Status) -> String {
    let goes_back = status.superblock.has(feature::NODE_BACK);
    let side = |(from, to)| if goes_back { to } else { from };
    let from = of_reshape(&status.superblock).map(side);
    let superblock = from.as_ref().unwrap_or(&status.superblock);
    let outline = Outline::of(superblock, status.array_sectors);
    if status.array_sectors == 0 { String::new() } else { outline.to_string() }
}

fn sync(status: &Status) -> Option<Sync> {
    let sync = &status.sync;
    let percent = u128::from(sync.done_sectors) * 100 / u128::from(sync.total_sectors.max(1));
    let mark = u64::try_from(percent).map_or(100, |percent| percent.min(99));
    let mark = mark / MARK_PERCENT * MARK_PERCENT;
    (sync.action != SyncAction::Idle).then_some(Sync { action: sync.action, mark })
}

/// The address of the node that a member is on, if it is on one.
pub(super) fn node_of(device: &str) -> Option<&str> {
    let place = device.strip_prefix("node://")?;
    Some(place.split_once('/').map_or(place, |(address, _)| address))
}

/// An array and those within it, by the names that commands take.
pub(super) fn within<'a>(name: &str, status: &'a Status) -> Vec<(String, &'a Status)> {
    let mut all = vec![(name.to_owned(), status)];
    for child in &status.children {
        all.extend(within(&format!("{name}/{}", child.short_name()), child));
    }
    all
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Returns the answer of a process that serves this array.
    pub(in crate::cmd::monitor) fn served(name: &str, array: Status) -> ControlStatus {
        ControlStatus {
            name: name.to_owned(),
            pid: 1,
            started_unix_s: 0,
            exports: Vec::new(),
            mismatches: Vec::new(),
            last_scrub: None,
            protection: None,
            limits: braid_host::limits::Limits::default(),
            disks: BTreeMap::new(),
            figures: None,
            array,
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_array::status::SyncStatus;

    use super::*;

    #[test]
    fn arrays_within_are_seen_by_the_name_of_theirs() {
        let child = Status { degraded: 1, ..Status::blank() };
        let array = Status { children: vec![child.clone(), child], ..Status::blank() };
        let seen = Seen::all(&testing::served("top", array));
        let names: Vec<&str> = seen.iter().map(|seen| seen.served()).collect();
        assert_eq!(names, ["top"; 3]);
        assert!(seen[1].name.starts_with("top/"));
        assert_eq!((seen[0].degraded, seen[1].degraded), (0, 1));
    }

    #[test]
    fn work_passes_marks() {
        let mark = |action, done_sectors, total_sectors| {
            let work = SyncStatus { action, done_sectors, total_sectors, ..SyncStatus::default() };
            sync(&Status { sync: work, ..Status::blank() }).map(|sync| sync.mark)
        };
        assert_eq!(mark(SyncAction::Idle, 5, 10), None);
        let cases = [(0, 0), (19, 0), (20, 20), (39, 20), (79, 60), (99, 80), (100, 80)];
        for (done, expected) in cases {
            assert_eq!(mark(SyncAction::Recovery, done, 100), Some(expected), "{done}");
        }
        assert_eq!(mark(SyncAction::Resync, 0, 0), Some(0));
    }
}
