//! What rows prove where hardly a block says where it belongs.

use std::fs;

use braid_array::level::Level;

use super::{Case, UUID, assert_found, brief, expected, found, shuffled, told};
use crate::support::{Folder, have, run};

/// An ext4 without checksums of metadata, of which superblocks alone say where they belong, with
/// files of such bytes.
fn without_sums(folder: &Folder, byte: impl Fn(u32) -> u8) -> Vec<u8> {
    for directory in 0..40 {
        let path = folder.path("tree").join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..16 {
            let number = directory * 16 + file;
            let bytes: Vec<u8> = (0..28 << 10).map(|at| byte(number << 16 | at)).collect();
            fs::write(path.join(format!("f{file}")), bytes).unwrap();
        }
    }
    let image = folder.file("ext4", 32 << 20);
    run(folder, &format!("mkfs.ext4 -q -b 4096 -O ^metadata_csum -d tree -U {UUID} ext4"), "");
    fs::read(image).unwrap()
}

#[test]
fn two_parities_prove_the_order_with_one_missing() {
    if have("two_parities_prove_the_order_with_one_missing", &["mkfs.ext4"]) {
        let folder = Folder::new("recover-one-missing");
        let cases = [
            (Level::Raid6, "ls", 8, vec![3, 1, 4, 0], "3@2048 1@2048 - 0@2048 2@2048"),
            (Level::Raid6, "ddf-zero-restart", 16, vec![3, 0, 2], "1@2048 - 2@2048 0@2048"),
        ];
        let content = without_sums(&folder, |at| (at.wrapping_mul(0x9e37_79b9) >> 17) as u8);
        assert_found(&[content], &cases, &["high", "likely"]);
    }
}

/// Rows that are the same in all chunks of data are no pairs of copies.
#[test]
fn the_same_in_all_of_a_row_is_no_mirror() {
    if have("the_same_in_all_of_a_row_is_no_mirror", &["mkfs.ext4"]) {
        let folder = Folder::new("recover-same-in-row");
        let all = "2@2048 0@2048 4@2048 1@2048 3@2048";
        let cases = [(Level::Raid6, "rs", 4, vec![1, 3, 0, 4, 2], all)];
        let content = without_sums(&folder, |at| (at >> 16) as u8 | 1);
        assert_found(&[content], &cases, &["high", "likely"]);
    }
}

/// What lies before the data is the same on all members, and says nothing: nor do rows.
#[test]
fn logs_of_bad_blocks_are_no_rows() {
    if !have("logs_of_bad_blocks_are_no_rows", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-bad-blocks");
    let content = without_sums(&folder, |at| (at.wrapping_mul(0x9e37_79b9) >> 17) as u8);
    let case = Case::new(Level::Raid6, "ls", 64, 5);
    let mut members = shuffled(case.lay(&content), &[2, 1, 3, 4]);
    members.iter_mut().for_each(|member| member[8192..12_288].fill(0xff));
    let ranked = found(&members);
    let right = "- 1@2048 0@2048 2@2048 3@2048";
    assert_eq!(told(&ranked), expected(&case, right, "likely"), "{}", brief(&ranked));
}
