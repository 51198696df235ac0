use std::cell::Cell;
use std::fs::{File, OpenOptions};
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

/// Returns whether a reason begins so and names this process. Other tests may serve arrays in the
/// same process.
fn by_us(reason: &str, beginning: &str) -> bool {
    reason.starts_with(beginning) && reason.contains(&format!("(process {})", std::process::id()))
}

#[test]
fn two_exclusive_users_are_refused_and_shared_ones_are_not() {
    let dir = tempdir();
    let path = file_of(dir.path(), "m0", 1 << 20);
    let first = open(&path, Mode::ReadWrite, true).unwrap();
    let error = open(&path, Mode::ReadWrite, true).unwrap_err();
    assert!(by_us(&error.reason, "in use by "), "{error}");
    let error = open(&path, Mode::ReadOnly, false).unwrap_err().to_string();
    assert!(by_us(&error, &format!("{}: in use by ", path.display())), "{error}");
    peek(&path).unwrap();
    drop(first);
    let _a = open(&path, Mode::ReadOnly, false).unwrap();
    let _b = open(&path, Mode::ReadOnly, false).unwrap();
    open(&path, Mode::ReadWrite, true).unwrap_err();
}

#[test]
fn parts_of_a_file_are_members_that_do_not_meet() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 1 << 20);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"here", 64 << 10).unwrap();
    let part = |part: &str| PathBuf::from(format!("{}{part}", path.display()));
    let first = open(&part("@64K+256K"), Mode::ReadWrite, true).unwrap();
    assert_eq!((first.sectors, first.start_bytes()), (512, 64 << 10));
    assert_eq!(first.read_at(0, 4).unwrap(), b"here");
    first.write_at(1000, b"there").unwrap();
    let mut found = [0; 5];
    File::open(&path).unwrap().read_exact_at(&mut found, (64 << 10) + 1000).unwrap();
    assert_eq!(&found, b"there");
    assert!(first.read_at((256 << 10) - 2, 4).is_err(), "beyond its end, not the file's");

    let second = open(&part("@320K"), Mode::ReadWrite, true).unwrap();
    assert_eq!(second.sectors, 704 << 1);
    check_distinct(&[first, second]).unwrap();
    let looked_at = |name: &str| peek(&part(name)).unwrap();
    let error = check_distinct(&[looked_at("@64K+256K"), looked_at("@256K")]).unwrap_err();
    assert_eq!(error.reason, format!("is the same device as {}@64K+256K", path.display()));

    let held = open(&part("@64K+256K"), Mode::ReadWrite, true).unwrap();
    for (name, mode) in
        [("@128K", Mode::ReadWrite), ("@0+65K", Mode::ReadOnly), ("", Mode::ReadOnly)]
    {
        let error = open(&part(name), mode, false).map_err(|error| error.reason);
        let error = error.expect_err(name);
        assert!(error.starts_with("in use by "), "{name}: {error}");
    }
    drop(held);
    open(&path, Mode::ReadWrite, true).unwrap();
}

#[test]
fn parts_that_are_not_there_are_refused() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 1 << 20);
    let reason = |part: &str| {
        let name = PathBuf::from(format!("{}{part}", path.display()));
        open(&name, Mode::ReadOnly, true).unwrap_err().reason
    };
    assert_eq!(reason("@1000"), "begins at 1000, in the middle of a sector");
    assert_eq!(reason("@1M"), "has no sector there, of 1048576 bytes in all");
    assert_eq!(reason("@0+100"), "has no sector there, of 1048576 bytes in all");
    let none = PathBuf::from(format!("{}x@4K", path.display()));
    assert_eq!(open(&none, Mode::ReadOnly, true).unwrap_err().reason, "no such file or device");
    // What is odd to O_DIRECT is read without.
    let odd = PathBuf::from(format!("{}@512+1536", path.display()));
    let odd = open(&odd, Mode::ReadWrite, true).unwrap();
    odd.write_at(1, b"x").unwrap();
    assert_eq!((odd.sectors, odd.read_at(0, 1536).unwrap()[1]), (3, b'x'));
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
    let five = reason(&file_of(dir.path(), "five", 5), Mode::ReadWrite);
    assert_eq!(five, "has 5 bytes, not even a sector");
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
    let second = dir.path().join("second");
    std::os::unix::fs::symlink(&path, &second).unwrap();
    let error = check_distinct(&[open(&second), open(&link)]).unwrap_err();
    let second = second.display();
    let path = path.display();
    assert_eq!(error.reason, format!("is the same device as {second}, both are {path}"));
}

/// A loop device over a file. Goes with its partitions, which the next one would inherit.
struct Loop {
    path: PathBuf,
    partitions: Cell<u32>,
}

impl Loop {
    /// `None` where there are no loop devices for us.
    fn over(file: &Path, options: &[&str]) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).args(options).arg(file);
        let made = losetup.output().ok().filter(|output| output.status.success());
        let Some(made) = made else {
            crate::testing::skipped("losetup");
            return None;
        };
        let path = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end());
        Some(Self { path, partitions: Cell::new(0) })
    }

    /// Tells the kernel of a partition, which is no partition table's. The device may have had one
    /// before, which somebody who looked at all devices had open when it was to go.
    fn partition(&self, first_mib: u64, mib: u64) -> Option<PathBuf> {
        let number = self.partitions.get() + 1;
        let path = PathBuf::from(format!("{}p{number}", self.path.display()));
        let numbers = [u64::from(number), first_mib * 2048, mib * 2048].map(|n| n.to_string());
        let command = |name: &str, words: &[String]| {
            let status = Command::new(name).arg(&self.path).args(words).status();
            status.is_ok_and(|status| status.success())
        };
        for _ in 0..100 {
            if command("addpart", &numbers) && path.exists() {
                self.partitions.set(number);
                return Some(path);
            }
            command("delpart", &numbers[..1]);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        crate::testing::skipped("addpart");
        None
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for number in 1..=self.partitions.get() {
            let _ = Command::new("delpart").arg(&self.path).arg(number.to_string()).status();
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

#[test]
fn a_file_and_its_loop_device_are_one_member() {
    let dir = tempdir();
    let path = file_of(dir.path(), "m0", 8 << 20);
    let Some(device) = Loop::over(&path, &[]) else { return };
    let Some(second) = Loop::over(&path, &[]) else { return };
    let file = path.display();
    let looped = device.path.display();
    let reason = |first: &Path, other: &Path| {
        check_distinct(&[peek(first).unwrap(), peek(other).unwrap()]).unwrap_err().reason
    };
    assert_eq!(reason(&path, &device.path), format!("lies on {file}"));
    assert_eq!(reason(&device.path, &path), format!("is what {looped} lies on"));
    assert_eq!(reason(&device.path, &second.path), format!("lies on {file}, as {looped} does"));

    // The lock of one keeps other processes from the other.
    let held = open(&device.path, Mode::ReadWrite, true).unwrap();
    let error = open(&path, Mode::ReadWrite, true).unwrap_err();
    assert!(by_us(&error.reason, "in use by "), "{error}");
    let taken = format!("lies on {file}, in use by ");
    assert!(by_us(&open(&second.path, Mode::ReadWrite, true).unwrap_err().reason, &taken));
    assert!(by_us(&open(&second.path, Mode::ReadOnly, false).unwrap_err().reason, &taken));
    drop(held);
    let _held = open(&path, Mode::ReadWrite, true).unwrap();
    assert!(by_us(&open(&device.path, Mode::ReadWrite, true).unwrap_err().reason, &taken));
}

/// A mount, which goes when this goes.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where nothing can be mounted.
    fn new(device: &Path, on: &Path) -> Option<Self> {
        std::fs::create_dir(on).unwrap();
        let mount = Command::new("mount").arg(device).arg(on).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(on.to_owned()));
        }
        crate::testing::skipped("mount");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn what_is_mounted_is_refused_with_the_place() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 16 << 20);
    let made = Command::new("mkfs.ext4").arg("-Fq").arg(&path).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return crate::testing::skipped("mkfs.ext4");
    }
    let Some(device) = Loop::over(&path, &[]) else { return };
    open(&path, Mode::ReadWrite, true).unwrap();
    let mountpoint = dir.path().join("a b");
    let Some(mounted) = Mounted::new(&device.path, &mountpoint) else { return };
    let reason = |path: &Path, mode| open(path, mode, true).unwrap_err().reason;
    let on = format!("is mounted on {}", mountpoint.display());
    let through = format!("{on} through {}", device.path.display());
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        assert_eq!(reason(&device.path, mode), on);
        assert_eq!(reason(&path, mode), through);
    }
    peek(&path).unwrap();
    let Some(second) = Loop::over(&path, &[]) else { return };
    assert_eq!(reason(&second.path, Mode::ReadWrite), through);
    let Some(beyond) = Loop::over(&path, &["--offset", "8388608"]) else { return };
    assert_eq!(reason(&beyond.path, Mode::ReadWrite), through, "the mount has all of the file");
    drop(mounted);
    open(&second.path, Mode::ReadWrite, true).unwrap();
}

#[test]
fn what_is_mounted_beside_a_member_does_not_matter() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 32 << 20);
    let Some(first) = Loop::over(&path, &["--sizelimit", "16777216"]) else { return };
    let Some(second) = Loop::over(&path, &["--offset", "16777216"]) else { return };
    let made = Command::new("mkfs.ext4").arg("-Fq").arg(&first.path).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return crate::testing::skipped("mkfs.ext4");
    }
    let Some(_mounted) = Mounted::new(&first.path, &dir.path().join("mnt")) else { return };
    open(&second.path, Mode::ReadWrite, true).unwrap();
    open(&path, Mode::ReadWrite, true).unwrap_err();
}

#[test]
fn swap_and_what_the_kernel_claimed_are_refused() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 16 << 20);
    let Some(device) = Loop::over(&path, &[]) else { return };
    let claimed = open(&device.path, Mode::ReadOnly, true).unwrap();
    // A lock would be noticed first.
    rustix::fs::flock(&*claimed.file, rustix::fs::FlockOperation::Unlock).unwrap();
    claimed.below.iter().for_each(|file| {
        rustix::fs::flock(&**file, rustix::fs::FlockOperation::Unlock).unwrap();
    });
    let error = open(&path, Mode::ReadWrite, true).unwrap_err();
    assert_eq!(error.reason, format!("is in use by the kernel through {}", device.path.display()));
    assert_eq!(
        open(&device.path, Mode::ReadWrite, true).unwrap_err().reason,
        "in use by the kernel"
    );
    drop(claimed);

    let swap = |program| Command::new(program).arg(&device.path).output();
    // Others that look at all devices have this one for a moment.
    let made = || swap("mkswap").and_then(|_| swap("swapon"));
    if !(0..50).any(|_| made().is_ok_and(|output| output.status.success())) {
        return crate::testing::skipped("swapon");
    }
    let reasons = [&device.path, &path].map(|path| open(path, Mode::ReadWrite, true));
    swap("swapoff").unwrap();
    let reasons = reasons.map(|opened| opened.unwrap_err().reason);
    let through = format!("is in use as swap space through {}", device.path.display());
    assert_eq!(reasons, ["is in use as swap space".to_owned(), through]);
}

#[test]
fn a_read_only_device_is_refused_for_writing() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 16 << 20);
    let Some(device) = Loop::over(&path, &["--read-only"]) else { return };
    let error = open(&device.path, Mode::ReadWrite, true).unwrap_err();
    assert!(error.readable);
    assert_eq!(error.reason, "is a read-only device");
    open(&device.path, Mode::ReadOnly, true).unwrap();
}

#[test]
fn parts_of_one_disk_are_members_of_their_own_and_the_disk_is_not_beside_them() {
    let dir = tempdir();
    let path = file_of(dir.path(), "disk", 16 << 20);
    let Some(disk) = Loop::over(&path, &[]) else { return };
    let part = |first_mib| disk.partition(first_mib, 4);
    let (Some(first), Some(second)) = (part(1), part(5)) else { return };
    let Some(third) = Loop::over(&path, &["--offset", "9437184"]) else { return };
    let parts = [&first, &second, &third.path];
    check_distinct(&parts.map(|part| peek(part).unwrap())).unwrap();
    let locked = parts.map(|part| open(part, Mode::ReadWrite, true).unwrap());
    drop(locked);

    let reason = |members: &[&Path]| {
        let members: Vec<_> = members.iter().map(|member| peek(member).unwrap()).collect();
        check_distinct(&members).unwrap_err().reason
    };
    let name = |path: &Path| path.display().to_string();
    assert_eq!(reason(&[&disk.path, &first]), format!("lies on {}", name(&disk.path)));
    assert_eq!(reason(&[&second, &disk.path]), format!("is what {} lies on", name(&second)));
    assert_eq!(reason(&[&second, &path]), format!("is what {} lies on", name(&second)));
    let Some(across) = Loop::over(&path, &["--offset", "2097152", "--sizelimit", "4194304"]) else {
        return;
    };
    let said = format!("lies on {}, as {} does", name(&path), name(&first));
    assert_eq!(reason(&[&third.path, &first, &across.path]), said);
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

#[test]
fn what_a_process_that_died_has_locked_is_waited_for() {
    let dir = tempdir();
    let path = file_of(dir.path(), "m0", 8 << 20);
    // As while the kernel ends its I/O: the lock is there, and who took it is not.
    let still_open = File::open(&path).unwrap();
    let lock = ["flock", "-n", "0"];
    let taken =
        Command::new(lock[0]).args(&lock[1..]).stdin(still_open.try_clone().unwrap()).status();
    assert!(taken.unwrap().success());
    let opening = std::thread::spawn(move || open(&path, Mode::ReadWrite, true));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!opening.is_finished());
    drop(still_open);
    opening.join().unwrap().unwrap();
}

#[test]
fn memory_cannot_be_truncated() {
    let member = memory(PathBuf::from("memory"), 1 << 20).unwrap();
    let error = member.file.set_len(4096).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(member.file.metadata().unwrap().len(), 1 << 20);
}
