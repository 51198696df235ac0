//! Local arrays with a journal: served with it, without it, and with another in its place; and
//! arrays whose process was killed, with either log.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::export::{ask, connect, fill, noise};
use crate::support::{Lab, until};

const MEMBER_MIB: u64 = 16;

/// An array of this name, served, with `noise` in it.
fn served(lab: &Lab, options: &str, members: &[PathBuf]) -> Vec<u8> {
    let words = format!("create v -l 5 -n 3 --chunk 64K --assume-clean {options}");
    let roles = &members[..3];
    lab.ok(&words, roles);
    lab.ok(&assemble(lab), members);
    let content = noise(content_bytes(lab));
    fill(&lab.path("v.sock"), "v", &content);
    content
}

fn assemble(lab: &Lab) -> String {
    format!("assemble v --export nbd:unix:{}", lab.path("v.sock").display())
}

fn content_bytes(lab: &Lab) -> usize {
    let text = lab.ok("status v --json", &[]);
    let status: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    status["size_bytes"].as_u64().expect("a size") as usize
}

fn write(lab: &Lab, content: &mut [u8], at: usize, with: u8) {
    let mut stream = connect(&lab.path("v.sock"), "v", content.len());
    content[at..at + 4096].fill(with);
    ask(&mut stream, 1, at as u64, &[with; 4096]).unwrap();
}

/// Kills the process that serves the array.
fn kill(lab: &Lab, members: &[PathBuf]) {
    let told = lab.ok_text("assemble --explain", members);
    let pid = told.split("process ").nth(1).expect("a process");
    let digits: String = pid.chars().take_while(char::is_ascii_digit).collect();
    let pid = digits.parse().ok().and_then(Pid::from_raw).expect("its number");
    kill_process(pid, Signal::KILL).unwrap();
    until("the members are free", || lab.run("cat --length 1", members).status.success());
}

#[test]
fn an_array_goes_on_with_another_journal() {
    let lab = Lab::new();
    let mut members = lab.members("m", 3, MEMBER_MIB);
    let journals = lab.members("j", 2, 12);
    let option = format!("--write-journal {}", journals[0].display());
    members.push(journals[0].clone());
    let mut content = served(&lab, &option, &members);
    assert!(lab.ok_text("status v", &[]).contains("journal"));

    lab.ok("fail v", &journals[..1]);
    let status = lab.ok_text("status v", &[]);
    let told = "  next: braid add v NEW-DEVICE --journal\n  see: braid help BRAID-103\n";
    assert!(status.contains(told), "{status}");
    assert!(lab.ok_text("status v", &[]).contains("read-only"), "nothing is written without it");
    let refused = lab.run("add v --journal", &journals[..1]);
    assert!(!refused.status.success(), "it failed, and is a member still");
    lab.ok("add v --journal", &journals[1..]);
    write(&lab, &mut content, 8192, 7);
    lab.ok("remove v", &journals[..1]);

    members[3] = journals[1].clone();
    kill(&lab, &members);
    let both = [&members[..], &journals[..1]].concat();
    let told = String::from_utf8(lab.run("assemble --explain", &both).stdout).unwrap();
    assert!(told.contains("stale"), "the array went on without the first: {told}");
    assert!(lab.ok("cat", &members) == content, "read through its journal");
    let without = lab.refused(1, "assemble v --run", &members[..3], &members);
    assert!(without.contains("journal") && without.contains("--force"), "{without}");
    lab.ok(&assemble(&lab), &members);
    assert!(lab.ok("cat v", &[]) == content);
    lab.ok("check v --wait", &[]);
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_a_lost_member() {
    for option in ["--consistency-policy ppl", "--write-journal j0"] {
        let lab = Lab::new();
        let mut members = lab.members("m", 3, MEMBER_MIB);
        if option.contains("journal") {
            members.extend(lab.members("j", 1, 12));
        }
        let mut content = served(&lab, option, &members);
        for number in 0..20 {
            write(&lab, &mut content, number * 36_864, number as u8);
        }
        kill(&lab, &members);
        // Of the three, the first is lost.
        let left = &members[1..];
        assert!(lab.ok("cat", left) == content, "{option}: read through the log");
        lab.ok(&format!("{} --run", assemble(&lab)), left);
        assert!(lab.ok("cat v", &[]) == content, "{option}: replayed");
    }
}

#[test]
fn a_journal_that_writes_back_has_what_was_acknowledged_after_a_kill_and_a_lost_member() {
    let lab = Lab::new();
    let mut members = lab.members("m", 3, MEMBER_MIB);
    members.extend(lab.members("j", 1, 12));
    let mut content = served(&lab, "--write-journal j0", &members);
    let told = lab.ok_text("sync v", &[]);
    assert!(told.contains("journal write-through"), "{told}");
    lab.ok("sync v --journal-mode write-back", &[]);
    assert!(lab.ok_text("sync v", &[]).contains("journal write-back"));
    for number in 0..20 {
        write(&lab, &mut content, number * 36_864, number as u8);
    }
    let told = lab.ok_text("status v", &[]);
    assert!(told.contains("write-back, 0.08 MiB not in place yet"), "{told}");
    assert!(lab.ok("cat v", &[]) == content, "read from memory");
    kill(&lab, &members);
    let left = &members[1..];
    assert!(lab.ok("cat", left) == content, "read through the journal");
    lab.ok(&format!("{} --run", assemble(&lab)), left);
    assert!(lab.ok_text("sync v", &[]).contains("write-through"), "the mode ends with the process");
    assert!(lab.ok("cat v", &[]) == content, "in place");
}

#[test]
fn a_stop_brings_in_place_what_a_journal_has() {
    let lab = Lab::new();
    let mut members = lab.members("m", 3, MEMBER_MIB);
    members.extend(lab.members("j", 1, 12));
    let mut content = served(&lab, "--write-journal j0", &members);
    lab.ok("sync v --journal-mode write-back", &[]);
    for number in 0..20 {
        write(&lab, &mut content, number * 36_864, number as u8);
    }
    lab.ok("stop v", &[]);
    // Without the journal: all is in place, and parity fits.
    let forced = lab.ok("cat --force", &members[..3]);
    assert!(forced == content);
    lab.ok(&assemble(&lab), &members);
    lab.ok("check v --wait", &[]);
    let array = lab.refused(1, "sync none --journal-mode write-back", &[], &[]);
    assert!(array.contains("none"), "{array}");
}
