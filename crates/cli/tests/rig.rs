//! What the comparisons set up, with the real command: it stands, and nothing of it stays.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use braid_bench::rig::{Array, ArraySpec, FileSystem, Kind, LoopDevice, Room};
use braid_bench::tool::Tool;
use support::skip;

fn room(scratch: &Path) -> Room {
    Room::new(scratch.to_owned(), Vec::new(), Tool::at("braid", env!("CARGO_BIN_EXE_braid").into()))
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
        name: "RAID 5".to_owned(),
        level: "5".to_owned(),
        chunk_bytes: Some(64 << 10),
        members: files.paths.clone(),
        nbd: true,
        ..ArraySpec::default()
    };
    let array = Array::start(&room, &spec).expect("an array");
    assert!(array.size_bytes() > 100 << 20, "{}", array.size_bytes());
    assert!(array.mdstat().expect("text").contains("raid5"));
    assert_eq!(array.status().expect("JSON")["raid_devices"], 3);
    assert!(array.nbd_uri().is_some_and(|uri| uri.contains("socket")));
    let device = LoopDevice::over(&room, &array.file()).expect("a loop device");
    let mut fs_on_it =
        FileSystem::make(&room, Kind::Ext4, &device.device, "noatime").expect("ext4");
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
