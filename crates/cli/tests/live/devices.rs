//! Members that are in use, or cannot be written to: refused before anything is changed.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::export::{ask, connect, noise};
use crate::support::{Lab, fingerprint, skip, until};

fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A mount, which goes when this goes.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where nothing can be mounted.
    fn new(test: &str, on: &Path, options: &[&str], what: &Path) -> Option<Self> {
        std::fs::create_dir_all(on).unwrap();
        if works(Command::new("mount").args(options).arg(what).arg(on)) {
            return Some(Self(on.to_owned()));
        }
        skip(test, "nothing can be mounted");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A loop device, which goes when this goes.
struct Loop(PathBuf);

impl Loop {
    /// `None` where there are none.
    fn new(test: &str, options: &[&str], file: &Path) -> Option<Self> {
        let mut command = Command::new("losetup");
        let made = command.args(["--find", "--show"]).args(options).arg(file).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            skip(test, "there are no loop devices");
            return None;
        };
        Some(Self(String::from_utf8(made.stdout).unwrap().trim_end().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn what_does_not_fit_larger_blocks_is_copied_to_smaller_ones() {
    let test = "what_does_not_fit_larger_blocks_is_copied_to_smaller_ones";
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    lab.ok("create x -l 1 -n 2 --assume-clean --bitmap internal", &members);
    lab.ok("assemble x", &members);
    let large = lab.members("large", 1, 16);
    let Some(device) = Loop::new(test, &["--sector-size", "4096"], &large[0]) else { return };
    let line = lab.refused(1, "add x", std::slice::from_ref(&device.0), &large);
    assert!(line.contains("use a device with blocks of 512 bytes"), "{line}");
    lab.ok("stop x", &[]);
    drop(device);
    // The bitmap 1 KiB behind the superblock, as md takes it.
    for member in &members {
        let file = std::fs::File::options().read(true).write(true).open(member).unwrap();
        let mut superblock = [0; 4096];
        file.read_exact_at(&mut superblock, 4096).unwrap();
        let mut bitmap = [0; 3072];
        file.read_exact_at(&mut bitmap, 8192).unwrap();
        file.write_all_at(&bitmap, 4096 + 1024).unwrap();
        let old = u32::from_le_bytes(superblock[96..100].try_into().unwrap());
        assert_eq!(old, 8, "where it lay");
        let sum = u32::from_le_bytes(superblock[0xd8..0xdc].try_into().unwrap());
        file.write_all_at(&2u32.to_le_bytes(), 4096 + 96).unwrap();
        file.write_all_at(&(sum - 6).to_le_bytes(), 4096 + 0xd8).unwrap();
    }
    let device = Loop::new(test, &["--sector-size", "4096"], &members[1]).expect("as before");
    let named = [members[0].clone(), device.0.clone()];
    let line = lab.refused(1, "assemble x", &named, &members);
    assert!(line.contains("its bitmap begins at sector 10, within a block"), "{line}");
    drop(device);
    lab.ok("assemble x", &members);
    lab.ok("stop x", &[]);
    lab.ok("assemble x", &members);
}

#[test]
fn the_array_that_has_claimed_a_device_is_named() {
    let test = "the_array_that_has_claimed_a_device_is_named";
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    let Some(first) = Loop::new(test, &[], &members[0]) else { return };
    let second = Loop::new(test, &[], &members[1]).expect("as before");
    let devices = [first.0.clone(), second.0.clone()];
    lab.ok("create x -l 1 -n 2 --assume-clean", &devices);
    lab.ok("assemble x", &devices);
    for words in ["assemble x", "create y -l 1 -n 2 --force", "zero-superblock --force"] {
        let line = lab.refused(1, words, &devices, &[]);
        assert!(line.contains("in use by array x (process "), "{line}");
        assert!(line.contains("stop it"), "{line}");
    }
    lab.ok("stop x", &[]);
}

#[test]
fn what_is_mounted_is_refused_even_with_force() {
    let test = "what_is_mounted_is_refused_even_with_force";
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    if !works(Command::new("mkfs.ext4").arg("-Fq").arg(&members[0])) {
        return skip(test, "mkfs.ext4 is not installed");
    }
    let on = lab.path("mnt");
    let Some(mounted) = Mounted::new(test, &on, &["-o", "loop"], &members[0]) else { return };
    let said = format!("is mounted on {} through /dev/loop", on.display());
    for words in ["create x -l 1 -n 2", "create x -l 1 -n 2 --force"] {
        let line = lab.refused(1, words, &members[..2], &members[1..]);
        assert!(line.contains(&said), "{line}");
    }
    lab.ok("create y -l 1 -n 2 --assume-clean", &members[1..]);
    lab.ok("assemble y --run", &members[1..2]);
    let line = lab.refused(1, "add y --force", &members[..1], &[]);
    assert!(line.contains(&said), "{line}");
    drop(mounted);
    lab.ok("add y --force", &members[..1]);
}

#[test]
fn a_member_that_takes_no_writes_is_refused_before_any_is_written() {
    let test = "a_member_that_takes_no_writes_is_refused_before_any_is_written";
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    let Some(device) = Loop::new(test, &["--read-only"], &members[1]) else { return };
    let read_only = [members[0].clone(), device.0.clone()];
    let line = lab.refused(1, "create x -l 1 -n 2", &read_only, &members);
    assert!(line.contains("read-only device; make it writable with blockdev --setrw"), "{line}");
    assert!(!line.contains("--readonly"), "{line}");

    let small = lab.path("small");
    let options = ["-t", "tmpfs", "-o", "size=64k"];
    let Some(_mounted) = Mounted::new(test, &small, &options, Path::new("tmpfs")) else { return };
    let sparse = small.join("m");
    std::fs::File::create(&sparse).unwrap().set_len(16 << 20).unwrap();
    std::fs::write(small.join("full"), vec![1; 128 << 10]).unwrap_err();
    let before = fingerprint(&members[0]);
    let line = lab.refused(1, "create x -l 1 -n 2", &[members[0].clone(), sparse.clone()], &[]);
    assert!(line.contains("cannot be written to: no space left on device"), "{line}");
    assert_eq!(fingerprint(&members[0]), before);
    let remounted = works(Command::new("mount").args(["-o", "remount,ro"]).arg(&small));
    assert!(remounted, "a tmpfs can be remounted");
    let line = lab.refused(1, "create x -l 1 -n 2", &[members[0].clone(), sparse], &[]);
    assert!(line.ends_with("on a read-only file system; remount it writable\n"), "{line}");
}

#[test]
fn a_read_only_member_is_not_lost_without_a_word() {
    let test = "a_read_only_member_is_not_lost_without_a_word";
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    let Some(device) = Loop::new(test, &["--read-only"], &members[1]) else { return };
    let read_only = [members[0].clone(), device.0.clone()];
    let line = lab.refused(1, "assemble x", &read_only, &members);
    assert!(line.contains("is a read-only device; make it writable"), "{line}");
    assert!(line.ends_with(", or use --readonly\n"), "{line}");
    lab.ok("assemble x --readonly", &read_only);
    lab.ok("cat x --length 1", &[]);
}

/// A list that forgets a member is told the path of the block device that has it.
#[test]
fn a_member_that_a_list_forgets_is_named_by_its_path() {
    let lab = Lab::new();
    let files = lab.members("m", 3, 16);
    let device = |file: &PathBuf| Loop::new("a_member_that_a_list_forgets", &[], file);
    let Some(loops) = files.iter().map(device).collect::<Option<Vec<_>>>() else { return };
    let devices: Vec<PathBuf> = loops.iter().map(|device| device.0.clone()).collect();
    lab.ok("create home -l 5 -n 3 --assume-clean", &devices);
    let listed = |named: &[PathBuf]| {
        let text = format!("[array.home]\nmembers = {named:?}\nwait = 86400\n");
        std::fs::write(lab.path("arrays.toml"), text).unwrap();
    };
    listed(&devices[..2]);
    let [a, b, forgotten] = &devices[..] else { unreachable!("three") };
    let [a, b, forgotten] = [a, b, forgotten].map(|device| device.display());
    let step = format!("add {forgotten}, or start it without: braid assemble --run home {a} {b}\n");
    for words in ["config check", "up home"] {
        let line = lab.refused(1, words, &[], &files);
        assert!(line.contains("role 2 is in none of those named (BRAID-302); "), "{line}");
        assert!(line.ends_with(&step), "{line}");
    }
    listed(&devices);
    lab.ok("config check", &[]);
}

#[test]
fn an_array_is_not_made_to_lie_on_itself() {
    let test = "an_array_is_not_made_to_lie_on_itself";
    let lab = Lab::new();
    let members = lab.members("m", 3, 32);
    let serve = |name: &str, members: &[PathBuf]| -> PathBuf {
        let on = lab.path(&format!("mnt-{name}"));
        std::fs::create_dir(&on).unwrap();
        lab.ok(&format!("create {name} -l 1 -n 2 --assume-clean missing"), members);
        lab.ok(&format!("assemble {name} --export fuse:{}", on.display()), members);
        on.join(name)
    };
    let own = serve("a", &members[..1]);
    let line = lab.refused(1, "add a --force", std::slice::from_ref(&own), &[]);
    assert!(line.contains("is the content of a itself"), "{line}");
    let below = serve("b", std::slice::from_ref(&own));
    let elsewhere = serve("c", &members[1..2]);
    let Some(device) = Loop::new(test, &[], &own) else { return };
    for (path, said) in [
        (&own, "is the content of a itself; add a device that lies elsewhere"),
        (&device.0, "is the content of a itself"),
        (&below, "is the content of b, which lies on a"),
    ] {
        for words in ["add a", "add a --force"] {
            let line = lab.refused(1, words, std::slice::from_ref(path), &[]);
            assert!(line.contains(said), "{line}");
        }
    }
    let both = [members[0].clone(), own.clone()];
    let line = lab.refused(1, "create x -l 1 -n 2 --force", &both, &[]);
    assert!(line.contains("in use by array a"), "{line}");
    drop(device);
    // What lies elsewhere is a device like any other.
    let line = lab.refused(1, "add a", &[elsewhere], &[]);
    assert!(line.contains("too small: "), "{line}");
    for name in ["b", "a", "c"] {
        lab.ok(&format!("stop {name}"), &[]);
    }
}

#[test]
fn a_member_on_a_node_is_not_looked_for_as_a_file() {
    let lab = Lab::new();
    let members = lab.members("m", 1, 16);
    lab.ok("create x -l 1 -n 2 --assume-clean missing", &members);
    lab.ok("assemble x", &members);
    let line = lab.refused(1, "add x node://127.0.0.1:7000/x", &[], &members);
    assert!(line.contains("is on a node, and x is an array of this machine's devices"), "{line}");
}

/// Checks that a shrunk device is failed: its data behind the new end are lost, and redundancy
/// supplies them.
#[test]
fn a_device_that_becomes_smaller_is_out() {
    let test = "a_device_that_becomes_smaller_is_out";
    for writes in [true, false] {
        let lab = Lab::new();
        let mut members = lab.members("m", 3, 32);
        let Some(device) = Loop::new(test, &[], &members[1]) else { return };
        let file = std::mem::replace(&mut members[1], device.0.clone());
        lab.ok("create x -l 5 -n 3 --assume-clean --chunk 64K", &members);
        let on = lab.path("mnt");
        std::fs::create_dir(&on).unwrap();
        lab.ok(&format!("assemble x --export fuse:{}", on.display()), &members);
        let array = std::fs::File::options().read(true).write(true).open(on.join("x")).unwrap();
        let size = array.metadata().unwrap().len();
        // Strips of all members, behind the new end of one.
        let at = size - (4 << 20);
        let data = vec![0xa5; 1 << 20];
        array.write_all_at(&data, at).unwrap();
        array.sync_all().unwrap();

        let shrink = std::fs::File::options().write(true).open(&file).unwrap();
        shrink.set_len(16 << 20).unwrap();
        assert!(works(Command::new("losetup").arg("-c").arg(&device.0)));
        let out = lab.path("out");
        let read = if writes {
            array.write_all_at(&data, at + (1 << 20)).unwrap();
            array.sync_all().unwrap();
            at + (1 << 20)
        } else {
            at
        };
        let words = format!("cat x --offset {read} --length {}", 1 << 20);
        std::fs::write(&out, lab.ok(&words, &[])).unwrap();
        assert!(std::fs::read(&out).unwrap() == data, "writes: {writes}");
        assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(1), "writes: {writes}");
        let log = std::fs::read_to_string(lab.path("run/x.log")).unwrap();
        assert!(
            log.contains(&format!("{} failed: has become smaller", device.0.display())),
            "{log}"
        );
        drop(array);
        lab.ok("stop x", &[]);
    }
}

#[test]
fn a_device_that_says_so_keeps_its_holes_in_a_rebuild() {
    let lab = Lab::new();
    let files = lab.members("m", 2, 64);
    let test = "a_device_that_says_so_keeps_its_holes_in_a_rebuild";
    let Some(device) = Loop::new(test, &[], &files[1]) else { return };
    let content = noise(1 << 20);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&files[1])
        .and_then(|file| file.write_all_at(&content, 50 << 20))
        .unwrap();
    lab.ok("create x --level 1 --raid-devices 2 missing", &files[..1]);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --run --export nbd:unix:{}", socket.display()), &files[..1]);
    let size = lab.ok("cat x", &[]).len();
    ask(&mut connect(&socket, "x", size), 1, 20 << 20, &content).unwrap();
    lab.ok("add x", std::slice::from_ref(&device.0));
    until("the rebuild", || lab.run("detail x --test", &[]).status.code() == Some(0));
    assert_eq!(lab.run("check x --wait", &[]).status.code(), Some(0));
    lab.ok("stop x", &[]);
    let used = std::fs::metadata(&files[1]).unwrap().blocks() * 512;
    assert!(used < 8 << 20, "{used} bytes of 64 MiB");
}
