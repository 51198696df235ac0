//! Tests of all comparisons.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::model::Group;
use crate::rig::{Room, file_name};

/// Minutes that the short form and the whole take at most.
const MINUTES: [(&str, [u64; 2]); 7] = [
    ("levels", [2, 400]),
    ("states", [1, 400]),
    ("members", [1, 120]),
    ("cluster", [1, 120]),
    ("chunk", [1, 120]),
    ("engine", [4, 25]),
    ("policies", [4, 25]),
];

fn all(quick: bool) -> impl Iterator<Item = Box<dyn Comparison>> {
    let wishes = Wishes { quick, against: Rival::ALL.to_vec(), ..Wishes::default() };
    ALL.iter().map(move |entry| (entry.plan)(&wishes))
}

#[test]
fn both_forms_keep_to_their_time_and_outlive_the_run() {
    for (quick, form) in [(true, 0), (false, 1)] {
        for (comparison, (name, minutes)) in all(quick).zip(MINUTES) {
            let usual = Wishes { quick, ..Wishes::default() };
            let usual = ALL.iter().find(|entry| entry.name == name).map(|it| (it.plan)(&usual));
            let groups = usual.expect(name).groups();
            let takes: Duration = groups.iter().map(Group::takes).sum();
            assert!(takes < Duration::from_secs(minutes[form] * 60), "{name}: {takes:?}");
            let again = read(name, comparison.options()).expect(name);
            assert_eq!(again.options(), comparison.options());
            assert_eq!(again.groups(), comparison.groups(), "{name}");
        }
    }
    assert!(read("raid7", Value::Null).is_err() && read("levels", Value::Null).is_err());
}

/// Names of cases are those of folders, and a job is run once a round.
#[test]
fn names_are_unique() {
    for comparison in all(false) {
        let mut files = BTreeSet::new();
        let mut cases = BTreeSet::new();
        let mut jobs = BTreeSet::new();
        for group in comparison.groups() {
            for case in group.cases {
                files.insert(file_name(&case));
                for job in &group.jobs {
                    assert!(jobs.insert((case.clone(), job.name.clone())), "{case}, {}", job.name);
                }
                cases.insert(case);
            }
        }
        assert_eq!(files.len(), cases.len(), "{}", comparison.name());
    }
}

#[test]
fn members_are_large_enough_for_what_the_array_holds() {
    let mib = |level, count, mib: u64| member_bytes(level, count, mib << 20) >> 20;
    assert_eq!(mib(Level::Raid0, 6, 60), 10 + 16);
    assert_eq!(mib(Level::Raid5, 6, 60), 12 + 16);
    assert_eq!(mib(Level::Raid6, 6, 61), 16 + 16);
    assert_eq!([mib(Level::Raid10, 4, 60), mib(Level::Raid1, 2, 60)], [30 + 16, 60 + 16]);
}

/// Comparisons that are too large for a disk are halved until they fit, or cannot be smaller.
#[test]
fn they_become_smaller_until_they_are_as_small_as_they_can_be() {
    for mut comparison in all(false) {
        let mut steps = 0;
        while let Some(smaller) = comparison.smaller() {
            assert!(smaller.needs_bytes() < comparison.needs_bytes());
            assert!(smaller.needs_memory_bytes() <= comparison.needs_memory_bytes());
            comparison = smaller;
            steps += 1;
        }
        let expected = matches!(comparison.name(), "levels" | "engine" | "policies");
        assert_eq!(steps > 1, expected, "{}", comparison.name());
    }
}

#[test]
fn a_case_that_is_not_there_is_not_set_up() {
    let room = Room::new("/none".into(), Vec::new(), crate::tool::Tool::at("braid", "no".into()));
    for comparison in all(true) {
        let refused = comparison.set_up("RAID 7", &room).err().expect("no such case");
        assert_eq!(refused.ends, crate::Ends::Usage, "{}: {refused:?}", comparison.name());
    }
}
