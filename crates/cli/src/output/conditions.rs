//! Conditions of a running array that need a person, by their ids. No I/O.

use std::collections::BTreeSet;

use braid_array::Condition;
use braid_array::events::SyncAction;
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status};
use braid_host::control::wire::ControlStatus;

/// Returns the conditions of an array and the arrays within it.
pub(crate) fn of_all(array: &ControlStatus) -> BTreeSet<Condition> {
    let found = array.last_scrub.is_some_and(|last| {
        last.mismatch_sectors > 0 && last.complete && last.action == SyncAction::Check
    });
    let mut all = of(&array.array);
    all.extend(array.array.children.iter().flat_map(of));
    all.extend(found.then_some(Condition::Mismatch));
    all
}

/// Returns the conditions of an array.
pub(crate) fn of(status: &Status) -> BTreeSet<Condition> {
    let members = &status.members;
    let mut witnesses = status.view.iter().flat_map(|view| &view.witnesses);
    let others = [
        (Condition::NodeLost, witnesses.any(|witness| !witness.reachable)),
        (Condition::MemberRefused, members.iter().any(|one| one.refused.is_some())),
        (Condition::MemberSlow, members.iter().any(|one| one.slow_ms.is_some())),
        (Condition::WorkHeldUp, status.held_up.is_some()),
        (Condition::Unreadable, status.unreadable_sectors > 0),
        (Condition::ParityTrusted, status.trusted_sectors > 0),
        (Condition::Unsynced, status.unsynced_sectors > 0),
    ];
    let others = others.into_iter().filter(|(_, holds)| *holds).map(|(condition, _)| condition);
    of_members(status).into_iter().chain(others).collect()
}

/// Returns what is wrong with the members, and what that makes of the array.
fn of_members(status: &Status) -> Vec<Condition> {
    let members = &status.members;
    if status.lacks_journal() {
        return vec![Condition::JournalLost];
    }
    if status.waiting.is_some() {
        return vec![Condition::ArrayWaits];
    }
    if status.state == ArrayState::Failed {
        return vec![Condition::ArrayFailed];
    }
    let faulty = || members.iter().filter(|one| one.state == MemberState::Faulty);
    let is_absent = status.view.as_ref().is_some_and(|view| !view.absent.is_empty());
    let mut found = Vec::new();
    if faulty().any(MemberStatus::is_on_a_node) || is_absent {
        found.push(Condition::NodeLost);
    }
    if faulty().any(|one| !one.is_on_a_node()) {
        found.push(Condition::MemberFailed);
    }
    if status.degraded > 0 && found.is_empty() {
        found.push(Condition::MemberMissing);
    }
    found
}

/// `see: braid help BRAID-104`, as a line; nothing where nothing is wrong.
pub(crate) fn see(conditions: &BTreeSet<Condition>) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    format!("see: braid help {}\n", ids(conditions).join(" "))
}

/// Returns the ids of conditions.
pub(crate) fn ids(conditions: &BTreeSet<Condition>) -> Vec<String> {
    conditions.iter().map(Condition::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_array::MemberId;
    use braid_array::format::superblock::feature;
    use braid_array::status::Waiting;

    #[test]
    fn an_array_names_what_is_wrong_with_it_and_no_more() {
        let status = |degraded, devices: &[(&str, MemberState)]| {
            let mut status = Status { state: ArrayState::Clean, degraded, ..Status::blank() };
            for (number, (device, state)) in (0..).zip(devices) {
                status.members.push(MemberStatus::new(MemberId(number), (*device).into(), *state));
            }
            status
        };
        let told = |status: &Status| ids(&of(status)).join(" ");
        let good = ("/dev/a", MemberState::InSync);
        let disk = ("/dev/b", MemberState::Faulty);
        let node = ("node://b:7000/x", MemberState::Faulty);
        assert_eq!(told(&status(0, &[good])), "");
        assert_eq!(told(&status(1, &[good])), "BRAID-106");
        assert_eq!(told(&status(1, &[good, disk])), "BRAID-104");
        assert_eq!(told(&status(1, &[good, node])), "BRAID-105");
        let failed = Status { state: ArrayState::Failed, ..status(2, &[disk, disk]) };
        assert_eq!(told(&failed), "BRAID-101");
        let waiting = Some(Waiting { requests: 1, fail_in_ms: None, why: None });
        assert_eq!(told(&Status { waiting, ..failed.clone() }), "BRAID-102");
        let mut journaled = failed;
        journaled.superblock.feature_map |= feature::JOURNAL;
        assert_eq!(told(&journaled), "BRAID-103");
        let torn = Status { unsynced_sectors: 8, unreadable_sectors: 8, ..status(1, &[disk]) };
        assert_eq!(told(&torn), "BRAID-104 BRAID-202 BRAID-204");
        assert_eq!(see(&of(&status(1, &[good]))), "see: braid help BRAID-106\n");
        assert_eq!(see(&BTreeSet::new()), "");
    }
}
