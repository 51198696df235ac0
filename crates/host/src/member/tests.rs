use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

fn file_of(dir: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn tempdir() -> tempfile::TempDir {
    // Not /tmp: that may be a tmpfs, and O_DIRECT on the disk is what has to be tested.
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

#[test]
fn two_exclusive_users_are_refused_and_shared_ones_are_not() {
    let dir = tempdir();
    let path = file_of(dir.path(), "m0", 1 << 20);
    let first = open(&path, Mode::ReadWrite, true).unwrap();
    let error = open(&path, Mode::ReadWrite, true).unwrap_err();
    assert_eq!(error.reason, "in use by another process");
    let error = open(&path, Mode::ReadOnly, false).unwrap_err().to_string();
    let path_text = path.display().to_string();
    assert!(error.starts_with(&path_text) && error.ends_with(&format!("see fuser {path_text}")));
    peek(&path).unwrap();
    drop(first);
    let _a = open(&path, Mode::ReadOnly, false).unwrap();
    let _b = open(&path, Mode::ReadOnly, false).unwrap();
    open(&path, Mode::ReadWrite, true).unwrap_err();
}

#[test]
fn a_member_that_is_let_go_is_free_although_a_forked_process_has_its_file() {
    let dir = tempdir();
    let path = file_of(dir.path(), "m0", 1 << 20);
    let member = open(&path, Mode::ReadWrite, true).unwrap();
    let _copy = member.file.try_clone().unwrap();
    drop(member);
    open(&path, Mode::ReadWrite, true).unwrap();
}

#[test]
fn what_is_no_member_is_refused_with_a_reason() {
    let dir = tempdir();
    let reason = |path: &Path, mode| open(path, mode, true).unwrap_err().reason;
    assert_eq!(reason(&dir.path().join("none"), Mode::ReadOnly), "no such file or device");
    assert_eq!(reason(dir.path(), Mode::ReadOnly), "is a directory");
    assert_eq!(reason(Path::new("/dev/null"), Mode::ReadOnly), "is no file and no block device");
    assert_eq!(reason(&file_of(dir.path(), "e", 0), Mode::ReadWrite), "is empty");
}

#[test]
fn one_file_under_two_names_is_found() {
    let dir = tempdir();
    let path = file_of(dir.path(), "m0", 1 << 20);
    let other = file_of(dir.path(), "m1", 1 << 20);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let open = |path: &Path| peek(path).unwrap();
    check_distinct(&[open(&path), open(&other)]).unwrap();
    let error = check_distinct(&[open(&path), open(&other), open(&link)]).unwrap_err();
    assert_eq!(error.path, link);
    assert_eq!(error.reason, format!("is the same device as {}", path.display()));
}

#[test]
fn unaligned_reads_and_writes_leave_the_rest_alone() {
    let dir = tempdir();
    for (name, parent) in [("disk", dir.path()), ("tmpfs", Path::new("/dev/shm"))] {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let path = file_of(dir.path(), name, (64 << 10) + 512);
        let mut expected = vec![0; (64 << 10) + 512];
        for (i, byte) in expected.iter_mut().enumerate() {
            *byte = u8::try_from(i % 251).unwrap();
        }
        std::fs::write(&path, &expected).unwrap();
        let member = open(&path, Mode::ReadWrite, true).unwrap();
        assert_eq!(member.sectors, 129);
        assert_eq!(member.read_at(4097, 10_000).unwrap(), expected[4097..14_097]);
        for (at, len) in [(1, 1), (511, 2), (4095, 8194), ((64 << 10) - 1, 513)] {
            member.write_at(at as u64, &vec![0xff; len]).unwrap();
            expected[at..at + len].fill(0xff);
        }
        member.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected, "{name}, direct {}", member.direct);
        member.read_at(64 << 10, 513).unwrap_err();
        member.write_at(u64::MAX, &[0]).unwrap_err();
    }
}

#[test]
fn content_is_recognised() {
    let dir = tempdir();
    let found = |path: &Path| signature(&peek(path).unwrap()).unwrap();
    let path = file_of(dir.path(), "f", 4 << 20);
    assert_eq!(found(&path), None);
    let at = |offset: u64, bytes: &[u8]| {
        let path = file_of(dir.path(), "f", 4 << 20);
        File::options().write(true).open(&path).unwrap().write_all_at(bytes, offset).unwrap();
        found(&path).map(|s| (s.what, s.offset))
    };
    let magic = 0xa92b_4efc_u32.to_le_bytes();
    assert_eq!(at(4096, &magic), Some(("an md superblock (1.2)", 4096)));
    assert_eq!(at((4 << 20) - 8192, &magic), Some(("an md superblock (1.0)", (4 << 20) - 8192)));
    let last_128k = (4 << 20) - 65_536;
    assert_eq!(at(last_128k, &magic), Some(("an md superblock (0.90)", last_128k)));
    assert_eq!(at(510, &[0x55, 0xaa]), None, "a boot mark alone is no partition table");
    let mut table = [0; 66];
    table[4] = 0x83;
    table[64..].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(at(446, &table), Some(("a partition table", 510)));
    assert_eq!(at((4 << 20) - 512, b"EFI PART").unwrap().0, "a GPT partition table (backup)");
    assert_eq!(at(131_072 + 7168, &0x00ba_b10c_u64.to_le_bytes()).unwrap().0, "a zfs label");
}

#[test]
fn file_systems_made_by_their_tools_are_recognised() {
    let dir = tempdir();
    let cases = [
        ("mkfs.ext4", vec!["-Fq"], "an ext4 file system"),
        ("mkfs.ext3", vec!["-Fq"], "an ext3 file system"),
        ("mkfs.ext2", vec!["-Fq"], "an ext2 file system"),
        ("mkfs.xfs", vec!["-fq"], "an xfs file system"),
        ("mkswap", vec![], "swap space"),
    ];
    for (tool, args, what) in cases {
        let path = file_of(dir.path(), tool, 512 << 20);
        let made = Command::new(tool).args(args).arg(&path).output();
        match made {
            Ok(output) if output.status.success() => {
                let found = signature(&peek(&path).unwrap()).unwrap().map(|s| s.what);
                assert_eq!(found, Some(what));
            }
            _ => crate::testing::skipped(tool),
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn tiny_devices_have_no_signature_and_do_not_panic() {
    let dir = tempdir();
    for sectors in [1, 2, 15, 16, 17, 127, 128, 129] {
        let path = file_of(dir.path(), "t", sectors * 512);
        assert_eq!(signature(&peek(&path).unwrap()).unwrap(), None);
    }
    let mut file = File::create(dir.path().join("odd")).unwrap();
    file.write_all(&[0; 1000]).unwrap();
    assert_eq!(peek(&dir.path().join("odd")).unwrap().sectors, 1);
}
