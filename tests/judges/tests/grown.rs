//! Arrays whose shape `braid grow` has changed go to a real md kernel, and arrays whose shape md
//! has changed go to Braid: the same content, and redundancy that fits, in one boot for all.

use crate::braid_to_md::{available, create, members};
use crate::handoff::{Left, to_md_and_back_with};
use crate::served::Served;
use crate::support::{self, Run, read, skip};
use braid_judges::Content;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const MEMBER_BYTES: u64 = 10 << 20;

/// name | level, members and options of create | roles whose members leave before, and options of
/// grow | devices that are added | what `mdadm --detail` says of it then: level, layout, members.
/// md does the recovery of `midway`, and the rest of those by halves; of `half-u` back, of `half-m`
/// to the larger size that they have then (with a bitmap md does not resync what is new after a
/// stop on the way), and of `half-0`. Those with `d` lack a member until then. Those with `j` have
/// one device more, with the journal.
const BY_BRAID: &str = "\
size-1  | 1 2 --size 6M                 | --size max                  | 0 | raid1 - 2
size-5  | 5 3 --size 6M -b internal     | --size max                  | 0 | raid5 left-symmetric 3
size-6  | 6 4 --size 6M                 | --size 8M                   | 0 | raid6 left-symmetric 4
size-10 | 10 4 --size 6M -b internal    | --size max                  | 0 | raid10 near=2 4
more-5  | 5 3 -b internal               | --raid-devices 5            | 2 | raid5 left-symmetric 5
more-6  | 6 4                           | --raid-devices 5            | 1 | raid6 left-symmetric 5
chunk-5 | 5 3                           | --chunk 16K                 | 0 | raid5 left-symmetric 3
lay-6   | 6 4 -b internal               | --layout left-symmetric-6   | 0 | raid6 left-symmetric-6 4
less-5 | 5 4 -b internal | --raid-devices 3 --array-size 1M | 0 | raid5 left-symmetric 3
less-6 | 6 5 --size 8M | --raid-devices 4 --array-size 1M | 0 | raid6 left-symmetric 4
less-1  | 1 2 -b internal               | --size 6M --array-size 1M   | 0 | raid1 - 2
less-s5 | 5 3 -b internal               | --size 6M --array-size 1M   | 0 | raid5 left-symmetric 3
less-10 | 10 4 -b internal              | --size 6M --array-size 1M   | 0 | raid10 near=2 4
half-5  | 5 3 -b internal               | --chunk 128K                | 0 | raid5 left-symmetric 3
half-l5 | 5 4 -b internal | --raid-devices 3 --array-size 1M | 0 | raid5 left-symmetric 3
half-l6 | 6 6 --size 8M | --raid-devices 4 --array-size 1M | 0 | raid6 left-symmetric 4
half-d6 | 6 5 -b internal               | without 1: --chunk 128K     | 1 | raid6 left-symmetric 5
half-6  | 6 4                           | --layout right-symmetric    | 0 | raid6 right-symmetric 4
half-u  | 5 3                           | --raid-devices 4            | 1 | raid5 left-symmetric 3
half-ub | 6 4 -b internal               | --chunk 32K                 | 0 | raid6 left-symmetric 4
more-10 | 10 4 -b internal              | --raid-devices 5            | 1 | raid10 near=2 5
more-o2 | 10 3 --layout o2              | --raid-devices 5            | 2 | raid10 offset=2 5
chunk-10 | 10 4 -b internal             | --chunk 16K                 | 0 | raid10 near=2 4
lay-10  | 10 3 --size 8M                | --layout o2                 | 0 | raid10 offset=2 3
half-10 | 10 4 --size 8M -b internal    | --chunk 128K                | 0 | raid10 near=2 4
half-o2 | 10 4 --layout o2              | --layout n2                 | 0 | raid10 near=2 4
half-u1 | 10 3 -b internal              | --raid-devices 4            | 1 | raid10 near=2 3
less-n10 | 10 5 -b internal | --raid-devices 4 --array-size 1M | 0 | raid10 near=2 4
half-l10 | 10 5 --size 8M | --raid-devices 3 --array-size 1M | 0 | raid10 near=2 3
half-m1 | 10 3                          | --raid-devices 4            | 1 | raid10 near=2 4
half-m2 | 10 4                          | --raid-devices 5            | 1 | raid10 near=2 5
more-0  | 0 2                           | --raid-devices 4            | 2 | raid0 -unknown- 4
half-0  | 0 3                           | --raid-devices 4            | 1 | raid0 - 4
half-02 | 0 2                           | --raid-devices 4            | 2 | raid0 - 4
half-u0 | 0 2                           | --raid-devices 4            | 2 | raid0 - 2
back-0  | 0 3                           | --raid-devices 5            | 2 | raid0 -unknown- 3
more-p5 | 5 3 -k ppl | --raid-devices 4 --suspend-policy | 1 | raid5 left-symmetric 4
size-p5 | 5 3 -k ppl --size 6M | --size max --suspend-policy | 0 | raid5 left-symmetric 3
half-p5 | 5 3 -k ppl | --chunk 128K --suspend-policy | 0 | raid5 left-symmetric 3
more-j5 | 5 3 -k journal | --raid-devices 4 --suspend-policy | 1 | raid5 left-symmetric 4
half-j5 | 5 3 -k journal | --chunk 128K --suspend-policy | 0 | raid5 left-symmetric 3
third   | 1 2 -b internal               | --raid-devices 3            | 1 | raid1 - 3
5-6     | 5 3 -b internal               | --level 6 --layout preserve | 1 | raid6 left-symmetric-6 4
midway  | 5 3                           | --level 6 --layout preserve | 1 | raid6 left-symmetric-6 4
6-5     | 6 4 --layout left-symmetric-6 | --level 5                   | 0 | raid5 left-symmetric 3
0-5     | 0 3                           | --level 5 --layout preserve | 1 | raid5 parity-last 4
0-4     | 0 3                           | --level 4                   | 1 | raid4 - 4
0-10    | 0 2                           | --level 10                  | 2 | raid10 near=2 4
1-5     | 1 2 -b internal               | --level 5                   | 0 | raid5 left-symmetric 2
4-5     | 4 3                           | --level 5 --layout preserve | 0 | raid5 parity-last 3
more-l  | linear 2                      | --raid-devices 4            | 2 | linear - 4
10-0    | 10 4 --size 6M -b internal    | without 1 2: --level 0      | 0 | raid0 -unknown- 2
1-0     | 1 3                           | without 0 2: --level 0      | 0 | raid0 -unknown- 1
4-0     | 4 4 --size 6M                 | without 3: --level 0        | 0 | raid0 -unknown- 3
5-0     | 5 3 --layout parity-last      | without 2: --level 0        | 0 | raid0 -unknown- 2
0-1     | 0 1 --force                   | --level 1                   | 1 | raid1 - 2";

/// name | members of create, and devices in all | options of mdadm --create | of mdadm --grow |
/// level, layout and members as `braid status` has them
const BY_MD: &str = "\
md-size  | 3 3 | -l5 -c64 --size=6M -b none | --size=max                  | raid5 left-symmetric 3
md-size1 | 2 2 | -l1 --size=6M -b internal  | --size=max                  | raid1 - 2
md-5-6   | 3 4 | -l5 -c64 -b internal       | --level=6 --layout=preserve | raid6 left-symmetric-6 4
md-third | 2 3 | -l1 -b internal            | --raid-devices=3            | raid1 - 3";

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().map(|line| line.split('|').map(str::trim).collect())
}

#[test]
fn md_takes_what_braid_grew_and_braid_what_md_grew() {
    let test = "md_takes_what_braid_grew_and_braid_what_md_grew";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let grown: Vec<(Left, String)> =
        support::drawn(rows(BY_BRAID).zip(2000..)).into_iter().map(grown_by_braid).collect();
    let mut script = include_str!("grown.sh").to_owned();
    let theirs = support::drawn(rows(BY_MD).zip(3000..));
    let theirs: Vec<_> = theirs.into_iter().map(|row| grown_by_md(row, &mut script)).collect();
    let left = grown.iter().map(|(left, _)| left.clone()).collect();
    to_md_and_back_with(test, left, &script);
    let mut findings = Vec::new();
    for (left, expected) in &grown {
        let detail = read(&directory(&left.members).join("detail.txt"));
        let found = detailed(&detail);
        // Logs are off where md ends the change.
        let logs = ["ppl", "journal"].map(|log| format!("Consistency Policy : {log}"));
        let has_log = logs.iter().any(|log| detail.contains(log));
        let ends_with_log = log_of(&left.name).is_some() && !left.name.starts_with("half");
        if found != *expected || has_log != ends_with_log {
            findings.push(format!("{}: md says {found}, not {expected}: {detail}", left.name));
        }
    }
    // They are on again for Braid as soon as it has the array.
    for left in grown.iter().map(|(left, _)| left).filter(|left| left.name.starts_with("half")) {
        let Some(log) = log_of(&left.name) else { continue };
        let served = Served::start(&left.name, &left.members, &[]);
        support::until("logs are on again", || served.status()["consistency_policy"] == log);
        served.stop();
    }
    for (name, members, seed, shape) in theirs {
        if let Err(finding) = support::attempt(|| take(&name, &members, seed, &shape)) {
            findings.push(format!("{name}: {finding}"));
        }
    }
    support::report(&findings);
}

/// The log against the write hole that an array of this name has.
fn log_of(name: &str) -> Option<&'static str> {
    let (_, kind) = name.split_once('-')?;
    match kind {
        "p5" => Some("ppl"),
        "j5" => Some("journal"),
        _ => None,
    }
}

fn directory(members: &[PathBuf]) -> &Path {
    members[0].parent().expect("a directory")
}

/// An array that Braid made, filled, grew and stopped, and the shape and KiB that it ought to have.
fn grown_by_braid((row, seed): (Vec<&str>, u64)) -> (Left, String) {
    let [name, made, change, added, shape] = row[..] else { panic!("{row:?}") };
    let made: Vec<&str> = made.split_whitespace().collect();
    let count: usize = made[1].parse().expect("a number");
    let added: usize = added.parse().expect("a number");
    let journals = usize::from(log_of(name) == Some("journal"));
    let mut all = members(&format!("grown-{name}"), count + added + journals, MEMBER_BYTES);
    let journal = all.split_off(count + added);
    let leave = change.strip_prefix("without ").and_then(|rest| rest.split_once(": "));
    let (leave, change) = leave.unwrap_or(("", change));
    made_with(name, &made, &all[..count], &journal);
    let served = Served::start(name, &[&all[..count], &journal].concat(), &[]);
    let content = Content::of(seed);
    let before = served.size_bytes();
    served.fill(&content);
    take_away(&served, &mut all, leave);
    let kept = all.len() - added;
    let mut grow = served.braid("grow");
    grow.args(change.split_whitespace());
    let taken = if name.starts_with("half-d") { &[][..] } else { &all[kept..] };
    taken.iter().for_each(|device| _ = grow.arg("--add").arg(device));
    if name == "midway" {
        // md is to do what follows.
        Run::of(served.braid("limit").arg("--pause")).expect_success("limit");
        Run::of(&mut grow).expect_success("grow");
        assert!(served.is("degraded"), "{name}: {}", served.status());
        served.stop();
        let left = Left { name: name.to_owned(), members: all, content, size_bytes: before };
        return (left, format!("{shape} {}", before >> 10));
    }
    if name.starts_with("back") {
        there_and_back(served, &mut grow, before);
        // mdadm takes none that were to be members beside those that are.
        let members = all[..count].to_vec();
        let left = Left { name: name.to_owned(), members, content, size_bytes: before };
        return (left, format!("{shape} {}", before >> 10));
    }
    if name.starts_with("half") {
        let is_larger = name.starts_with("half-m") || name.starts_with("half-0");
        let planned = by_halves(&served, &mut grow, name.starts_with("half-u"));
        if name.starts_with("half-d") {
            // md is to rebuild what is missing when it has moved the rest.
            Run::of(served.braid("add").arg(&all[kept])).expect_success("add");
        }
        // A smaller array is so at once.
        let size_bytes = served.size_bytes();
        served.stop();
        let after = if is_larger { planned } else { size_bytes };
        all.extend(journal);
        let left = Left { name: name.to_owned(), members: all, content, size_bytes };
        return (left, format!("{shape} {}", after >> 10));
    }
    Run::of(grow.arg("--wait")).expect_success("grow");
    assert!(!served.is("degraded"), "{name}: {}", served.status());
    if !shape.starts_with("raid0") && !shape.starts_with("linear") {
        assert_eq!(served.check(), 0, "{name}: mismatches");
    }
    served.stop();
    all.extend(journal);
    let served = Served::start(name, &all, &[]);
    let size_bytes = served.size_bytes();
    let grows = change.starts_with("--size") || name.starts_with("more");
    let shrinks = name.starts_with("less");
    assert_eq!(size_bytes < before, shrinks, "{name}: {size_bytes}");
    assert_eq!(size_bytes > before, grows && !shrinks, "{name}: {size_bytes}");
    if size_bytes > before {
        served.write(&content, before, size_bytes - before);
    }
    served.expect(&content, "grown");
    served.stop();
    let left = Left { name: name.to_owned(), members: all, content, size_bytes };
    (left, format!("{shape} {}", size_bytes >> 10))
}

/// Makes an array by the options of its row.
fn made_with(name: &str, made: &[&str], members: &[PathBuf], journal: &[PathBuf]) {
    let chunk: &[&str] = if ["1", "linear"].contains(&made[0]) { &[] } else { &["--chunk", "64K"] };
    let journal: Vec<String> =
        journal.iter().map(|path| format!("--write-journal={}", path.display())).collect();
    let journal: Vec<&str> = journal.iter().map(String::as_str).collect();
    let clean: &[&str] = &["--assume-clean"];
    create(name, made[0], members, &[&made[2..], chunk, clean, &journal].concat());
}

/// Takes the members of these roles away.
fn take_away(served: &Served, members: &mut Vec<PathBuf>, roles: &str) {
    for role in roles.split_whitespace().rev() {
        let member = members.remove(role.parse().expect("a role"));
        Run::of(served.braid("fail").arg(&member)).expect_success("fail");
        Run::of(served.braid("remove").arg(&member)).expect_success("remove");
    }
}

/// Data begin to move, and all move back. Stops the array.
fn there_and_back(served: Served, grow: &mut Command, before: u64) {
    by_halves(&served, grow, true);
    Run::of(served.braid("limit").args(["--max", "none"])).expect_success("limit");
    support::until("all has moved back", || served.status()["sync"]["from"].is_null());
    assert_eq!(served.size_bytes(), before);
    served.stop();
}

/// Data begin to move, and with `turns` begin to move back. Returns the planned size.
fn by_halves(served: &Served, grow: &mut Command, turns: bool) -> u64 {
    Run::of(served.braid("limit").args(["--max", "2M"])).expect_success("limit");
    let plan = Run::of(grow.arg("--json")).expect_success("grow").stdout;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let done = || served.status()["sync"]["done_bytes"].as_u64().unwrap_or(u64::MAX);
    support::until("a part has moved", || done() > 2 << 20);
    if turns {
        Run::of(served.braid("grow").arg("--undo")).expect_success("grow --undo");
        let before = done();
        support::until("a part has moved back", || done() > before);
    }
    assert_eq!(served.status()["sync"]["action"], "reshape");
    plan["to"]["size_bytes"].as_u64().expect("a size")
}

/// `raid5 left-symmetric 3 16384`: level, layout, members and KiB, as `mdadm --detail` says.
fn detailed(detail: &str) -> String {
    let field = |name: &str| {
        let of = |line: &&str| line.trim_start().starts_with(&format!("{name} : "));
        let value = detail.lines().find(of).and_then(|line| line.split(" : ").nth(1));
        value.and_then(|value| value.split_whitespace().next()).unwrap_or("-")
    };
    ["Raid Level", "Layout", "Raid Devices", "Array Size"].map(field).join(" ")
}

/// Members of an array that md is to make and grow in the guest, by this script.
fn grown_by_md(
    (row, seed): (Vec<&str>, u64),
    script: &mut String,
) -> (String, Vec<PathBuf>, u64, String) {
    let [name, counts, create, grow, shape] = row[..] else { panic!("{row:?}") };
    let (first, all) = counts.split_once(' ').expect("two numbers");
    let all = members(&format!("grown-{name}"), all.parse().expect("a number"), MEMBER_BYTES);
    let directory = directory(&all).display();
    let _ = writeln!(script, "grow_by_md {name} {seed} {first} {directory} '{create}' '{grow}'");
    (name.to_owned(), all, seed, shape.to_owned())
}

/// Braid takes an array that md has left.
fn take(name: &str, members: &[PathBuf], seed: u64, shape: &str) {
    let size = read(&directory(members).join("size.txt"));
    let size_bytes = size.trim().parse().expect("a size");
    let content = Content::of(seed);
    let name = name.to_owned();
    let left = Left { name: name.clone(), members: members.to_vec(), content, size_bytes };
    left.expect_by_cat("grown by md");
    let served = Served::start(&name, members, &[]);
    let status = served.status();
    let layout = status["layout"].as_str().unwrap_or("-");
    let level = status["level"].as_str().unwrap_or_default();
    assert_eq!(format!("{level} {layout} {}", status["raid_devices"]), shape);
    assert_eq!(served.size_bytes(), size_bytes);
    assert_eq!(served.check(), 0, "mismatches");
    served.stop();
}
