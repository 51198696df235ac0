//! What Linux md wrote, Braid reads: the whole content of every array, also with each member (of
//! RAID-6, each pair) left out, and not one byte on any member changes.

use crate::golden::{self, Golden};
use crate::served::Served;
use crate::support::{self, braid, fingerprints, guest, skip};
use std::path::PathBuf;
use std::process::Stdio;

#[test]
fn reads_raid0_and_linear() {
    read_arrays("reads_raid0_and_linear", &["0", "linear"]);
}

#[test]
fn reads_raid1() {
    read_arrays("reads_raid1", &["1"]);
}

#[test]
fn reads_raid4_and_raid5() {
    read_arrays("reads_raid4_and_raid5", &["4", "5"]);
}

#[test]
fn reads_raid6() {
    read_arrays("reads_raid6", &["6"]);
}

#[test]
fn reads_raid10() {
    read_arrays("reads_raid10", &["10"]);
}

fn read_arrays(test: &str, levels: &[&str]) {
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let arrays = golden::all().iter();
    read_all(support::drawn(arrays.filter(|array| levels.contains(&array.level()))));
}

/// Those that are committed need no guest.
#[test]
fn reads_the_committed_arrays() {
    read_all(&golden::tiny());
}

fn read_all<'a>(arrays: impl IntoIterator<Item = &'a Golden>) {
    let mut findings = Vec::new();
    for array in arrays {
        let before = fingerprints(&array.members);
        for without in absences(array) {
            let expected = expected(array, &without);
            if let Err(finding) = expected.compare(&cat(array, &without)) {
                findings.push(format!("{} without {without:?}: {finding}", array.name));
            }
        }
        if fingerprints(&array.members) != before {
            findings.push(format!("{}: reading changed a member", array.name));
        }
    }
    support::report(&findings);
}

/// What `braid cat` of some members ought to do.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// Print the content.
    Content,
    /// Exit with 1 and a line that says why; what was printed before must be right.
    Refusal,
}

impl Expected {
    fn compare(&self, found: &Result<(), String>) -> Result<(), String> {
        match (self, found) {
            (Self::Content, found) => found.clone(),
            (Self::Refusal, Ok(())) => Err("read what cannot be read".into()),
            (Self::Refusal, Err(reason)) if reason.starts_with("refused: ") => Ok(()),
            (Self::Refusal, Err(reason)) => Err(reason.clone()),
        }
    }
}

/// Which sets of members to leave out.
fn absences(array: &Golden) -> Vec<Vec<usize>> {
    let count = array.members.len();
    let mut sets: Vec<Vec<usize>> = vec![vec![]];
    // Without the newest, the stale one is an array of its own, with the content of its time.
    let first = usize::from(array.after == "stale");
    sets.extend((first..count).map(|one| vec![one]));
    let pairs = array.level() == "6" || array.copies() > 2 || array.level() == "1" && count > 2;
    if pairs {
        for one in 0..count {
            sets.extend((one + 1..count).map(|other| vec![one, other]));
        }
    }
    sets
}

/// What the level promises, less what the array lost before.
fn expected(array: &Golden, without: &[usize]) -> Expected {
    let mut lost: Vec<usize> = without.to_vec();
    let (after, roles) = array.after.split_once('-').unwrap_or((&array.after, ""));
    match after {
        "stale" | "halfway" | "badblocks" if !without.is_empty() => lost.push(1),
        "degraded" => lost.extend(roles.bytes().map(|role| usize::from(role - b'0'))),
        // Parity may be wrong, so nothing can be computed from it.
        "dirty" | "resyncing" if !without.is_empty() => return Expected::Refusal,
        _ => {}
    }
    lost.retain(|role| *role < array.raid_devices);
    lost.sort_unstable();
    lost.dedup();
    let survivable = match array.level() {
        "1" => array.raid_devices - 1,
        "4" | "5" => 1,
        "6" => 2,
        "10" => array.copies() - 1,
        _ => 0,
    };
    if lost.len() <= survivable { Expected::Content } else { Expected::Refusal }
}

/// `braid cat` of the members but some, compared on the fly.
fn cat(array: &Golden, without: &[usize]) -> Result<(), String> {
    let members: Vec<&PathBuf> = array
        .members
        .iter()
        .enumerate()
        .filter(|(index, _)| !without.contains(index))
        .map(|(_, member)| member)
        .collect();
    let mut command = braid();
    command.arg("cat").args(members).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("braid starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let checked = array.content.check(&mut stdout, 0, array.size_bytes);
    drop(stdout);
    let output = child.wait_with_output().expect("braid ends");
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match (output.status.code(), checked) {
        (Some(0), checked) => checked,
        (Some(1), Err(reason)) if reason.starts_with("wrong byte") => {
            Err(format!("printed garbage before it failed: {reason}; {stderr}"))
        }
        (Some(1), _) => one_line("cat", &stderr).and(Err(format!("refused: {stderr}"))),
        (status, _) => Err(format!("status {status:?}: {stderr}")),
    }
}

/// An error is one line: `braid: OPERATION OBJECT: REASON; NEXT STEP`.
fn one_line(operation: &str, stderr: &str) -> Result<(), String> {
    let well_formed = stderr.lines().count() == 1
        && stderr.starts_with(&format!("braid: {operation} "))
        && stderr.contains("; ");
    if well_formed { Ok(()) } else { Err(format!("not a one-line error: {stderr}")) }
}

#[test]
fn examines_as_mdadm_does() {
    if let Err(reason) = guest::available() {
        return skip("examines_as_mdadm_does", &reason);
    }
    let mut findings = Vec::new();
    for array in golden::all() {
        for (number, member) in array.members.iter().enumerate() {
            let theirs = array.text(&format!("examine-{number}.export"));
            let run = support::Run::of(braid().args(["examine", "--export"]).arg(member));
            let ours: Vec<&str> = run.stdout.lines().collect();
            for line in theirs.lines().filter(|line| !ours.contains(line)) {
                findings.push(format!("{} member {number}: no line {line}", array.name));
            }
            if !run.status.success() {
                findings.push(format!("{} member {number}: {run}", array.name));
            }
        }
    }
    support::report(&findings);
}

/// The fields of `mdadm --detail --export`, device names aside: ours are files, not loop devices.
#[test]
fn details_as_mdadm_does() {
    if let Err(reason) = guest::available() {
        return skip("details_as_mdadm_does", &reason);
    }
    let mut findings = Vec::new();
    for name in ["raid0-2", "raid1-v090-bitmap", "raid5-spare", "raid6-5-la", "raid10-5-n3"] {
        let array = golden::named(name);
        let members = golden::copy(array, &support::directory("details"));
        let served = Served::readonly("details", &members);
        let run = support::Run::of(served.braid("detail").arg("--export"));
        let mut theirs = array.text("detail.export");
        for (number, member) in members.iter().enumerate() {
            let path = member.display().to_string();
            let key: String =
                path.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
            theirs = theirs.replace(&format!("_dev_loop{number}_"), &format!("{key}_"));
            theirs = theirs.replace(&format!("/dev/loop{number}"), &path);
        }
        for line in theirs.lines().filter(|line| !run.stdout.lines().any(|ours| ours == *line)) {
            findings.push(format!("{name}: no line {line} in\n{}", run.stdout));
        }
        served.stop();
    }
    support::report(&findings);
}
