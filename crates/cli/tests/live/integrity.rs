//! Checksums behind the data of members: rot is noticed, healed and told.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::Lab;
use crate::support::export::{ask, connect_any, noise};
use braid_array::format::{Superblock, Version};
use serde_json::Value;

/// Bytes of the pieces in which content is written.
const PIECE: usize = 1 << 20;

/// Where the data of a member begin, in bytes.
fn data_at(member: &Path) -> u64 {
    let mut bytes = [0; 4096];
    File::open(member).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
    Superblock::decode(Version::V1_2, 8, &bytes).unwrap().data_offset * 512
}

/// Makes an array with checksums and fills it. Returns its members and content.
pub(crate) fn filled(lab: &Lab, level: &str, count: usize) -> (Vec<PathBuf>, Vec<u8>) {
    let members = lab.members(&format!("m{level}-"), count, 12);
    let create =
        format!("create home --level {level} --raid-devices {count} --integrity --assume-clean");
    lab.ok(&create, &members);
    let content = write(lab, &members);
    (members, content)
}

/// Fills the array, and stops it.
fn write(lab: &Lab, members: &[PathBuf]) -> Vec<u8> {
    lab.ok("assemble home --export nbd:unix:x.sock", members);
    let content = fill(lab);
    lab.ok("stop home", &[]);
    content
}

/// Fills the array that runs. Returns its content.
pub(crate) fn fill(lab: &Lab) -> Vec<u8> {
    let (mut stream, size) = connect_any(&lab.path("x.sock"), "home");
    let content = noise(usize::try_from(size).unwrap());
    for (number, piece) in content.chunks(PIECE).enumerate() {
        ask(&mut stream, 1, (number * PIECE) as u64, piece).expect("an answer");
    }
    ask(&mut stream, 3, 0, &[]).expect("an answer");
    content
}

/// Changes a byte of a member's data. Returns what it was.
pub(crate) fn rot(member: &Path, at: u64) -> u8 {
    let file = File::options().read(true).write(true).open(member).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, data_at(member) + at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], data_at(member) + at).unwrap();
    byte[0]
}

pub(crate) fn sums(lab: &Lab) -> Value {
    let status = lab.ok("status home --json", &[]);
    let status: Value = serde_json::from_slice(&status).unwrap();
    status["integrity"].clone()
}

#[test]
fn rot_of_every_member_is_healed_on_every_level() {
    for (level, count) in [("1", 2), ("5", 3), ("6", 4), ("10", 4)] {
        let lab = Lab::new();
        let (members, content) = filled(&lab, level, count);
        let places: Vec<u64> = (0..count as u64).map(|member| member * 8192 + 100).collect();
        let was: Vec<u8> =
            members.iter().zip(&places).map(|(member, at)| rot(member, *at)).collect();
        lab.ok("assemble home", &members);
        assert!(lab.ok("cat home", &[]) == content, "level {level}");
        lab.ok("check home --wait", &[]);
        let found = sums(&lab);
        assert_eq!(found["members"].as_array().map(Vec::len), Some(count), "level {level}");
        for field in ["mismatches", "healed"] {
            assert_eq!(found[field], count, "level {level}: {found}");
        }
        lab.ok("stop home", &[]);
        for ((member, at), was) in members.iter().zip(places).zip(was) {
            let mut byte = [0];
            let file = File::open(member).unwrap();
            file.read_exact_at(&mut byte, data_at(member) + at).unwrap();
            assert_eq!(byte[0], was, "level {level}: a member has rotten still");
        }
        // Nothing is left, and nothing that was written again is taken for rot.
        lab.ok("assemble home", &members);
        lab.ok("check home --wait", &[]);
        assert_eq!(sums(&lab)["mismatches"], 0, "level {level}");
        lab.ok("stop home", &[]);
    }
}

#[test]
fn a_check_learns_what_was_never_written() {
    for (level, count) in [("1", 2), ("5", 3), ("6", 4), ("10", 3)] {
        let lab = Lab::new();
        let members = lab.members(&format!("m{level}-"), count, 12);
        let create = format!("create home --level {level} --raid-devices {count} --integrity");
        lab.ok(&format!("{create} --assume-clean"), &members);
        lab.ok("assemble home", &members);
        assert_eq!(sums(&lab)["known_blocks"], 0, "level {level}");
        lab.ok("integrity home verify --wait", &[]);
        let known = sums(&lab);
        let unknown = known["unknown_blocks"].as_u64();
        // Rows that the array does not use, behind its last chunk.
        assert!(unknown < Some(count as u64 * 256), "level {level}: {known}");
        let said = String::from_utf8(lab.ok("integrity home status", &[])).unwrap();
        assert!(said.contains("all that were read fit"), "{said}");
        lab.ok("stop home", &[]);
        // The count is there at the next start, and what is known is believed.
        for (number, member) in (0..).zip(&members) {
            rot(member, 65_536 * number + 100);
        }
        lab.ok("assemble home", &members);
        assert_eq!(sums(&lab)["known_blocks"], known["known_blocks"], "level {level}");
        lab.ok("check home --wait", &[]);
        let found = sums(&lab);
        assert_eq!(found["healed"], count, "level {level}: {found}");
        lab.ok("stop home", &[]);
    }
}

#[test]
fn an_array_does_without_checksums_after_off() {
    let lab = Lab::new();
    let (members, content) = filled(&lab, "5", 3);
    let paths: Vec<_> = members.iter().map(|member| member.display().to_string()).collect();
    let off = format!("integrity {} off", paths.join(" "));
    let said = String::from_utf8(lab.ok(&off, &[])).unwrap();
    assert_eq!(said.matches("has no checksums any more").count(), 3, "{said}");
    lab.ok("assemble home", &members);
    assert!(sums(&lab).is_null());
    assert!(lab.ok("cat home", &[]) == content);
    let said = lab.refused(1, "integrity home status", &[], &[]);
    assert!(said.contains("has no checksums"), "{said}");
    lab.ok("stop home", &[]);
    let said = String::from_utf8(lab.ok(&off, &[])).unwrap();
    assert_eq!(said.matches("has no checksums\n").count(), 3, "{said}");
}

#[test]
fn members_that_md_had_are_taken_as_they_are() {
    let lab = Lab::new();
    let (members, _) = filled(&lab, "1", 2);
    // As md does: another time in the superblock, and other data on all members.
    for member in &members {
        let file = File::options().read(true).write(true).open(member).unwrap();
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, 4096).unwrap();
        let mut superblock = Superblock::decode(Version::V1_2, 8, &bytes).unwrap();
        superblock.utime += 7;
        superblock.events += 2;
        file.write_all_at(&superblock.blocks(512), 4096).unwrap();
        file.write_all_at(&[0x5a; 8192], data_at(member) + 16384).unwrap();
    }
    lab.ok("assemble home", &members);
    let content = lab.ok("cat home", &[]);
    assert!(content[16384..16384 + 8192].iter().all(|byte| *byte == 0x5a));
    lab.ok("check home --wait", &[]);
    assert_eq!(sums(&lab)["mismatches"], 0);
    lab.ok("stop home", &[]);
}

#[test]
fn without_checksums_nothing_is_told_of_them() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 12);
    lab.ok("create home --level 1 --raid-devices 2", &members);
    lab.ok("assemble home", &members);
    assert!(sums(&lab).is_null());
    lab.ok("stop home", &[]);
}

#[test]
fn what_cannot_have_checksums_is_refused() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 12);
    let refused = |words: &str| lab.refused(2, words, &members, &members);
    let said = refused("create home --level 0 --raid-devices 2 --integrity");
    assert!(said.contains("raid0 has no checksums"), "{said}");
    let said = refused("create home --level 1 --raid-devices 2 --integrity --metadata 1.0");
    assert!(said.contains("use version 1.2"), "{said}");
    lab.ok("create home --level 1 --raid-devices 2 --integrity --assume-clean", &members);
    lab.ok("assemble home", &members);
    let said = lab.refused(1, "grow home --size max", &[], &[]);
    assert!(said.contains("checksums"), "{said}");
    lab.ok("stop home", &[]);
}
