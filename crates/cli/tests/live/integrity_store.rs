//! Checksums of arrays that exist already, in files of a directory.

use std::fs::{self, File};
use std::path::PathBuf;

use crate::integrity::{fill, rot, sums};
use crate::support::Lab;

/// An array that was written to without checksums, with a directory for them.
struct Existing {
    lab: Lab,
    members: Vec<PathBuf>,
    content: Vec<u8>,
    assemble: String,
}

impl Existing {
    fn new(level: &str, count: usize, options: &str) -> Self {
        let lab = Lab::new();
        let members = lab.members("m", count, 12);
        lab.ok(&format!("create home --level {level} {options} --assume-clean"), &members);
        lab.ok("assemble home --export nbd:unix:x.sock", &members);
        let content = fill(&lab);
        lab.ok("stop home", &[]);
        let dir = lab.path("sums");
        fs::create_dir(&dir).unwrap();
        let assemble = format!("assemble home --integrity-store {}", dir.display());
        Self { lab, members, content, assemble }
    }

    fn stores(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.lab.path("sums")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn assemble(&self) {
        self.lab.ok(&self.assemble, &self.members);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.lab.path("run").join("home.log")).unwrap()
    }

    fn stop(&self) {
        self.lab.ok("stop home", &[]);
    }
}

#[test]
fn an_array_that_exists_gets_checksums_by_a_check() {
    for (level, count, options) in
        [("1", 2, "--metadata 1.0"), ("5", 3, "--bitmap internal"), ("6", 4, ""), ("10", 4, "")]
    {
        let array = Existing::new(level, count, options);
        let lab = &array.lab;
        array.assemble();
        assert_eq!(sums(lab)["known_blocks"], 0, "level {level}");
        lab.ok("integrity home build --wait", &[]);
        let unknown = sums(lab)["unknown_blocks"].as_u64();
        // Rows that the array does not use, behind its last chunk.
        assert!(unknown < Some(count as u64 * 256), "level {level}: {}", sums(lab));
        array.stop();
        assert_eq!(array.stores().len(), count, "level {level}");
        if level != "1" {
            for (number, member) in (0..).zip(&array.members) {
                rot(member, 65_536 * number + 100);
            }
        }
        array.assemble();
        assert!(lab.ok("cat home", &[]) == array.content, "level {level}");
        lab.ok("check home --wait", &[]);
        let found = sums(lab);
        let rotten = if level == "1" { 0 } else { count };
        assert_eq!(found["healed"], rotten, "level {level}: {found}");
        array.stop();
    }
}

#[test]
fn checksums_are_switched_on_while_the_array_runs() {
    let array = Existing::new("5", 3, "");
    let lab = &array.lab;
    lab.ok("assemble home --export nbd:unix:x.sock", &array.members);
    assert!(sums(lab).is_null());
    let said = lab.refused(2, "integrity home on", &[], &[]);
    assert!(said.contains("--store DIR"), "{said}");
    let said = lab.refused(1, "integrity home on --store nowhere", &[], &[]);
    assert!(said.contains("make it first"), "{said}");
    lab.ok("integrity home on --store sums", &[]);
    assert_eq!(sums(lab)["known_blocks"], 0);
    let said = lab.refused(1, "integrity home on --store sums", &[], &[]);
    assert!(said.contains("has checksums"), "{said}");
    let content = fill(lab);
    let known = sums(lab)["known_blocks"].as_u64();
    assert!(known > Some(content.len() as u64 / 4096), "{}", sums(lab));
    // The next program has them, too.
    lab.ok("upgrade home", &[]);
    assert_eq!(sums(lab)["known_blocks"].as_u64(), known);
    array.stop();
    array.assemble();
    assert_eq!(sums(lab)["known_blocks"].as_u64(), known);
    assert!(lab.ok("cat home", &[]) == content);
    array.stop();
}

#[test]
fn a_store_that_fails_is_given_up_and_nothing_else() {
    let array = Existing::new("5", 3, "");
    let lab = &array.lab;
    lab.ok(&format!("{} --export nbd:unix:x.sock", array.assemble), &array.members);
    fill(lab);
    lab.ok("check home --wait", &[]);
    array.stop();
    lab.ok(&format!("{} --export nbd:unix:x.sock", array.assemble), &array.members);
    // As a file system that loses it.
    let lost = &array.stores()[0];
    File::options().write(true).open(lost).unwrap().set_len(0).unwrap();
    let content = fill(lab);
    let found = sums(lab);
    let verified: Vec<_> = found["members"].as_array().unwrap().iter().collect();
    let given_up = verified.iter().filter(|member| member["verified"] == false).count();
    assert_eq!(given_up, 1, "{found}");
    assert!(array.log().contains("the store of its checksums fails"), "{}", array.log());
    array.stop();
    // What it said before is believed no more.
    array.assemble();
    assert!(lab.ok("cat home", &[]) == content);
    lab.ok("check home --wait", &[]);
    let found = sums(lab);
    assert_eq!(found["mismatches"], 0, "{found}");
    array.stop();
}

#[test]
fn a_store_that_was_not_named_for_a_while_tells_nothing() {
    let array = Existing::new("1", 2, "");
    let lab = &array.lab;
    array.assemble();
    lab.ok("check home --wait", &[]);
    array.stop();
    lab.ok("assemble home --export nbd:unix:x.sock", &array.members);
    let content = fill(lab);
    array.stop();
    array.assemble();
    assert_eq!(sums(lab)["known_blocks"], 0);
    assert!(lab.ok("cat home", &[]) == content);
    lab.ok("check home --wait", &[]);
    assert_eq!(sums(lab)["mismatches"], 0);
    array.stop();
}

#[test]
fn without_a_directory_or_redundancy_the_array_starts_without_checksums() {
    let array = Existing::new("1", 2, "");
    let lab = &array.lab;
    fs::remove_dir(lab.path("sums")).unwrap();
    array.assemble();
    assert!(sums(lab).is_null());
    assert!(array.log().contains("checksums are not used"), "{}", array.log());
    array.stop();
    let said = lab.refused(2, &format!("{} --overlay o", array.assemble), &array.members, &[]);
    assert!(said.contains("cannot be used with"), "{said}");
    let array = Existing::new("0", 2, "");
    array.assemble();
    assert!(sums(&array.lab).is_null());
    assert!(array.stores().is_empty());
    array.stop();
}
