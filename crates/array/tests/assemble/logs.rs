//! What logs against the write hole make of a start.

use braid_array::assemble::{FoundLog, Options, decide};
use braid_array::format::ppl::place_code;
use braid_array::format::superblock::feature;
use braid_array::log::ppl::PplScan;

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
