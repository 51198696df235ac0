//! The sentences, of numbers that might have been found.

use std::collections::BTreeMap;

use super::case::{Built, Cache, LevelCase};
use super::numbers::{Levels, RATE};
use super::{Level, LevelOptions, Rival, published, sentences};
use crate::compare::Plan;
use crate::compare::numbers::Numbers;

const RAID_5: Built = Built::Braid(Level::Raid5);
const RANDOM: &str = "RND4KQ32T16-Write";

/// Sentences on every published case, as fast as published times a factor.
fn said(options: &LevelOptions, cache: Cache, factor: impl Fn(Built, &str) -> f64) -> String {
    let mut rates = Vec::new();
    for built in [Built::Bare, Built::Plain].into_iter().chain(Level::ALL.map(Built::Braid)) {
        let name = LevelCase { built, cache }.to_string();
        for (job, ..) in published::JOBS {
            let rate = published::figures(built, job).map(|figures| figures.0 * factor(built, job));
            rates.extend(rate.map(|rate| (name.clone(), job, rate)));
        }
    }
    said_of(options, &rates)
}

fn said_of(options: &LevelOptions, rates: &[(String, &str, f64)]) -> String {
    let all = rates.iter().map(|(case, job, rate)| (case.as_str(), *job, RATE, *rate));
    let numbers = Numbers::default().with(all);
    sentences::sentences(&Levels { options, numbers, jobs: BTreeMap::new() }).join("\n")
}

#[test]
fn sentences_follow_the_numbers() {
    let options = LevelOptions::usual(false);
    let text = said(&options, Cache::Warm, |_, _| 0.1);
    assert!(text.contains("RAID 5 loses as much as was published."), "{text}");
    assert!(text.contains("No ratio lies below a published one (warm cache)."), "{text}");
    let text = said(&options, Cache::Warm, |built, job| match (built, job) {
        (RAID_5, RANDOM) => 2.0,
        (Built::Braid(Level::Near2), "SEQ1MQ8T1-Read") => 0.1,
        _ => 1.0,
    });
    assert!(text.contains("keep 0.73 on RAID 5 and 0.29 on RAID 6"), "{text}");
    assert!(text.contains("RAID 5 loses less than was published. RAID 6 loses as much"), "{text}");
    assert!(text.contains("Where Braid loses: 1 of 32 ratios"), "{text}");
    assert!(text.contains("RAID 10 near2 on SEQ1MQ8T1-Read (0.09 for 0.91)"), "{text}");
    let cold = said(&options, Cache::Cold, |_, _| 1.0);
    assert!(cold.contains("cold cache") && !cold.contains("warm cache"), "{cold}");
    assert_eq!(said_of(&options, &[]), "");
}

#[test]
fn members_in_memory_are_told_from_a_cache() {
    let options = LevelOptions::usual(true);
    let said = |warm: f64| {
        let case = |cache| LevelCase { built: Built::Plain, cache }.to_string();
        let job = published::JOBS[0].0;
        said_of(&options, &[(case(Cache::Cold), job, 100.0), (case(Cache::Warm), job, warm)])
    };
    assert!(said(600.0).contains("6.00 times as fast as it is cold"));
    assert!(said(600.0).contains("those of a cache, there and here"));
    assert!(said(120.0).contains("about as fast as a cache"));
}

#[test]
fn a_job_file_of_ones_own_stands_for_itself() {
    let job = super::JobFile::new("cdm", "[a]\nrw=read\n").expect("a job file");
    let options = LevelOptions { job: Some(job), ..LevelOptions::usual(false) };
    let text = said(&options, Cache::Warm, |_, _| 1.0);
    assert!(text.contains("RAID 5 keeps from 0.37 (RND4KQ32T16-Write) to 1.02"), "{text}");
    assert!(!text.contains("published"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_beforehand() {
    let usual = || LevelOptions::usual(true);
    let gluster = LevelOptions { against: vec![Rival::Gluster], ..usual() };
    let wide = LevelOptions { members: Some(500), ..usual() };
    let small = LevelOptions { size_bytes: 4096, ..usual() };
    for options in [gluster, wide, small] {
        let refused = options.checked().expect_err("no sense");
        assert_eq!(refused.ends, crate::Ends::Usage);
    }
    let three = LevelOptions { members: Some(3), ..usual() }.checked().expect("it makes sense");
    assert_eq!(Level::ALL.map(|level| three.members(level)), [3, 3, 4, 4, 4, 4, 3]);
}
