//! RAID 50: a raid0 over raid5, with the superblocks of all of them lost.

use braid_array::level::Level;
use braid_rescue::recover::{Arrays, Confidence, Nested};

use super::drawn::Draw;
use super::{Case, brief, expected, ext4, found_arrays, shuffled, told as told_first, xfs};
use crate::support::{Folder, have};

/// The members of all legs, by leg and role.
fn lay(content: &[u8], legs: u64, outer_kib: usize, leg: &Case, shift: usize) -> Vec<Vec<u8>> {
    let mut halves = vec![vec![0; shift]; legs as usize];
    for (index, chunk) in content.chunks(outer_kib << 10).enumerate() {
        halves[index % legs as usize].extend_from_slice(chunk);
    }
    let longest = halves.iter().map(Vec::len).max().unwrap();
    halves.iter_mut().for_each(|half| half.resize(longest, 0));
    halves.iter().flat_map(|half| leg.lay(half)).collect()
}

/// As `128@2048: raid5 LeftSymmetric 64: 0@2048 1@2048 2@2048; …`.
fn told(found: &Nested) -> String {
    let leg = |leg: &braid_rescue::recover::Hypothesis| {
        let roles =
            leg.roles.iter().flatten().map(|at| format!("{}@{}", at.member, at.data_offset));
        let roles = roles.collect::<Vec<_>>().join(" ");
        format!("{:?} {}: {roles}", leg.shape.layout, leg.shape.chunk_sectors)
    };
    let legs: Vec<String> = found.legs.iter().map(leg).collect();
    format!("{}@{}: {}", found.shape.chunk_sectors, found.data_offset, legs.join("; "))
}

#[test]
fn legs_and_their_order_are_found() {
    if !have("legs_and_their_order_are_found", &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-nested");
    let contents = [ext4(&folder, 96, 75), xfs(&folder)];
    let mut draw = Draw::new(50);
    let mut right = 0;
    const SETS: usize = 4;
    for number in 0..SETS {
        let begun = std::time::Instant::now();
        let content = &contents[number % 2];
        let each = 3 + draw.below(2) as usize;
        let legs = 2 + draw.below(2);
        let layout = ["ls", "ls", "la", "rs"][draw.below(4) as usize];
        let case = Case::new(Level::Raid5, layout, 16 << draw.below(5), each);
        let outer_kib = 32 << draw.below(5);
        let laid = lay(content, legs, outer_kib, &case, 1 << 20);
        let mut order: Vec<usize> = (0..laid.len()).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, draw.below(index as u64 + 1) as usize);
        }
        let Some(Arrays::Nested(found)) = found_arrays(&shuffled(&laid, &order)) else {
            panic!("{each} members in each of {legs} legs are found")
        };
        let leg = |leg: usize| {
            let role = |role: usize| order.iter().position(|one| *one == leg * each + role);
            let roles = (0..each).map(|one| format!("{}@2048", role(one).unwrap()));
            let roles = roles.collect::<Vec<_>>().join(" ");
            format!("{:?} {}: {roles}", case.layout, case.chunk_sectors)
        };
        let all: Vec<String> = (0..legs as usize).map(leg).collect();
        let truth = format!("{}@2048: {}", outer_kib * 2, all.join("; "));
        let is_right = told(&found) == truth;
        println!("{truth}, {:?} {is_right} in {:?}", found.confidence, begun.elapsed());
        let said = format!("{truth}\n{}: {:?}", told(&found), found.evidence);
        assert!(is_right || found.confidence == Confidence::Guess, "{said}");
        right += usize::from(is_right && found.confidence == Confidence::Likely);
        if !is_right {
            println!("  {said}");
        }
    }
    assert!(right * 4 >= SETS * 2, "{right} of {SETS}");
}

#[test]
fn two_arrays_are_told_from_one_over_both() {
    if !have("two_arrays_are_told_from_one_over_both", &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-two-arrays");
    let contents = [ext4(&folder, 48, 75), xfs(&folder)];
    let case = Case::new(Level::Raid5, "ls", 64, 3);
    let laid = contents.iter().flat_map(|content| case.lay(content)).collect::<Vec<_>>();
    let members = shuffled(&laid, &[4, 1, 0, 5, 2, 3]);
    let Some(Arrays::Several(found)) = found_arrays(&members) else { panic!("two arrays") };
    let told: Vec<String> = found.iter().map(|one| told_first(std::slice::from_ref(one))).collect();
    let right = ["2@2048 1@2048 4@2048", "5@2048 0@2048 3@2048"];
    let right = right.map(|roles| expected(&case, roles, "likely"));
    assert_eq!(told, right, "{}", brief(&found));
}
