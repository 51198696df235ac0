//! What md left beside superblocks that are gone.

use std::fs;

use braid_array::format::Bitmap;
use braid_array::level::Level;
use braid_rescue::recover::Confidence;

use super::{Case, brief, expected, ext4, found, shuffled, told};
use crate::support::{Folder, have, run};

/// Encrypted content, of which no block tells anything.
fn encrypted(bytes: usize) -> Vec<u8> {
    let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    let mut content: Vec<u8> = (0..bytes as u64).map(noise).collect();
    content[..8].copy_from_slice(b"LUKS\xba\xbe\x00\x02");
    content
}

/// Puts the bitmap of an array where mdadm has it: behind a superblock.
fn put_bitmap(member: &mut [u8], uuid: [u8; 16]) {
    let bitmap = Bitmap::new(uuid, 8192, None, 64).unwrap();
    member[8192..12288].copy_from_slice(&bitmap.encode_page(0));
}

#[test]
fn bitmaps_tell_which_members_are_foreign() {
    let case = Case::new(Level::Raid5, "ls", 512, 3);
    let mut members = shuffled(case.lay(&encrypted(8 << 20)), &[1, 2, 0]);
    let other: Vec<u8> = members[0].iter().map(|byte| byte.rotate_left(3)).collect();
    members.insert(1, other);
    let by_rows = found(&members);
    let evidence = by_rows[0].evidence.join("; ");
    assert!(evidence.contains("m1 is none of its members"), "{evidence}");
    for (member, bytes) in members.iter_mut().enumerate() {
        put_bitmap(bytes, if member == 1 { [9; 16] } else { [7; 16] });
    }
    let ranked = found(&members);
    assert_eq!(told(&ranked), expected(&case, "3@2048 0@2048 2@2048", "guess"));
    let evidence = ranked[0].evidence.join("; ");
    let same = "what md left on m0, m2, m3 is of one array, whose bitmap is of 4194304 bytes";
    let one_more = "what md left on m1 is of another array's member";
    assert!(evidence.contains(same) && evidence.contains(one_more), "{evidence}");
}

/// However many say that members are of one array: they do not make one of them.
#[test]
fn bitmaps_do_not_outvote_rows() {
    let case = Case::new(Level::Raid5, "ls", 512, 3);
    let mut members = case.lay(&encrypted(8 << 20));
    members[1].rotate_left(4096);
    for bytes in &mut members {
        put_bitmap(bytes, [7; 16]);
    }
    let ranked = found(&members);
    assert!(ranked.iter().all(|one| one.confidence == Confidence::Guess), "{}", brief(&ranked));
    assert!(ranked.is_empty(), "{}", brief(&ranked));
}

/// The copy of a partition table says where the array ends.
#[test]
fn the_copy_of_a_partition_table_is_an_equation() {
    if !have("the_copy_of_a_partition_table_is_an_equation", &["mkfs.ext4", "sfdisk"]) {
        return;
    }
    let folder = Folder::new("recover-table");
    let files = ext4(&folder, 48, 75);
    let disk = folder.file("disk", 50 << 20);
    let table = format!("label: gpt\nstart=2048, size={}\n", files.len() / 512);
    run(&folder, "sfdisk --quiet --no-tell-kernel disk", &table);
    let mut content = fs::read(disk).unwrap();
    content[1 << 20..][..files.len()].copy_from_slice(&files);
    let case = Case::new(Level::Raid5, "ls", 64, 3);
    let best = |content: &[u8]| {
        let mut ranked = found(&shuffled(case.lay(content), &[2, 0, 1]));
        assert_eq!(
            told(&ranked),
            expected(&case, "1@2048 2@2048 0@2048", "high"),
            "{}",
            brief(&ranked)
        );
        let best = ranked.swap_remove(0);
        assert_eq!((best.hypothesis.origin, best.hypothesis.met), (2048, best.hypothesis.of));
        best.hypothesis.met
    };
    let with = best(&content);
    let end = content.len();
    content[end - 512..].fill(0);
    assert_eq!(with, best(&content) + 1);
}
