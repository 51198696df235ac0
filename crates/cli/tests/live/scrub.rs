//! Findings of `check` and `repair`, in words, JSON and exit status.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::support::Lab;
use braid_array::format::{BadBlocks, Superblock, Version, superblock::feature};
use serde_json::Value;

fn superblock(member: &PathBuf) -> (File, Superblock) {
    let file = File::options().read(true).write(true).open(member).unwrap();
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 4096).unwrap();
    let superblock = Superblock::decode(Version::V1_2, 8, &bytes).unwrap();
    (file, superblock)
}

/// A clean array of this level over these members, of which each holds `bytes` at a place.
fn damaged(lab: &Lab, level: &str, count: usize, bytes: &[(usize, u64, u8)]) -> Vec<PathBuf> {
    let members = lab.members("m", count, 16);
    let words = format!("create home --level {level} --raid-devices {count} --assume-clean");
    lab.ok(&words, &members);
    for (member, offset, byte) in bytes {
        let (file, superblock) = superblock(&members[*member]);
        file.write_all_at(&[*byte], superblock.data_offset * 512 + offset).unwrap();
    }
    members
}

/// The members' logs say that these sectors of their data cannot be read.
fn note_bad(members: &[PathBuf], sector: u64, sectors: u64) {
    for member in members {
        let (file, mut superblock) = superblock(member);
        let mut log = BadBlocks::default();
        assert!(log.insert(superblock.data_offset + sector, sectors));
        superblock.feature_map |= feature::BAD_BLOCKS;
        let at = superblock.bblog_sector().unwrap() * 512;
        file.write_all_at(&log.encode(superblock.bblog_shift), at).unwrap();
        file.write_all_at(&superblock.encode(), 4096).unwrap();
    }
}

fn exit(lab: &Lab, words: &str) -> (Option<i32>, String) {
    let output = lab.run(words, &[]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_check_that_finds_differences_fails_and_a_repair_of_them_does_not() {
    let lab = Lab::new();
    let members = damaged(&lab, "1", 2, &[(1, 8192, 7)]);
    lab.ok("assemble home", &members);
    let (code, text) = exit(&lab, "check home --wait");
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(
        text,
        "home: check complete, 8 sectors differ; braid repair home rewrites them\n  \
         8 sectors at array offset 0\n"
    );
    let (code, text) = exit(&lab, "check home --wait --json");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["mismatches"]), (Some(1), &Value::from(8)));
    let (code, text) = exit(&lab, "repair home --wait");
    assert_eq!(
        (code, text.lines().next()),
        (Some(0), Some("home: repair complete, 8 sectors rewritten"))
    );
    assert_eq!(exit(&lab, "check home --wait").0, Some(0));
}

/// Checks that who looks at the array later sees what the last check found, too.
#[test]
fn the_last_check_is_told_until_the_next_also_after_an_upgrade() {
    let lab = Lab::new();
    let members = damaged(&lab, "1", 2, &[(1, 8192, 7)]);
    lab.ok("assemble home", &members);
    assert!(!lab.ok_text("status home", &[]).contains("last check"));
    exit(&lab, "check home --wait");
    let found = ": 8 sectors differ; next: braid repair home\n";
    let told = |lab: &Lab| {
        let status = lab.ok_text("status home", &[]);
        let line = status.lines().find(|line| line.starts_with("  last check ")).unwrap();
        assert!(format!("{line}\n").ends_with(found), "{status}");
        let detail = lab.ok_text("detail home", &[]);
        assert!(detail.contains("Last Check : ") && detail.contains(found), "{detail}");
    };
    told(&lab);
    lab.ok("upgrade home", &[]);
    told(&lab);
    exit(&lab, "repair home --wait");
    let status = lab.ok_text("status home", &[]);
    assert!(status.contains("  last repair ") && status.contains(": 8 sectors rewritten\n"));
    exit(&lab, "check home --wait");
    let json: Value = serde_json::from_slice(&lab.ok("status home --json", &[])).unwrap();
    assert_eq!(json["last_check"]["kind"], "check");
    assert_eq!(json["last_check"]["mismatched_sectors"], 0);
    let finished = json["last_check"]["at"].as_str().unwrap();
    assert!(finished.ends_with('Z') && finished.contains('T'), "{finished}");
}

#[test]
fn a_check_that_cannot_read_everything_fails_and_says_where() {
    let lab = Lab::new();
    let members = damaged(&lab, "1", 2, &[]);
    note_bad(&members, 64, 16);
    lab.ok("assemble home", &members);
    for scrub in ["check", "repair"] {
        let (code, text) = exit(&lab, &format!("{scrub} home --wait"));
        assert_eq!(code, Some(1), "{text}");
        let devices = format!("{}, {}", members[0].display(), members[1].display());
        assert_eq!(
            text,
            format!(
                "home: {scrub} ended, 16 sectors could not be read, no mismatches in the rest\n  \
                 16 sectors at array offset 32768 could not be read from {devices}\n"
            )
        );
    }
    let (code, text) = exit(&lab, "check home --wait --json");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["unreadable_bytes"]), (Some(1), &Value::from(8192)));
    assert_eq!(json["unreadable_ranges"][0]["array_offset_bytes"], 32768);
    assert_eq!(json["unreadable_ranges"][0]["devices"].as_array().unwrap().len(), 2);
    assert!(lab.ok_text("status home", &[]).contains("16 sectors at array offset 32768 could not"));
}

/// Checks that the reason is shown, and that the advised command works.
#[test]
fn a_resync_that_could_not_read_is_held_up_until_it_is_resumed() {
    let lab = Lab::new();
    let members = damaged(&lab, "1", 2, &[]);
    note_bad(&members, 64, 16);
    for member in &members {
        let (file, mut superblock) = superblock(member);
        superblock.resync_offset = 0;
        file.write_all_at(&superblock.encode(), 4096).unwrap();
    }
    lab.ok("assemble home", &members);
    lab.ok("status home --watch", &[]);
    let text = lab.ok_text("status home", &[]);
    let (_, advice) = text.split_once("held up: 16 sectors are not in sync").expect(&text);
    let (_, advice) = advice.split_once("; braid ").expect(&text);
    let command = advice.split(" tries again").next().expect(&text);
    lab.ok(command, &[]);
    let json: Value = serde_json::from_str(&lab.ok_text("status home --json", &[])).unwrap();
    assert_eq!(json["unsynced_bytes"], 8192);
    lab.ok("stop home", &[]);
    assert_eq!(superblock(&members[0]).1.resync_offset, 64, "marked from there on");
}

/// Checks the report of a repair that rewrites unreadable data from unverified parity.
#[test]
fn a_repair_says_what_it_took_from_parity_that_may_not_fit() {
    let lab = Lab::new();
    let members = damaged(&lab, "5", 3, &[]);
    note_bad(&members[..1], 64, 16);
    for member in &members {
        let (file, mut superblock) = superblock(member);
        superblock.resync_offset = 0;
        file.write_all_at(&superblock.encode(), 4096).unwrap();
    }
    lab.ok("assemble home", &members);
    lab.ok("status home --watch", &[]);
    let (code, text) = exit(&lab, "repair home --wait");
    let device = members[0].display();
    let place = format!(
        "16 sectors at array offset 32768 were rewritten on {device} from parity that may not fit; \
         compare them with a backup\n"
    );
    let ended = "home: repair complete, 16 sectors were taken from parity that may not fit, \
                 no mismatches in the rest\n";
    assert_eq!((code, text), (Some(0), format!("{ended}  {place}")));
    assert!(lab.ok_text("status home", &[]).contains(&place));
    let json: Value = serde_json::from_str(&lab.ok_text("status home --json", &[])).unwrap();
    assert_eq!(json["trusted_bytes"], 8192);
    assert_eq!(json["trusted_ranges"][0]["array_offset_bytes"], 32768);
    assert_eq!(json["unsynced_bytes"], 0);
}
