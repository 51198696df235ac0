//! Set-ups of the comparisons, with the real command: each is complete, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{program, skip};
use braid_bench::rig::leftovers::{Guard, Leftover, backing_file};
use braid_bench::rig::{
    Array, ArraySpec, FileSystem, FileSystemKind, Limits, LoopDevice, Rate, Room, Stack,
};
use braid_bench::tool::Tool;

fn room(scratch: &Path) -> Room {
    Room::new(scratch.to_owned(), Vec::new(), Tool::at("braid", program()))
}

fn mounted_below(scratch: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let below = scratch.display().to_string();
    mounts.lines().filter(|line| line.contains(&below)).map(str::to_owned).collect()
}

#[test]
fn a_file_system_on_an_array_stands_and_goes() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skip("a_file_system_on_an_array_stands_and_goes", "it needs root and loop devices");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let room = room(directory.path());
    let files = room.member_files("RAID 5", 3, 64 << 20).expect("room");
    let spec = ArraySpec {
        level: "5".to_owned(),
        chunk_bytes: Some(64 << 10),
        members: files.paths.clone(),
        nbd: true,
        ..ArraySpec::default()
    };
    let array = Array::start(&room, "RAID 5", &spec).expect("an array");
    assert!(array.size_bytes() > 100 << 20, "{}", array.size_bytes());
    assert!(array.mdstat().expect("text").contains("raid5"));
    assert_eq!(array.status().expect("JSON")["raid_devices"], 3);
    assert!(array.target().word().contains("socket"));
    let device = LoopDevice::with(&array.file(), LoopDevice::DIRECT).expect("a loop device");
    let mut fs_on_it =
        FileSystem::make(&room, FileSystemKind::Ext4, &device.device, "noatime").expect("ext4");
    fs::write(fs_on_it.dir.join("file"), "content").expect("written");
    fs_on_it.remount().expect("mounted again");
    assert_eq!(fs::read_to_string(fs_on_it.dir.join("file")).expect("read"), "content");
    assert_eq!(mounted_below(directory.path()).len(), 2);
    let pid = array.pid();
    drop((fs_on_it, device, array, files));
    assert_eq!(mounted_below(directory.path()), Vec::<String>::new());
    assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
    let left: Vec<_> = fs::read_dir(directory.path()).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_loop_device_of_another_file_is_left_alone() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        let test = "a_loop_device_of_another_file_is_left_alone";
        return skip(test, "it needs root and loop devices");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("its full name").join("file");
    fs::write(&path, [0; 1 << 20]).expect("a file");
    let device = LoopDevice::with(&path, LoopDevice::DIRECT).expect("a loop device");
    let name = device.device.clone();
    let of = || backing_file(&name);
    let another = Some(path.with_file_name("another"));
    drop(Guard::new(Leftover::Loop(name.clone(), another)));
    assert_eq!(of(), Some(path.clone()));
    drop(device);
    // It goes once nobody looks at it any more.
    let deadline = Instant::now() + Duration::from_secs(60);
    while of().as_ref() == Some(&path) {
        assert!(Instant::now() < deadline, "{name:?} still has {path:?}");
        std::thread::yield_now();
    }
}

#[test]
fn an_array_over_limited_disks_is_as_slow_as_they_are() {
    let name = "an_array_over_limited_disks_is_as_slow_as_they_are";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skip(name, "it needs root and FUSE");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let room = room(directory.path());
    let disk = Rate { bytes_s: Some(20e6), iops: None };
    let limits = Limits { disk, host: Rate::default() };
    let level = "0".to_owned();
    let spec = ArraySpec { level, chunk_bytes: Some(256 << 10), ..ArraySpec::default() };
    let stack = Stack::new(&room, "two").files(2, 64 << 20).expect("room");
    let stack = stack.limited(limits).expect("disks").array(spec).expect("an array");
    let array = stack.top.path();
    let begun = Instant::now();
    let content: Vec<u8> = (0..20_000_000).map(|at| (at % 251) as u8).collect();
    fs::write(&array, &content).expect("written");
    // Half a second in all; what this machine does besides can only make it longer.
    assert!(begun.elapsed() > Duration::from_millis(450), "{:?}", begun.elapsed());
    let mut read = vec![0; content.len()];
    let file = fs::File::open(&array).expect("an array");
    file.read_exact_at(&mut read, 0).expect("read");
    assert!(read == content && begun.elapsed() > Duration::from_millis(900));
    drop(file);
    drop(stack);
    assert_eq!(mounted_below(directory.path()), Vec::<String>::new());
    let left: Vec<_> = fs::read_dir(directory.path()).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
