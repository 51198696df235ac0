//! Maps of ddrescue: ranges that were not rescued come from redundancy, and lost ranges are
//! reported.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::filled::{data_offset, filled};
use crate::support::{Lab, fingerprint};

const CHUNK: u64 = 64 << 10;

/// A filled RAID 5 of three, where its data begin on members, and its content.
fn made(lab: &Lab) -> (Vec<PathBuf>, u64, Vec<u8>) {
    let (members, content) = filled(lab, "--level 5 --chunk 64K", 3);
    let offset = data_offset(lab, &members[0]);
    (members, offset, content)
}

/// Spoils ranges of an image, and writes the map that tells of them.
pub(crate) fn lose(image: &Path, ranges: &[(u64, u64)]) -> String {
    let file = OpenOptions::new().write(true).open(image).unwrap();
    let size = file.metadata().unwrap().len();
    let mut map =
        "# Mapfile. Created by GNU ddrescue\n0x00000000     +               1\n".to_owned();
    let mut at = 0;
    for &(start, len) in ranges {
        file.write_all_at(&vec![0x5a; len as usize], start).unwrap();
        map += &format!("{at:#x} {:#x} +\n{start:#x} {len:#x} -\n", start - at);
        at = start + len;
    }
    map += &format!("{at:#x} {:#x} +\n", size - at);
    let path = image.with_extension("map");
    fs::write(&path, map).unwrap();
    format!("--mapfile {}={}", image.display(), path.display())
}

#[test]
fn what_was_not_rescued_comes_from_the_others() {
    let lab = Lab::new();
    let (members, data, content) = made(&lab);
    // In one stripe of two members, in different sectors; and where superblock and data meet none.
    let first = lose(&members[0], &[(data + 512, 512), (data + 3 * CHUNK, 2 * CHUNK)]);
    let second = lose(&members[1], &[(data + 4096, 1536), (data + CHUNK, 512)]);
    let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert!(lab.ok("cat", &members) != content, "without the maps");
    assert!(lab.ok(&format!("cat {first} {second}"), &members) == content);

    let socket = lab.path("nbd");
    let words =
        format!("assemble --readonly {first} {second} --export nbd:unix:{}", socket.display());
    lab.ok(&words, &members);
    assert!(lab.ok("cat x", &[]) == content, "served");
    lab.ok("stop x", &[]);
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after);

    let line = lab.refused(2, &format!("assemble {first}"), &members, &members);
    assert!(line.contains("add --readonly, or --overlay DIR"), "{line}");
    lab.ok(&format!("assemble --overlay changes {first} {second}"), &members);
    lab.ok("repair x --wait", &[]);
    lab.ok("stop x", &[]);
    lab.ok("assemble x --readonly", &members);
    lab.ok("stop x", &[]);
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after, "it was mended in the overlay alone");
}

#[test]
fn what_is_lost_is_told_with_its_place_and_the_rest_is_there() {
    let lab = Lab::new();
    let (members, data, mut content) = made(&lab);
    // The same sectors of two members: parity is on the third, so both are lost.
    let first = lose(&members[0], &[(data + 1024, 1024)]);
    let second = lose(&members[1], &[(data + 1536, 1024)]);
    let output = lab.run(&format!("cat {first} {second}"), &members);
    assert_eq!(output.status.code(), Some(1));
    content[1536..2048].fill(0);
    content[CHUNK as usize + 1536..CHUNK as usize + 2048].fill(0);
    assert!(output.stdout == content);
    let text = String::from_utf8(output.stderr).unwrap();
    let told = |at: u64, member: &Path, byte: u64| {
        let place = format!("{}, byte {byte}", member.display());
        let line = format!("512 bytes at byte {at} of the array cannot be read ({place}); zeroes");
        assert!(text.contains(&line), "{line}: {text}");
    };
    told(1536, &members[0], data + 1536);
    told(CHUNK + 1536, &members[1], data + 1536);
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn maps_that_are_none_are_refused() {
    let lab = Lab::new();
    let (members, ..) = made(&lab);
    fs::write(lab.path("text"), "hello\n").unwrap();
    let of = |map: &str| format!("cat --mapfile {}={map}", members[0].display());
    let line = lab.refused(1, &of("text"), &members, &members);
    assert!(line.contains("text: line 1: "), "{line}");
    let line = lab.refused(1, &of("nowhere"), &members, &members);
    assert!(line.contains("no such file"), "{line}");
    let line = lab.refused(2, "cat --mapfile other=text", &members, &members);
    assert!(line.contains("other: is none of the members"), "{line}");
    lab.refused(2, "cat --mapfile m0", &members, &members);
    // A superblock that was not rescued is none.
    let map = lose(&members[0], &[(4096, 512)]);
    let line = lab.refused(1, &format!("examine {map}"), &members[..1], &members);
    assert!(line.contains("cannot be read"), "{line}");
}
