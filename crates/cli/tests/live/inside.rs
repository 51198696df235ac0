//! Members inside disks: partitions of images, and other parts of files.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::export::noise;
use crate::support::filled::fill_and_stop;
use crate::support::{Lab, fingerprint};

/// Writes a partition table, as sfdisk takes it.
fn partitioned(disk: &Path, table: &str) {
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-tell-kernel"]).arg(disk).stdin(Stdio::piped());
    let mut child = sfdisk.stdout(Stdio::null()).spawn().expect("sfdisk runs");
    child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "sfdisk {table}");
}

/// Disks with a partition for a system and one for an array.
fn disks(lab: &Lab, table: &str) -> Vec<PathBuf> {
    let disks = lab.members("disk", 3, 24);
    disks.iter().for_each(|disk| partitioned(disk, table));
    disks
}

fn part(disk: &Path, part: &str) -> PathBuf {
    format!("{}{part}", disk.display()).into()
}

fn parts(disks: &[PathBuf], name: &str) -> Vec<PathBuf> {
    disks.iter().map(|disk| part(disk, name)).collect()
}

const GPT: &str = "label: gpt\n2048 8192\n- - R\n";

/// Makes an array of parts, writes to it, has a second process take it over, and stops it. Returns
/// its content.
fn filled(lab: &Lab, members: &[PathBuf]) -> Vec<u8> {
    let content = fill_and_stop(lab, "--level 5 --chunk 64K", members);
    lab.ok("assemble x", members);
    lab.ok("upgrade x", &[]);
    lab.ok("stop x", &[]);
    content
}

#[test]
fn the_partitions_of_disks_are_looked_into() {
    for table in [GPT, "label: dos\n2048 4096 L\n- 2048 L\n- - E\n- - L\n"] {
        let lab = Lab::new();
        let disks = disks(&lab, table);
        let name = if table == GPT { "#2" } else { "#5" };
        let members = parts(&disks, name);
        let system: Vec<Vec<u8>> = disks.iter().map(|disk| head(disk)).collect();
        let content = filled(&lab, &members);
        let after: Vec<Vec<u8>> = disks.iter().map(|disk| head(disk)).collect();
        assert!(system == after, "only the partition was written to");

        let before: Vec<u64> = disks.iter().map(|disk| fingerprint(disk)).collect();
        assert!(lab.ok("cat", &disks) == content);
        assert!(lab.ok("cat x", &disks[1..]) == content, "degraded");
        assert!(lab.ok("cat", &members) == content, "by their names");
        let examined: Value = serde_json::from_slice(&lab.ok("examine --json", &disks)).unwrap();
        assert_eq!(examined[1]["device"], members[1].display().to_string());
        assert_eq!(lab.ok_text("examine --scan", &disks).lines().count(), 1);

        let text = lab.ok_text("assemble --explain", &disks);
        let member = members[0].display().to_string();
        assert!(text.contains(&format!("in   {member}: active, role 0\n")), "{text}");
        // The command that only reads comes first, and what writes says what it writes.
        let all = members.iter().map(|member| format!("'{}'", member.display()));
        let all = all.collect::<Vec<_>>().join(" ");
        let next = format!("\nnext: braid assemble --readonly {all}\n");
        assert!(text.contains(&next), "{text}");
        let later = format!("\nlater: braid assemble {all}    # writes superblocks\n");
        assert!(text.contains(&later), "{text}");
        let socket = lab.path("nbd");
        lab.ok(&format!("assemble --readonly --export nbd:unix:{}", socket.display()), &disks);
        let status = lab.ok_text("status x", &[]);
        assert!(status.contains(&member) && status.contains("read-only"), "{status}");
        lab.ok("stop x", &[]);
        let after: Vec<u64> = disks.iter().map(|disk| fingerprint(disk)).collect();
        assert_eq!(before, after, "nothing was written");
    }
}

/// Returns the bytes before the last partition.
fn head(disk: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(disk).unwrap();
    bytes.truncate(5 << 20);
    bytes
}

/// A member's superblock of metadata 0.90, of a RAID 5 over three (the kernel's
/// `include/uapi/linux/raid/md_p.h`: words in the machine's order, of which disks have 32 each).
fn superblock_090(role: usize, size_kib: u32) -> Vec<u8> {
    let mut words = [0_u32; 1024];
    let fixed = [0xa92b_4efc, 0, 90, 0, 0, 0x1234, 1, 5, size_kib, 3, 3, 0, 0, 0x5678, 0x9abc, 7];
    words[..16].copy_from_slice(&fixed);
    // Clean, three active and working, event count 4; left-symmetric, 64 KiB.
    words[32..40].copy_from_slice(&[1, 1, 3, 3, 0, 0, 0, 4]);
    words[64..66].copy_from_slice(&[2, 64 << 10]);
    for disk in 0..3 {
        words[128 + disk * 32..][..5].copy_from_slice(&[disk as u32, 0, 0, disk as u32, 6]);
    }
    words.copy_within(128 + role * 32..160 + role * 32, 992);
    let sum: u64 = words.iter().map(|word| u64::from(*word)).sum();
    words[38] = (sum as u32).wrapping_add((sum >> 32) as u32);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn a_superblock_at_the_end_of_a_disk_is_that_of_its_last_partition() {
    const MIB: u64 = 1 << 20;
    let lab = Lab::new();
    // The partition ends with the disk, where metadata 0.90 is counted in units of 64 KiB from.
    let disks = disks(&lab, "label: dos\n2048 - fd\n");
    let content = noise(2 << 16);
    let parity: Vec<u8> =
        content[..1 << 16].iter().zip(&content[1 << 16..]).map(|(a, b)| a ^ b).collect();
    let strips = [&content[..1 << 16], &content[1 << 16..], &parity];
    for (role, disk) in disks.iter().enumerate() {
        let file = OpenOptions::new().write(true).open(disk).unwrap();
        file.write_all_at(strips[role], MIB).unwrap();
        // From the disk's end as from the partition's.
        file.write_all_at(&superblock_090(role, 22 << 10), 24 * MIB - (64 << 10)).unwrap();
    }
    let members = parts(&disks, "#1");
    let text = lab.told("assemble --explain", &disks);
    assert!(text.contains(&format!("in   {}: active, role 0\n", members[0].display())), "{text}");
    assert!(text.contains("metadata 0.90"), "{text}");
    let found = lab.ok("cat --length 128K", &disks);
    assert!(found == content, "data begin with the partition, not with the disk");
    assert!(lab.ok("cat --length 128K", &disks[..2]) == content, "degraded");
}

#[test]
fn parts_are_named_by_their_bytes_and_wrong_ones_refused() {
    let lab = Lab::new();
    let disks = disks(&lab, GPT);
    let by_bytes = parts(&disks, "@5M+16M");
    let content = filled(&lab, &by_bytes);
    assert!(lab.ok("cat", &by_bytes) == content);
    // The partition begins there, and is longer.
    let by_number = parts(&disks, "#2");
    assert!(lab.ok("cat --length 1M", &by_number) == content[..1 << 20]);

    let none = [part(&disks[0], "#7")];
    let line = lab.refused(1, "examine", &none, &disks);
    assert!(line.contains("disk0#7: has no partition 7, but 1, 2; see what it holds: "), "{line}");
    let plain = lab.members("plain", 1, 8);
    let line = lab.refused(1, "examine", &[part(&plain[0], "#1")], &plain);
    assert!(line.contains("plain0#1: has no partition 1: no partition table; "), "{line}");
    let line = lab.refused(1, "examine", &[part(&plain[0], "@8M")], &plain);
    assert!(line.contains("has no sector there"), "{line}");
    let twice = [by_bytes[0].clone(), by_number[0].clone()];
    let line = lab.refused(1, "cat", &twice, &disks);
    assert!(line.contains("is the same device as"), "{line}");
}
