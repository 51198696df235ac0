//! `--geometry`: arrays without superblocks are read as they are described.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::support::filled::{data_offset, fill_and_stop, filled};
use crate::support::{Lab, fingerprint};

/// An array of this shape, filled, and without superblocks any more; where its data begin, and its
/// content.
fn wiped(lab: &Lab, shape: &str, count: usize) -> (Vec<PathBuf>, u64, Vec<u8>) {
    let (members, content) = filled(lab, shape, count);
    let offset = data_offset(lab, &members[0]);
    for member in &members {
        let file = OpenOptions::new().write(true).open(member).unwrap();
        file.write_all_at(&[0; 8192], 0).unwrap();
    }
    (members, offset, content)
}

#[test]
fn every_level_is_read_without_superblocks() {
    for (shape, geometry, count) in [
        ("--level linear", "level=linear", 2),
        ("--level 0 --chunk 64K", "level=0,chunk=64K", 3),
        ("--level 1", "level=1", 2),
        ("--level 4 --chunk 64K", "level=4,chunk=64K", 3),
        ("--level 5 --chunk 64K", "level=5,chunk=64K", 3),
        ("--level 5 --layout ra --chunk 16K", "level=5,layout=ra,chunk=16K", 4),
        ("--level 6 --chunk 64K", "level=6,layout=left-symmetric,chunk=64K", 4),
        ("--level 10 --layout f2 --chunk 64K", "level=10,layout=f2,chunk=64K", 3),
    ] {
        let lab = Lab::new();
        let (members, offset, content) = wiped(&lab, shape, count);
        assert_eq!(lab.run("cat", &members).status.code(), Some(1), "{shape}: no superblocks");
        let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
        let words = format!("cat --geometry {geometry},offset={offset}");
        let found = lab.ok(&words, &members);
        // How much of it was used, only a superblock could tell.
        assert!(found.len() >= content.len(), "{shape}");
        if !shape.contains("linear") && !shape.contains("level 10") {
            assert!(found[..content.len()] == content, "{shape}");
        } else {
            assert!(found[..1 << 20] == content[..1 << 20], "{shape}");
        }
        if !["--level linear", "--level 0 --chunk 64K"].contains(&shape) {
            let mut some = members.clone();
            some[0] = "missing".into();
            let found = lab.ok(&format!("{words} --length 1M"), &some);
            assert!(found == content[..1 << 20], "{shape}");
        }
        let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
        assert_eq!(before, after, "{shape}");
    }
}

/// Checks both layouts of md for the rest of larger members.
#[test]
fn a_raid0_of_unequal_members_is_read_by_its_layout() {
    for (layout, names) in [("original", ["original", "1"]), ("alternate", ["alternate", "2"])] {
        let lab = Lab::new();
        let mut members = lab.members("small", 1, 20);
        members.extend(lab.members("large", 2, 28));
        let shape = format!("--level 0 --layout {layout} --chunk 64K");
        let content = fill_and_stop(&lab, &shape, &members);
        let offset = data_offset(&lab, &members[0]);
        assert!(lab.ok("cat", &members) == content);
        for name in names {
            let geometry = format!("level=0,layout={name},chunk=64K,offset={offset}");
            let words = format!("cat --readonly --geometry {geometry}");
            assert!(lab.ok(&words, &members) == content, "{name}");
        }
        let words = format!("cat --geometry level=0,chunk=64K,offset={offset}");
        let output = lab.run(&words, &members);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("say layout=original"), "{said}");
        // As much of each as the smallest has.
        assert_eq!(output.stdout.len(), 3 * (19 << 20));
        assert!(output.stdout == content[..output.stdout.len()]);
    }
}

#[test]
fn it_is_served_and_goes_on_after_an_upgrade() {
    let lab = Lab::new();
    let (mut members, offset, content) = wiped(&lab, "--level 5 --chunk 64K", 3);
    members[1] = "missing".into();
    let words = format!("assemble nas --readonly --geometry level=5,chunk=64K,offset={offset}");
    lab.ok(&words, &members);
    let status = lab.ok_text("status nas", &[]);
    assert!(status.contains("degraded") && status.contains("read-only"), "{status}");
    let read = || lab.ok(&format!("cat nas --length {}", content.len()), &[]) == content;
    assert!(read());
    lab.ok("upgrade nas", &[]);
    assert!(read(), "by the next program");
}

#[test]
fn what_does_not_describe_an_array_is_refused() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    for (code, words, said) in [
        (2, "assemble --geometry level=5,chunk=64K", "add --readonly"),
        (2, "cat --geometry chunk=64K", "the level is missing"),
        (2, "cat --geometry level=7", "level"),
        (2, "cat --geometry level=5,chunk=64K,offset=100", "no multiple of 512"),
        (2, "cat --geometry level=5,chunk=64K,offset=1M:2M", "2 offsets for 3 members"),
        (2, "cat --geometry level=5,shape=9", "'shape=9' is none of"),
        (1, "cat --geometry level=5,chunk=64K,offset=1G", "the data would begin at sector"),
        (1, "cat --geometry level=5,chunk=64K missing missing", "cannot do without 2"),
    ] {
        let members = if words.contains("missing missing") { &members[..1] } else { &members[..] };
        let line = lab.refused(code, words, members, members);
        assert!(line.contains(said), "{words}: {line}");
    }
}
