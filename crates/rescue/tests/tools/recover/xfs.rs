//! An XFS of version 4, whose blocks do not say where they belong, but for headers of groups.

use std::fmt::Write as _;
use std::fs;

use braid_array::level::Level;

use super::{UUID, assert_found};
use crate::support::{Folder, have, run};

/// An XFS of version 4 with 40 directories, each of so many files that it has a block of its own.
pub(super) fn version_4(folder: &Folder) -> Vec<u8> {
    let mut proto = "/\n0 0\nd--755 0 0\n".to_owned();
    for directory in 0..40_u32 {
        writeln!(proto, "directory_{directory} d--755 0 0").unwrap();
        for file in 0..16_u32 {
            let name = format!("source_{directory}_{file}");
            let number = directory * 16 + file + 1;
            let words = (0..1000 + number * 7).flat_map(|at| (at * number).to_le_bytes());
            fs::write(folder.path(&name), words.collect::<Vec<u8>>()).unwrap();
            let source = folder.path(&name);
            writeln!(proto, "a_file_{file} ---644 0 0 {}", source.display()).unwrap();
        }
        proto.push_str("$\n");
    }
    proto.push_str("$\n");
    fs::write(folder.path("proto"), proto).unwrap();
    let image = folder.file("xfs", 128 << 20);
    let options = format!("-q -f -m crc=0,uuid={UUID} -d agcount=8 -p proto");
    run(folder, &format!("mkfs.xfs --unsupported {options} xfs"), "");
    fs::read(image).unwrap()
}

#[test]
fn xfs_of_version_4_is_found() {
    if !have("xfs_of_version_4_is_found", &["mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-xfs-4");
    let contents = [version_4(&folder)];
    let cases = [
        (Level::Raid0, "", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "ls", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "ls", 64, vec![2, 0], "1@2048 - 0@2048"),
        (Level::Raid5, "la", 16, vec![2, 0, 1, 3], "1@2048 2@2048 0@2048 3@2048"),
        (Level::Raid6, "ls", 64, vec![3, 0, 2, 1], "1@2048 3@2048 2@2048 0@2048"),
        (Level::Raid10, "f2", 64, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
    ];
    assert_found(&contents, &cases, &["high", "likely"]);
}
