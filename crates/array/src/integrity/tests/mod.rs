//! The rules together, over any loss of power: `world` is a member with a volatile cache, on which
//! Braid and md take turns; the machines here are those of the crate.

mod braid;
mod world;

use super::{AcceptedSuperblocks, MarkedPages, Trust, TrustError};
use crate::format::Superblock;
use crate::format::integrity::{
    IntegrityArea, IntegrityHeader, PAGE_BLOCKS, PageMarks, SuperblockDigest,
};
use crate::format::superblock::Version;
use world::{Broken, Rule, World, superblock};

/// A rule that is left out, and what has to break without it.
const RULES: [(Rule, Broken); 10] = [
    (Rule::MarkFirst, Broken::FalseAlarm),
    (Rule::TableBeforeClear, Broken::FalseAlarm),
    (Rule::DataBeforeClear, Broken::FalseAlarm),
    (Rule::HeaderFirst, Broken::Distrust),
    (Rule::Both, Broken::Distrust),
    (Rule::WholeSuperblock, Broken::FalseAlarm),
    (Rule::MarkAllFirst, Broken::FalseAlarm),
    (Rule::RebuildMarked, Broken::FalseAlarm),
    (Rule::WriteTakesOut, Broken::FalseAlarm),
    (Rule::WipeFirst, Broken::FalseAlarm),
];

#[test]
fn no_power_cut_and_no_turn_of_md_makes_a_trusted_checksum_wrong() {
    for version in [Version::V1_2, Version::V0_90] {
        let found = World::new(version, None).explore();
        assert_eq!(found.broken, None, "{version:?}:\n{}", found.trail.join("\n"));
        assert!(found.states > 10_000, "{version:?}: {} states only", found.states);
    }
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    for (rule, broken) in RULES {
        let found = World::new(Version::V1_2, Some(rule)).explore();
        assert_eq!(found.broken, Some(broken), "without {rule:?}, {} states", found.states);
    }
}

#[test]
fn a_torn_superblock_is_one_that_is_expected_sector_by_sector() {
    let found = World::new(Version::V0_90, Some(Rule::EachSector)).explore();
    assert_eq!(found.broken, Some(Broken::Distrust), "{} states", found.states);
}

fn header_for(superblock: &Superblock) -> IntegrityHeader {
    let digest = SuperblockDigest::of(superblock.version, &superblock.encode());
    IntegrityHeader::first(
        superblock.set_uuid,
        superblock.device_uuid,
        [3; 16],
        superblock.data_offset,
        IntegrityArea::new(superblock.data_size).expect("a size"),
        digest.expect("a superblock"),
    )
}

#[test]
fn trust_needs_the_whole_superblock_and_the_same_data() {
    let own = superblock(Version::V1_2, 7, 1000);
    let header = header_for(&own);
    let copies = [header.encode(), vec![0; 4096]];
    let copies = [copies[0].as_slice(), copies[1].as_slice()];
    let trust = |superblock: &Superblock| Trust::of(superblock, &superblock.encode(), copies);
    assert_eq!(trust(&own), Trust::Trusted(header.clone()));
    let later = Superblock { utime: own.utime + 1, ..own.clone() };
    assert_eq!(trust(&later), Trust::Foreign(header));
    let others = [
        (Superblock { set_uuid: [77; 16], ..own.clone() }, "array"),
        (Superblock { device_uuid: [77; 16], ..own.clone() }, "member"),
        (Superblock { data_offset: 16, ..own.clone() }, "place of the data"),
        (Superblock { data_size: own.data_size + 8, ..own.clone() }, "length of the data"),
    ];
    for (other, what) in others {
        assert_eq!(trust(&other), Trust::Damaged(TrustError::Other { what }));
    }
    let cut = Trust::of(&own, &[0; 100], copies);
    assert_eq!(cut, Trust::Damaged(TrustError::Superblock { bytes: 100 }));
    assert_eq!(Trust::of(&own, &own.encode(), [&[0; 4096]; 2]), Trust::Absent);
}

#[test]
fn without_redundancy_nothing_tells_that_md_was_here() {
    for level in [0, -1] {
        let own = Superblock { level, ..superblock(Version::V1_2, 7, 1000) };
        let header = header_for(&own);
        let copy = header.encode();
        let trust = Trust::of(&own, &own.encode(), [&copy, &[0; 4096]]);
        assert_eq!(trust, Trust::Unwitnessed(header));
    }
}

#[test]
fn an_area_of_a_later_version_is_not_made_anew() {
    let own = superblock(Version::V1_2, 7, 1000);
    let mut later = header_for(&own).encode();
    let rotten = {
        let mut rotten = later.clone();
        rotten[100] ^= 1;
        rotten
    };
    later[8] = 2;
    let sum = crc32c::crc32c(&later[..508]);
    later[508..512].copy_from_slice(&sum.to_le_bytes());
    for (copy, is_later) in [(later, true), (rotten, false)] {
        let Trust::Damaged(why) = Trust::of(&own, &own.encode(), [&copy, &[0; 4096]]) else {
            panic!("a header that is not whole counts");
        };
        assert_eq!(why.is_of_later_version(), is_later, "{why}");
    }
}

fn marked(pages: u64) -> MarkedPages {
    let area = IntegrityArea::new(pages * PAGE_BLOCKS * 8).expect("a size");
    MarkedPages::new(area, PageMarks::all([3; 16], pages), 0)
}

#[test]
fn a_page_that_was_found_marked_stays_so_until_it_is_made_anew() {
    let mut marked = marked(3);
    assert_eq!(marked.unproved().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(marked.nominate(), []);
    marked.made_anew(1);
    assert!(marked.proves(1) && !marked.proves(0));
    assert!(marked.clearable());
    assert_eq!(marked.nominate().len(), 2, "its page, and a flush");
    assert_eq!(marked.clear_nominated().len(), 1);
    assert_eq!(marked.marks().count(), 2);
    assert!(!marked.marks().get(1));
}

#[test]
fn a_write_over_two_pages_marks_both_and_keeps_them_if_it_must() {
    let mut marked = marked(3);
    (0..3).for_each(|page| marked.made_anew(page));
    marked.nominate();
    marked.clear_nominated();
    let mut pages = std::collections::BTreeSet::new();
    let write = 7672..7688;
    assert_eq!(marked.begin(write.clone(), 5, &mut pages), 5);
    assert_eq!(pages.len(), 1, "both marks are in one page of marks");
    assert_eq!(MarkedPages::marking(pages).len(), 2);
    assert_eq!(marked.check(std::slice::from_ref(&write)), Ok(()));
    assert!(marked.check(&[]).is_err());
    assert_eq!(marked.marks().count(), 2);
    marked.told(5);
    assert_eq!(marked.nominate(), [], "it is under way");
    marked.end(write, true);
    assert!(!marked.proves(0) && !marked.proves(1) && marked.proves(2));
    assert_eq!(marked.check(&[]), Ok(()));
}

#[test]
#[should_panic(expected = "a superblock is being written")]
fn no_superblock_is_announced_before_the_last_one_is_written() {
    let own = superblock(Version::V1_2, 7, 1000);
    let digest = SuperblockDigest::of(own.version, &own.encode()).expect("a superblock");
    let mut accepted = AcceptedSuperblocks::new(header_for(&own), digest);
    accepted.before_superblock(digest);
    accepted.before_superblock(digest);
}
