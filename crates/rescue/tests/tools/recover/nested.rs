//! RAID 50 and 60: a raid0 over raid5 or raid6, with the superblocks of all of them lost.

use std::ops::Range;

use braid_array::level::Level;
use braid_rescue::recover::{Arrays, Confidence, Nested, arrays, rank, search};

use super::drawn::Draw;
use super::{
    Case, brief, expected, ext4, found_arrays, searched, shuffled, told as told_first, xfs,
};
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
        let roles = leg.roles.iter().map(|role| match role {
            Some(at) => format!("{}@{}", at.member, at.data_offset),
            None => "-".to_owned(),
        });
        let roles = roles.collect::<Vec<_>>().join(" ");
        format!("{:?} {}: {roles}", leg.shape.layout, leg.shape.chunk_sectors)
    };
    let legs: Vec<String> = found.legs.iter().map(leg).collect();
    format!("{}@{}: {}", found.shape.chunk_sectors, found.data_offset, legs.join("; "))
}

/// Members of a drawn array of legs, so many of them missing, and what is to be found of them.
fn drawn(draw: &mut Draw, content: &[u8], level: Level, lost: usize) -> (Vec<Vec<u8>>, String) {
    let each = level.parity_disks() as usize + 2 + draw.below(2) as usize;
    let legs = 2 + draw.below(2);
    let layout = ["ls", "ls", "la", "rs"][draw.below(4) as usize];
    let case = Case::new(level, layout, 16 << draw.below(5), each);
    let outer_kib = 32 << draw.below(5);
    let laid = lay(content, legs, outer_kib, &case, 1 << 20);
    let mut order: Vec<usize> = (0..laid.len()).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, draw.below(index as u64 + 1) as usize);
    }
    order.truncate(order.len() - lost);
    let leg = |leg: usize| {
        let role = |role: usize| match order.iter().position(|one| *one == leg * each + role) {
            Some(member) => format!("{member}@2048"),
            None => "-".to_owned(),
        };
        let roles = (0..each).map(role).collect::<Vec<_>>().join(" ");
        format!("{:?} {}: {roles}", case.layout, case.chunk_sectors)
    };
    let all: Vec<String> = (0..legs as usize).map(leg).collect();
    (shuffled(laid, &order), format!("{}@2048: {}", outer_kib * 2, all.join("; ")))
}

/// What is answered, and how surely.
fn answered(members: &[Vec<u8>]) -> (String, Confidence) {
    let sizes: Vec<u64> = members.iter().map(|member| member.len() as u64 / 512).collect();
    searched(members, |read, gathered, known, names| match arrays(read, gathered, known, names) {
        Some(Arrays::Nested(found)) => {
            println!("  {:?}", found.evidence);
            (told(&found), found.confidence)
        }
        Some(Arrays::Several(each)) => (brief(&each), each[0].confidence),
        None => {
            let found = search(&sizes, gathered, known, None);
            let ranked = rank(&found, read, gathered, known, names);
            let confidence = ranked.first().map_or(Confidence::Guess, |one| one.confidence);
            (brief(&ranked), confidence)
        }
    })
}

/// Draws sets, of which so many are to be found so surely, and nothing else is to be likely.
fn assert_drawn(
    name: &str,
    (seed, level, lost): (u64, Level, usize),
    sets: Range<usize>,
    (least, surely): (usize, Confidence),
) {
    if !have(name, &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new(&format!("recover-{name}-{seed}"));
    let contents = [ext4(&folder, 96, 75), xfs(&folder)];
    let mut draw = Draw::new(seed);
    let mut right = 0;
    for number in 0..sets.end {
        let begun = std::time::Instant::now();
        let (members, truth) = drawn(&mut draw, &contents[number % 2], level, lost);
        if number < sets.start {
            continue;
        }
        let (answer, confidence) = answered(&members);
        let is_right = answer == truth;
        println!("{level} {truth}, {confidence:?} {is_right} in {:?}", begun.elapsed());
        if !is_right {
            println!("  {answer}");
        }
        assert!(is_right || confidence == Confidence::Guess, "{truth}\n{answer}");
        right += usize::from(is_right && confidence <= surely);
    }
    assert!(right >= least, "{right} of {sets:?}");
}

#[test]
fn legs_and_their_order_are_found() {
    assert_drawn("legs-whole", (50, Level::Raid5, 0), 0..4, (2, Confidence::Likely));
}

#[test]
fn a_leg_may_lack_a_member() {
    assert_drawn("legs-lacking", (51, Level::Raid5, 1), 1..2, (1, Confidence::Likely));
}

/// Legs with two parities, and legs that lack a member: they are found less surely, if at all.
#[test]
#[ignore = "minutes"]
fn further_legs_are_found_or_a_guess() {
    assert_drawn("legs-further", (51, Level::Raid5, 1), 0..4, (2, Confidence::Likely));
    assert_drawn("legs-further", (60, Level::Raid6, 0), 0..4, (2, Confidence::Guess));
    assert_drawn("legs-further", (52, Level::Raid5, 2), 0..4, (0, Confidence::Guess));
    assert_drawn("legs-further", (61, Level::Raid6, 1), 0..4, (0, Confidence::Guess));
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
    let members = shuffled(laid, &[4, 1, 0, 5, 2, 3]);
    let Some(Arrays::Several(found)) = found_arrays(&members) else { panic!("two arrays") };
    let told: Vec<String> = found.iter().map(|one| told_first(std::slice::from_ref(one))).collect();
    let right = ["2@2048 1@2048 4@2048", "5@2048 0@2048 3@2048"];
    let right = right.map(|roles| expected(&case, roles, "likely"));
    assert_eq!(told, right, "{}", brief(&found));
}
