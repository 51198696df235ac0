//! File systems that their own programs make.

use std::fmt::Write as _;
use std::fs;

use crate::support::{Folder, run};

/// An ext4 of so many MiB with so many directories of 16 files each.
pub(super) fn ext4(folder: &Folder, mib: u64, directories: usize) -> Vec<u8> {
    let tree = folder.path("tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree).unwrap();
    for directory in 0..directories {
        let path = tree.join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..16 {
            fs::write(path.join(format!("f{file}")), vec![file as u8; 28 << 10]).unwrap();
        }
    }
    let image = folder.file("ext4", mib << 20);
    // Small groups, so that metadata lie all over it, as on large file systems.
    let features = "-O 64bit,metadata_csum,^flex_bg -g 2048 -N 1536";
    let options = format!("-q -b 4096 -I 256 {features} -E lazy_itable_init=0 -d tree");
    run(folder, &format!("mkfs.ext4 {options} -U {UUID} ext4"), "");
    fs::read(image).unwrap()
}

/// The UUID of what is found, the same in each run.
pub(super) const UUID: &str = "12345678-1234-1234-1234-123456789abc";

/// An XFS of 128 MiB with some directories of files.
pub(super) fn xfs(folder: &Folder) -> Vec<u8> {
    xfs_with(folder, UUID, 0)
}

/// The same with this UUID, and with so many blocks in its log; 0 where mkfs.xfs chooses.
pub(super) fn xfs_with(folder: &Folder, uuid: &str, log_blocks: u32) -> Vec<u8> {
    let mut proto = "/\n0 0\nd--755 0 0\n".to_owned();
    fs::write(folder.path("source"), "some text").unwrap();
    let source = folder.path("source");
    for directory in 0..30 {
        writeln!(proto, "d{directory} d--755 0 0").unwrap();
        for file in 0..16 {
            writeln!(proto, "f{file} ---644 0 0 {}", source.display()).unwrap();
        }
        proto.push_str("$\n");
    }
    proto.push_str("$\n");
    fs::write(folder.path("proto"), proto).unwrap();
    let image = folder.file("xfs", 128 << 20);
    let log = if log_blocks == 0 { String::new() } else { format!("-l size={log_blocks}b") };
    let options = format!("--unsupported -q -f -m uuid={uuid} -d agcount=8 {log} -p proto");
    run(folder, &format!("mkfs.xfs {options} xfs"), "");
    fs::read(image).unwrap()
}
