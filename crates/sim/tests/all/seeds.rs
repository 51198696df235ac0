//! Seeds that failed once pass, a seed is the same run each time, faults are noticed.

use braid_sim::cluster;
use braid_sim::fault::Mutation;
use braid_sim::local::run::{run_log_seed, run_nested_seed, run_seed};
use braid_sim::report::Options;

/// A write of two stripes: in one of them a member cannot be read while the resync has yet to come,
/// and it has ended when the write to the other one is over.
#[test]
fn a_write_that_met_what_cannot_be_read_may_fail_after_the_resync() {
    run_log_seed(30862, Options::default()).unwrap_or_else(|line| panic!("{line}"));
}

/// A resync is paused, and what a part of the journal tells cannot be brought in place.
#[test]
fn writes_end_that_a_full_journal_has_no_room_for() {
    run_log_seed(14619, Options::default()).unwrap_or_else(|line| panic!("{line}"));
}

fn local_passes(seed: u64) {
    run_seed(seed, Options::default()).unwrap_or_else(|line| panic!("{line}"));
}

/// Writes wait for what is being moved, and that for the limits of background work.
#[test]
fn a_move_that_keeps_to_its_limits_goes_on_by_itself() {
    local_passes(62);
}

/// A move takes more strips than there is memory for, by less than the pages of metadata take.
#[test]
fn a_move_that_there_is_too_little_memory_for_is_refused() {
    local_passes(1727);
}

/// A member left in the middle of a move, and comes back in the middle of the next one.
#[test]
fn a_member_that_left_in_another_move_holds_nothing_up() {
    local_passes(2494);
}

/// A member fails in the middle of a move, and the power with it.
#[test]
fn a_degraded_array_starts_by_force_in_the_middle_of_a_move() {
    local_passes(5397);
}

/// A move over copies was undone, and the bitmap is as large as after it when the next one begins.
#[test]
fn what_is_new_is_marked_where_the_bitmap_is_larger_already() {
    local_passes(6094);
}

/// A stripe of two more members has parts in three stripes of before, and two members are gone.
#[test]
fn a_move_by_several_members_has_room_for_what_lost_strips_are_computed_from() {
    local_passes(11495);
}

/// A recovery is put off for a move, and a spare that the move is to take is removed meanwhile.
#[test]
fn no_member_leaves_between_a_command_to_grow_and_its_begin() {
    local_passes(24779);
}

/// A spare that was away while all data moved begins elsewhere than the others.
#[test]
fn a_spare_of_before_a_move_is_compared_where_it_lies() {
    local_passes(52007);
}

/// A member is full while data of level 0 move, and a write fails for that.
#[test]
fn stripes_that_moved_wait_for_no_resync() {
    local_passes(15670);
}

/// The power goes while members are told that data of level 0 move back.
#[test]
fn a_member_that_has_not_heard_of_a_way_back_is_as_long_as_ever() {
    local_passes(8645);
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let run = |seed| run_seed(seed, Options::default());
    let first: Vec<_> = (1000..1040).map(run).collect();
    let second: Vec<_> = (1000..1040).map(run).collect();
    assert_eq!(first, second);
    assert!(first.windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn faults_of_the_executor_are_noticed() {
    for run in [run_seed, run_nested_seed] {
        for &(mutation, name) in Mutation::LOCAL {
            let options = Options { mutation: Some(mutation), verbose: false };
            let noticed = (1..=300).find(|seed| run(*seed, options).is_err());
            assert!(noticed.is_some(), "{name} goes unnoticed");
            println!("{name}: noticed by seed {noticed:?} first");
        }
    }
}

fn passes(seed: u64) {
    cluster::run::run_seed(seed, Options::default()).unwrap_or_else(|line| panic!("{line}"));
}

/// All nodes die and forget answered writes while a flush is under way. The flush fails, and so
/// does the next one, which was submitted later.
#[test]
fn a_flush_that_fails_says_nothing_of_what_was_answered_meanwhile() {
    passes(461);
}

/// All nodes die and forget answered writes, and the client that takes the array over loses them
/// before it serves. The next client finds the state as that client recorded it.
#[test]
fn a_flush_says_what_a_client_found_gone_that_never_served() {
    passes(7792);
    passes(9521);
}

/// A member was away at the start, and while it is looked at another one gets its role.
#[test]
fn who_was_absent_and_has_lost_its_role_keeps_nothing_open() {
    passes(4317);
}

/// Two clients that died each wrote the superblock of one member, with the same count: neither had
/// told all members.
#[test]
fn superblocks_that_not_all_were_told_of_are_no_halves() {
    passes(7919);
}

/// A spare dies when all is copied to it, and superblocks that tell of that are under way; the next
/// one is given another role, and has nothing yet when they are written.
#[test]
fn a_copy_that_ended_says_nothing_of_the_next() {
    passes(15697);
}

/// After a resync, only a block lost for good is left in doubt. Data written and flushed after that
/// is kept when the client and a node die: nothing else waits for a resync.
#[test]
fn what_nobody_knows_keeps_nothing_else_in_doubt() {
    passes(19664);
}

/// A member that was away at the start has a list of bad blocks. The client reads the list, so the
/// member brings the rest of its data back.
#[test]
fn a_returning_member_with_bad_blocks_keeps_its_data() {
    passes(300_000_895);
}

/// A member was being rebuilt when its client died, and another client went on without it. Half a
/// member has no past of its own: it is taken back by itself.
#[test]
fn a_member_that_was_being_rebuilt_is_no_half() {
    passes(6_383_825);
}

/// A member with a block that no member can tell returns without a bitmap, and is rebuilt as a
/// whole. The block stays unknown.
#[test]
fn a_member_that_keeps_its_data_keeps_its_bad_blocks() {
    passes(81_003_867);
}
