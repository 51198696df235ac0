//! What is remembered of an array between two looks: only what alerts are made from.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::events::SyncAction;
use braid_array::status::{MemberState, Status};
use braid_host::control::wire::ControlStatus;
use serde::{Deserialize, Serialize};

use crate::output::json::state_words;

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
    /// Roles without a member that is in sync.
    pub(super) degraded: u16,
    pub(super) members: BTreeMap<String, MemberState>,
    pub(super) sync: Option<Sync>,
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
    /// Does it look for differences?
    pub(super) const fn is_scrub(self) -> bool {
        matches!(self.action, SyncAction::Check | SyncAction::Repair)
    }
}

impl Seen {
    /// The array that a process serves, and those within it.
    pub(super) fn all(array: &ControlStatus) -> Vec<Self> {
        let mut all = Vec::new();
        for (name, status) in within(&array.name, &array.array) {
            all.push(Self::of(name, status));
        }
        all
    }

    fn of(name: String, status: &Status) -> Self {
        let members = status.members.iter().map(|one| (one.device.clone(), one.state));
        let witnesses = status.view.iter().flat_map(|view| &view.witnesses);
        let lost = witnesses.filter(|witness| !witness.reachable);
        Self {
            name,
            uuid: status.superblock.uuid_text(),
            state: state_words(status).into_iter().map(str::to_owned).collect(),
            degraded: status.degraded,
            members: members.collect(),
            sync: sync(status),
            mismatch_sectors: status.mismatch_sectors.unwrap_or(0),
            lost_witnesses: lost.map(|witness| witness.address.clone()).collect(),
        }
    }

    /// The name of the array whose process serves it.
    pub(super) fn served(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(served, _)| served)
    }
}

fn sync(status: &Status) -> Option<Sync> {
    let sync = &status.sync;
    let percent = u128::from(sync.done_sectors) * 100 / u128::from(sync.total_sectors.max(1));
    let mark = u64::try_from(percent).map_or(100, |percent| percent.min(99));
    let mark = mark / MARK_PERCENT * MARK_PERCENT;
    (sync.action != SyncAction::Idle).then_some(Sync { action: sync.action, mark })
}

/// An array and those within it, by the names that commands take.
pub(super) fn within<'a>(name: &str, status: &'a Status) -> Vec<(String, &'a Status)> {
    let mut all = vec![(name.to_owned(), status)];
    for child in &status.children {
        all.extend(within(&format!("{name}/{}", child.short_name()), child));
    }
    all
}
