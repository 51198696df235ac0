//! What logs against the write hole make of a start.

use braid_array::assemble::{Candidate, FoundLog, Options, decide};
use braid_array::format::ppl::place_code;
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock};
use braid_array::log::journal::{JournalArea, JournalScan};
use braid_array::log::ppl::PplScan;
use braid_array::policy::{Policy, PolicyChange};

use super::{FORCE, READ_ONLY, RUN, assemble, candidates, lose, raid5, ready, refused};

/// A unit that is not whole was being recorded in a crash, and nothing of it had been written; or
/// it was damaged since, and some was.
#[test]
fn a_log_that_is_not_whole_makes_a_resync_where_all_members_are_there() {
    let mut superblocks = raid5();
    for superblock in &mut superblocks {
        superblock.feature_map = feature::MULTIPLE_PPLS;
        superblock.bitmap_offset_sectors = place_code(32, 1024);
        superblock.resync_offset = 0;
    }
    let torn = PplScan { generation: 1, torn: true, ..PplScan::default() };
    let mut members = candidates(&superblocks);
    for member in &mut members {
        member.log = Some(Ok(FoundLog::PartialParity(torn.clone())));
    }
    let (_, degraded, resync_from, _) = ready(decide(members.clone(), Options::default()));
    assert_eq!((degraded, resync_from), (0, Some(0)));
    let (_, degraded, resync_from, _) = ready(decide(members[..2].to_vec(), RUN));
    assert_eq!((degraded, resync_from), (1, None));
}

#[test]
fn a_degraded_array_is_not_read_without_its_journal() {
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(|superblock| superblock.feature_map = feature::JOURNAL);
    ready(assemble(&superblocks, READ_ONLY));
    lose(&mut superblocks, &[2], 14);
    let (reason, next, could_force) = refused(assemble(&superblocks[..2], READ_ONLY));
    assert_eq!(reason, "the journal of the array is not there");
    assert!(could_force && next.advice.starts_with("bring the journal back"), "{}", next.advice);
    ready(assemble(&superblocks[..2], Options { read_only: true, ..FORCE }));
}

/// With another policy it starts: that takes nothing of what was acknowledged.
fn starts_with_another_policy(members: &[Candidate]) {
    assert!(PolicyChange::plan(members, Policy::Resync, 3).unwrap().is_some());
}

/// What is recorded of a write would lie over what is behind the area.
#[test]
fn an_array_is_only_read_whose_partial_parity_log_has_no_room_for_a_write() {
    for (sectors, chunk_sectors, room) in
        [(16, 128, false), (128, 128, false), (136, 128, true), (16, 8, true), (16, 16, false)]
    {
        let mut superblocks = raid5();
        for superblock in &mut superblocks {
            superblock.feature_map = feature::PPL;
            superblock.bitmap_offset_sectors = place_code(32, sectors);
            superblock.chunk_sectors = chunk_sectors;
        }
        let mut members = candidates(&superblocks);
        for member in &mut members {
            member.log = Some(Ok(FoundLog::PartialParity(PplScan::default())));
        }
        ready(decide(members.clone(), READ_ONLY));
        if room {
            ready(decide(members, RUN));
            continue;
        }
        let (reason, next, _) = refused(decide(members.clone(), RUN));
        let kib = sectors / 2;
        assert_eq!(
            reason,
            format!(
                "the partial parity log of each member has {kib} KiB, less than a write may take"
            )
        );
        assert!(next.advice.contains("--consistency-policy resync"), "{}", next.advice);
        starts_with_another_policy(&members);
    }
}

/// Writes would wait for room for ever.
#[test]
fn an_array_is_only_read_whose_journal_has_no_room_for_a_write() {
    let mut superblocks = raid5();
    superblocks.push(Superblock { dev_number: 3, device_uuid: [9; 16], ..raid5()[0].clone() });
    for superblock in &mut superblocks {
        superblock.feature_map = feature::JOURNAL;
        superblock.roles[3] = DevRole::Journal;
    }
    for (sectors, room) in [(64, false), (416, false), (424, true)] {
        let mut members = candidates(&superblocks);
        members[3].log = Some(Ok(FoundLog::Journal(JournalScan {
            area: JournalArea { start: super::DATA_OFFSET, sectors, tail: 0 },
            end: 8,
            next_seq: 2,
            blocks: 1,
            pages: Vec::new(),
            data: Vec::new(),
        })));
        ready(decide(members.clone(), READ_ONLY));
        if room {
            ready(decide(members, RUN));
            continue;
        }
        let (reason, ..) = refused(decide(members.clone(), RUN));
        let kib = sectors / 2;
        assert_eq!(
            reason,
            format!("the journal has {kib} KiB, and a write of the array may take 212 KiB")
        );
        starts_with_another_policy(&members);
    }
}
