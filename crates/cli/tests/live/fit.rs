//! Images that do not end where their devices did, and marks that others left on them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::filled::{data_offset, fill_and_stop, filled};
use crate::support::{Lab, fingerprint};

fn cut(member: &Path, to: PathBuf, bytes: u64) -> PathBuf {
    fs::copy(member, &to).unwrap();
    File::options().write(true).open(&to).unwrap().set_len(bytes).unwrap();
    to
}

#[test]
fn an_image_that_is_longer_than_its_device_is_a_member() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    let content = fill_and_stop(&lab, "--level 1 --metadata 1.0", &members);
    for more in [4096, 1 << 20, 3 << 20, (1 << 20) + 512] {
        let big = cut(&members[0], lab.path("big"), (16 << 20) + more);
        let before = fingerprint(&big);
        assert!(lab.ok("cat --force", std::slice::from_ref(&big)) == content, "{more}");
        let both = [big.clone(), members[1].clone()];
        let text = lab.ok_text("assemble --explain", &both);
        assert!(text.contains("can start: clean and complete"), "{text}");
        assert_eq!(lab.type_all(&text, &content), 2, "{text}");
        assert_eq!(fingerprint(&big), before);
    }
}

#[test]
fn what_images_lack_that_were_cut_off_comes_from_the_others() {
    let lab = Lab::new();
    let (members, content) = filled(&lab, "--level 5 --chunk 64K", 3);
    let short = cut(&members[0], lab.path("short"), 9 << 20);
    let shorter = cut(&members[1], lab.path("shorter"), (6 << 20) + 4096);
    // Beyond the end of the shorter one, as far as the other one goes, there is all.
    let all = [short.clone(), shorter, members[2].clone()];
    let good =
        (2 * ((9 << 20) - data_offset(&lab, &members[0])) / (64 << 10)) as usize * (64 << 10);
    let output = lab.run("cat", &all);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is cut off: what is missing counts as unreadable"), "{said}");
    assert!(said.contains("bytes at byte "), "{said}");
    assert_eq!(output.stdout.len(), content.len());
    assert!(output.stdout[..good] == content[..good]);
    // What is on the third one alone is there up to the end.
    let same = output.stdout.iter().zip(&content).filter(|(one, other)| one == other).count();
    assert!(same > good + (content.len() - good) / 4, "{same} of {}", content.len());

    let line = lab.refused(1, "assemble", &all, &all);
    assert!(line.contains("read it: what is missing counts as unreadable"), "{line}");
    assert_eq!(lab.type_all(&line, &content[..good]), 1, "{line}");
    // Of two, one cut: all of it.
    let lab = Lab::new();
    let (members, content) = filled(&lab, "--level 0 --chunk 64K", 2);
    let whole = [cut(&members[0], lab.path("a"), 15 << 20), members[1].clone()];
    let output = lab.run("cat", &whole);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout[..24 << 20] == content[..24 << 20]);
}

/// Changes a word of a superblock 1.2, and mends its checksum.
fn patch(member: &Path, change: impl Fn(&mut [u8])) {
    const AT: u64 = 4096;
    let file = File::options().read(true).write(true).open(member).unwrap();
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, AT).unwrap();
    change(&mut block);
    let word = |block: &[u8], at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    block[216..220].fill(0);
    let length = 256 + 2 * word(&block, 220) as usize;
    let sum: u64 = (0..length).step_by(4).map(|at| u64::from(word(&block, at))).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    block[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
    file.write_all_at(&block, AT).unwrap();
}

#[test]
fn a_disk_that_a_nas_has_marked_is_a_member() {
    let lab = Lab::new();
    let (members, content) = filled(&lab, "--level 0 --chunk 64K", 2);
    patch(&members[1], |block| block[256 + 2 + 1] |= 0x80);
    let output = lab.run("cat", &members);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout == content, "{said}");
    let mark = format!("{} has Synology's mark of a disk with errors", members[1].display());
    assert!(said.contains(&mark), "{said}");
    let text = lab.ok_text("assemble --explain", &members);
    assert!(text.contains("active, role 1") && text.contains(&mark), "{text}");
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
}

/// Finds members by the first sector of partitions in old tables. The table is gone.
#[test]
fn members_that_begin_at_sector_63_are_found() {
    let lab = Lab::new();
    let (members, content) = filled(&lab, "--level 5 --chunk 64K", 3);
    let disks: Vec<PathBuf> = members
        .iter()
        .enumerate()
        .map(|(number, member)| {
            let disk = lab.path(&format!("disk{number}"));
            fs::write(&disk, [vec![0; 63 * 512], fs::read(member).unwrap()].concat()).unwrap();
            disk
        })
        .collect();
    assert!(lab.ok("cat", &disks) == content);
    let text = lab.ok_text("assemble --explain", &disks);
    assert!(text.contains("disk1@32256: active, role 1"), "{text}");
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
}
