//! Some seeds pass (`make sim` runs many), a seed is the same run each time, faults are noticed.

use braid_sim::cluster;
use braid_sim::fault::Mutation;
use braid_sim::report::Options;
use braid_sim::run::{run_log_seed, run_nested_seed, run_seed};

#[test]
fn seeds_pass() {
    for seed in 1..=200 {
        run_seed(seed, Options::default()).unwrap_or_else(|line| panic!("{line}"));
    }
}

#[test]
fn seeds_of_arrays_with_logs_pass() {
    for seed in 1..=200 {
        run_log_seed(seed, Options::default()).unwrap_or_else(|line| panic!("{line}"));
    }
}

/// A write of two stripes: in one of them a member cannot be read while the resync has yet to come,
/// and it has ended when the write to the other one is over.
#[test]
fn a_write_that_met_what_cannot_be_read_may_fail_after_the_resync() {
    run_log_seed(30862, Options::default()).unwrap_or_else(|line| panic!("{line}"));
}

#[test]
fn seeds_of_arrays_of_arrays_pass() {
    for seed in 1..=60 {
        run_nested_seed(seed, Options::default()).unwrap_or_else(|line| panic!("{line}"));
    }
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

/// Nodes that all die forget what was answered while a flush was under way. That flush fails, and
/// so does the next one, which came after it.
#[test]
fn a_flush_that_fails_says_nothing_of_what_was_answered_meanwhile() {
    cluster::run::run_seed(461, Options::default()).unwrap_or_else(|line| panic!("{line}"));
}
