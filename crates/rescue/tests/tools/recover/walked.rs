//! Directories that are walked through tell hypotheses from each other where both were asked.

use std::fs;

use braid_array::level::Level;

use super::{Case, UUID, brief, expected, found, shuffled, told};
use crate::support::{Folder, have, run};

/// An ext4 of 28 MiB with a directory for each of 700 files: more inodes than are walked through.
fn many_directories(folder: &Folder) -> Vec<u8> {
    let tree = folder.path("tree");
    for number in 1..=700_u32 {
        let within = tree.join(format!("{}/{number}", number % 20));
        fs::create_dir_all(&within).unwrap();
        let bytes: Vec<u8> =
            (0..2048 + number * 4).flat_map(|n| (n * number).to_le_bytes()).collect();
        fs::write(within.join("file"), bytes).unwrap();
    }
    let image = folder.file("ext4", 28 << 20);
    run(folder, &format!("mkfs.ext4 -q -b 4096 -U {UUID} -d tree ext4"), "");
    fs::read(image).unwrap()
}

/// By another layout it is walked through other inodes. The right one has those in their places,
/// too.
#[test]
fn directories_that_only_one_was_asked_about_speak_for_none() {
    if !have("directories_that_only_one_was_asked_about", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-walked");
    let content = many_directories(&folder);
    let case = Case::new(Level::Raid5, "ls", 64, 3);
    let ranked = found(&shuffled(case.lay(&content), &[1, 0, 2]));
    let right = expected(&case, "1@2048 0@2048 2@2048", "high");
    assert_eq!(told(&ranked), right, "{}", brief(&ranked));
}
