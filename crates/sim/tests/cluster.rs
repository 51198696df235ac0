//! Some seeds of arrays over nodes pass (`make sim` runs many), a seed is the same run each time,
//! faults are noticed.

use braid_sim::cluster::run::{Options, run_seed};
use braid_sim::cluster::world::Mutation;

#[test]
fn seeds_pass() {
    for seed in 1..=60 {
        run_seed(seed, Options::default()).unwrap_or_else(|line| panic!("{line}"));
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let run = |seed| run_seed(seed, Options::default());
    let first: Vec<_> = (1000..1010).map(run).collect();
    let second: Vec<_> = (1000..1010).map(run).collect();
    assert_eq!(first, second);
    assert!(first.windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn faults_of_the_world_are_noticed() {
    for (mutation, name) in Mutation::ALL {
        let options = Options { mutation: Some(mutation), verbose: false };
        let noticed = |seed: &u64| run_seed(*seed, options).is_err();
        assert!((1..=300).any(|seed| noticed(&seed)), "{name} goes unnoticed");
    }
}
