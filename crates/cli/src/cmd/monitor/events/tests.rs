use braid_array::events::SyncAction::{self, Check, Recovery, Reshape, Resync};
use braid_array::status::MemberState::{self, Faulty, InSync, Journal, Rebuilding, Spare};

use super::*;

fn array(members: &[(&str, MemberState)]) -> Seen {
    let members = members.iter().map(|(member, state)| ((*member).to_owned(), *state)).collect();
    Seen { name: "home".to_owned(), uuid: "1".to_owned(), members, ..Seen::default() }
}

fn working(action: SyncAction, mark: u64) -> Seen {
    let reshapes = action == Reshape;
    Seen { sync: Some(Sync { action, mark }), reshapes, ..array(&[]) }
}

fn named(name: &str) -> Seen {
    Seen { name: name.to_owned(), uuid: name.to_owned(), ..Seen::default() }
}

fn degraded(array: Seen) -> Seen {
    Seen { degraded: 1, ..array }
}

fn words(alerts: &[Alert]) -> Vec<String> {
    let member = |alert: &Alert| alert.member.as_ref().map(|member| format!(" {member}"));
    let words =
        |alert: &Alert| format!("{}{}", alert.event.name(), member(alert).unwrap_or_default());
    alerts.iter().map(words).collect()
}

/// The next look, at arrays that all answer.
fn look(watch: &mut Watch, seen: &[&Seen]) -> Vec<String> {
    let seen = seen.iter().copied().cloned().collect();
    words(&watch.look(seen, &BTreeSet::new()))
}

/// Returns the alerts about this change of an array.
fn told(old: Seen, new: Seen) -> Vec<String> {
    let mut watch = Watch::default();
    look(&mut watch, &[&old]);
    look(&mut watch, &[&new])
}

#[test]
fn members_that_change() {
    let cases: [(MemberState, Option<MemberState>, &[&str]); 16] = [
        (InSync, Some(InSync), &[]),
        (InSync, Some(Faulty), &["Fail a"]),
        (InSync, Some(Spare), &["Fail a"]),
        (InSync, Some(Rebuilding), &["Fail a"]),
        (InSync, None, &["Fail a"]),
        (Journal, Some(Journal), &[]),
        (Journal, Some(Faulty), &["Fail a"]),
        (Spare, Some(Rebuilding), &[]),
        (Spare, Some(Faulty), &["FailSpare a"]),
        (Spare, Some(InSync), &["SpareActive a"]),
        (Spare, None, &[]),
        (Rebuilding, Some(Faulty), &["FailSpare a"]),
        (Rebuilding, Some(InSync), &["SpareActive a"]),
        (Faulty, Some(InSync), &["SpareActive a"]),
        (Faulty, Some(Rebuilding), &[]),
        (Faulty, None, &[]),
    ];
    for (old, new, expected) in cases {
        let new_members: Vec<_> = new.iter().map(|state| ("a", *state)).collect();
        assert_eq!(told(array(&[("a", old)]), array(&new_members)), expected, "{old:?} {new:?}");
    }
    for (new, expected) in [(InSync, "SpareActive a"), (Faulty, "FailSpare a")] {
        assert_eq!(told(array(&[]), array(&[("a", new)])), [expected]);
    }
    assert!(told(array(&[]), array(&[("a", Spare)])).is_empty());
}

#[test]
fn another_shape_is_told_and_a_member_that_it_has_no_role_for_has_not_failed() {
    let shaped = |shape: &str, array: Seen| Seen { shape: shape.to_owned(), ..array };
    let old = shaped("raid6 of 2", array(&[("a", InSync), ("b", InSync)]));
    let new = shaped("raid5 of 1", array(&[("a", InSync), ("b", Spare)]));
    assert_eq!(told(old.clone(), new.clone()), ["ArrayGrown"]);
    let lost = shaped("raid5 of 1", array(&[("a", InSync), ("b", Faulty)]));
    assert_eq!(told(old.clone(), lost), ["ArrayGrown", "Fail b"]);
    let mut watch = Watch::default();
    watch.look(vec![old.clone()], &BTreeSet::new());
    // One that waits for its members does not say which shape it has.
    assert_eq!(look(&mut watch, &[&shaped("", old.clone())]), [""; 0]);
    assert_eq!(look(&mut watch, &[&old]), [""; 0]);
    let alerts = watch.look(vec![new], &BTreeSet::new());
    assert_eq!(alerts[0].change.as_deref(), Some("raid6 of 2 before, raid5 of 1 now"));
}

#[test]
fn an_array_that_fails_is_not_told_as_one_more_member() {
    let failed = |array: Seen| Seen { state: vec!["failed".to_owned()], ..degraded(array) };
    let one = degraded(array(&[("a", InSync), ("b", Faulty)]));
    let two = failed(array(&[("a", Faulty), ("b", Faulty)]));
    let mut watch = Watch::default();
    assert_eq!(look(&mut watch, &[&array(&[("a", InSync), ("b", InSync)])]), [""; 0]);
    assert_eq!(look(&mut watch, &[&one]), ["Fail b"]);
    assert_eq!(look(&mut watch, &[&two]), ["Fail a", "ArrayFailed"]);
    assert_eq!(look(&mut watch, &[&two]), [""; 0], "once");
    let mut resumed = Watch::resume(watch.told());
    assert_eq!(look(&mut resumed, &[&two]), ["ArrayFailed"], "once more after a restart");
    assert_eq!(look(&mut resumed, &[&two]), [""; 0]);
    let mut unknown = Watch::default();
    assert_eq!(look(&mut unknown, &[&two]), ["ArrayFailed"]);
    assert_eq!(look(&mut unknown, &[&one]), ["SpareActive a"]);
    assert_eq!(look(&mut unknown, &[&two]), ["Fail a", "ArrayFailed"]);
}

#[test]
fn an_alert_has_the_role_also_of_a_member_that_is_gone() {
    let roles: BTreeMap<String, u16> = [("a".to_owned(), 3)].into();
    let mut watch = Watch::default();
    watch.look(vec![Seen { roles, ..array(&[("a", InSync)]) }], &BTreeSet::new());
    let alerts = watch.look(vec![degraded(array(&[]))], &BTreeSet::new());
    assert_eq!(alerts[0].role, Some(3));
}

#[test]
fn nodes_that_are_lost() {
    let member = "node://host:7001/home";
    let whole = array(&[(member, InSync)]);
    let expected = ["Fail node://host:7001/home", "NodeLost host:7001"];
    assert_eq!(told(whole.clone(), array(&[(member, Faulty)])), expected);
    assert_eq!(told(whole.clone(), array(&[])), expected);
    assert_eq!(told(whole.clone(), array(&[(member, Rebuilding)])), expected[..1]);
    let witness = Seen { lost_witnesses: ["w:7".to_owned()].into(), ..whole.clone() };
    assert_eq!(told(whole.clone(), witness.clone()), ["NodeLost w:7"]);
    assert!(told(witness.clone(), witness.clone()).is_empty());
    assert!(told(witness, whole).is_empty());
}

#[test]
fn background_work_that_goes_on() {
    let idle = array(&[]);
    let found = |sectors, array: Seen| Seen { mismatch_sectors: sectors, ..array };
    let waits = Seen { reshapes: true, ..idle.clone() };
    let cases: [(Seen, Seen, &[&str]); 21] = [
        (idle.clone(), idle.clone(), &[]),
        (idle.clone(), working(Resync, 0), &["RebuildStarted"]),
        (idle.clone(), working(Resync, 60), &["RebuildStarted"]),
        (working(Resync, 0), working(Resync, 0), &[]),
        (working(Resync, 0), working(Resync, 20), &["Rebuild20"]),
        (working(Resync, 20), working(Resync, 80), &["Rebuild80"]),
        (working(Resync, 80), idle.clone(), &["RebuildFinished"]),
        (working(Resync, 80), working(Resync, 0), &["RebuildFinished", "RebuildStarted"]),
        (working(Resync, 20), working(Recovery, 20), &["RebuildFinished", "RebuildStarted"]),
        (idle.clone(), working(Reshape, 0), &["ReshapeStarted"]),
        (working(Reshape, 20), working(Reshape, 40), &["Reshape40"]),
        (working(Reshape, 80), idle.clone(), &["ReshapeFinished"]),
        (working(Reshape, 80), waits.clone(), &[]),
        (waits.clone(), idle.clone(), &["ReshapeFinished"]),
        (waits, working(Reshape, 80), &["ReshapeStarted"]),
        (working(Check, 0), found(8, working(Check, 0)), &[]),
        (working(Check, 0), found(8, idle.clone()), &["RebuildFinished", "MismatchFound"]),
        (working(Check, 0), idle.clone(), &["RebuildFinished"]),
        (found(8, idle.clone()), found(8, idle.clone()), &[]),
        (idle.clone(), found(8, idle.clone()), &["MismatchFound"]),
        (found(8, idle.clone()), found(0, idle.clone()), &[]),
    ];
    for (old, new, expected) in cases {
        let what = format!("{old:?} {new:?}");
        assert_eq!(told(old, new), expected, "{what}");
    }
}

#[test]
fn what_a_check_finds_again_is_told_again() {
    let mut watch = Watch::default();
    let found = Seen { mismatch_sectors: 8, ..array(&[]) };
    assert_eq!(look(&mut watch, &[&found]), ["MismatchFound"]);
    look(&mut watch, &[&working(Check, 0)]);
    let midway = Seen { mismatch_sectors: 4, ..working(Check, 0) };
    assert!(look(&mut watch, &[&midway]).is_empty());
    assert_eq!(look(&mut watch, &[&found]), ["RebuildFinished", "MismatchFound"]);
}

#[test]
fn arrays_that_come_and_go() {
    let mut watch = Watch::default();
    let home = named("home");
    let spare = named("spare");
    assert_eq!(look(&mut watch, &[&degraded(home.clone())]), ["DegradedArray"]);
    assert!(look(&mut watch, &[&degraded(home.clone())]).is_empty());
    let both = [&home, &degraded(spare.clone())];
    assert_eq!(look(&mut watch, &both), ["NewArray", "DegradedArray"]);
    let silent = BTreeSet::from(["spare".to_owned()]);
    assert!(watch.look(vec![home.clone()], &silent).is_empty(), "it only does not answer");
    assert_eq!(look(&mut watch, &[&home]), ["DeviceDisappeared"]);
    assert_eq!(look(&mut watch, &[&degraded(spare)]).len(), 3, "one goes, one comes, degraded");
}

#[test]
fn arrays_within_come_and_go_with_theirs() {
    let mut watch = Watch::default();
    look(&mut watch, &[]);
    let top = named("top");
    let inner = named("top/left");
    let both = [&top, &inner];
    assert_eq!(look(&mut watch, &both), ["NewArray"]);
    let lost = [&top, &degraded(inner.clone())];
    assert!(look(&mut watch, &lost).is_empty(), "Fail would tell");
    assert_eq!(look(&mut watch, &[&top]), ["DeviceDisappeared"]);
    look(&mut watch, &both);
    assert_eq!(look(&mut watch, &[]), ["DeviceDisappeared"]);
}

#[test]
fn over_a_restart_nothing_is_told_twice_and_nothing_is_lost() {
    let whole = array(&[("a", InSync), ("b", InSync)]);
    let lost = degraded(array(&[("a", Faulty), ("b", InSync)]));
    let mut watch = Watch::default();
    assert!(look(&mut watch, &[&whole]).is_empty());
    let mut watch = Watch::resume(watch.told());
    let expected = ["DegradedArray", "Fail a"];
    assert_eq!(look(&mut watch, &[&lost]), expected, "while there was no monitor");
    let mut watch = Watch::resume(watch.told());
    assert!(look(&mut watch, &[&lost]).is_empty());
    look(&mut watch, &[&whole]);
    assert_eq!(look(&mut watch, &[&lost]), ["Fail a"], "as mdadm does");
    let mut watch = Watch::resume(watch.told());
    assert_eq!(look(&mut watch, &[&lost]), ["DegradedArray"]);
    let mut watch = Watch::resume(watch.told());
    assert!(look(&mut watch, &[&lost]).is_empty());
    let mut watch = Watch::resume(watch.told());
    assert_eq!(look(&mut watch, &[]), ["DeviceDisappeared"], "meanwhile");
    let mut watch = Watch::resume(watch.told());
    assert!(look(&mut watch, &[]).is_empty());
    assert_eq!(look(&mut watch, &[&whole]), ["NewArray"]);
}
