//! The power fails under an array while it is written to, and members are lost with it: what
//! `docs/write-hole.md` promises of each consistency policy, for the program as it runs, on disks
//! with a volatile cache.
//!
//! - `dice`: what a seed draws
//! - `disk`: a disk with a volatile cache; `rack`: disks with one power supply
//! - `fuse`: a rack as a directory of files
//! - `history`: what was written, and what may be there after a power cut
//! - `shape`: the arrays; `round`: one power cut
//!
//! What a journal has as a whole or not at all is an aligned block of 4 KiB, md's page. Logs of
//! partial parity keep each sector that nobody was writing.
//!
//! `POWER_ROUNDS` says how often it is cut, for each array; `POWER_SEED` what the first of them is.
//! The gate draws that by what is committed, and `make soak` cuts more often.

mod dice;
mod disk;
mod fuse;
mod history;
mod rack;
mod round;
mod shape;

use std::fmt;

use crate::support::{self, attempt, skip};
use history::{BLOCK_SECTORS, Verdict};
use round::{Bench, Outcome};
use shape::{Policy, Shape};

/// How often the power is cut, for each array.
const ROUNDS: u64 = 8;
/// How often at most where a hole has to be seen: a third of the rounds and more have one.
const MOST_ROUNDS: u64 = 60;

#[test]
fn partial_parity_logs_keep_what_nobody_was_writing() {
    every_shape(
        "partial_parity_logs_keep_what_nobody_was_writing",
        &[
            shape(Policy::PartialParity, 5, 3, 16, 1),
            shape(Policy::PartialParity, 5, 4, 64, 1),
            shape(Policy::PartialParity, 5, 6, 4, 1),
        ],
    );
}

#[test]
fn a_journal_has_each_block_as_it_was_or_as_it_was_to_be() {
    every_shape(
        "a_journal_has_each_block_as_it_was_or_as_it_was_to_be",
        &[
            shape(JOURNAL, 4, 3, 16, 1),
            shape(JOURNAL, 5, 4, 64, 1),
            shape(JOURNAL, 6, 5, 16, 2),
            shape(JOURNAL, 6, 6, 4, 1),
        ],
    );
}

#[test]
fn a_journal_that_is_written_back_has_that_too() {
    every_shape(
        "a_journal_that_is_written_back_has_that_too",
        &[shape(BACK, 4, 3, 64, 1), shape(BACK, 5, 4, 16, 1), shape(BACK, 6, 5, 16, 2)],
    );
}

/// Without a log the hole is there, or the others proved nothing.
#[test]
fn without_a_log_what_nobody_was_writing_is_lost() {
    every_shape(
        "without_a_log_what_nobody_was_writing_is_lost",
        &[
            shape(Policy::Resync, 5, 4, 16, 1),
            shape(Policy::Bitmap, 5, 3, 64, 1),
            shape(Policy::Resync, 6, 5, 16, 2),
        ],
    );
}

const JOURNAL: Policy = Policy::Journal { back: false };
const BACK: Policy = Policy::Journal { back: true };

const fn shape(policy: Policy, level: u64, members: u64, chunk_kib: u64, lost: u64) -> Shape {
    Shape { level, members, chunk_kib, policy, lost }
}

fn number(variable: &str, usual: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

fn every_shape(test: &str, shapes: &[Shape]) {
    if let Err(reason) = fuse::available() {
        return skip(test, &reason);
    }
    let mut findings = Vec::new();
    for shape in shapes {
        match attempt(|| every_round(shape)) {
            Ok(found) => findings.extend(found),
            Err(finding) => findings.push(format!("{}: {finding}", shape.name())),
        }
    }
    support::report(&findings);
}

/// What should not be.
fn every_round(shape: &Shape) -> Vec<String> {
    let first = number("POWER_SEED", 1);
    let bench = Bench::new(*shape);
    let mut findings = Vec::new();
    let mut sums = Sums::default();
    let usual = first..first + number("POWER_ROUNDS", ROUNDS);
    for seed in first..first + MOST_ROUNDS.max(usual.end - first) {
        let looks_for_hole = shape.policy.is_open() && sums.with_hole == 0;
        if !usual.contains(&seed) && !looks_for_hole {
            break;
        }
        let outcome = attempt(|| bench.round(seed, seed == first));
        let wrong = outcome.and_then(|outcome| {
            sums.add(&outcome);
            wrong(shape, &outcome)
        });
        if let Err(wrong) = wrong {
            findings.push(format!("{}, POWER_SEED={seed}: {wrong}", shape.name()));
        }
    }
    eprintln!("{}: {sums}", shape.name());
    if shape.policy.is_open() && sums.with_hole == 0 {
        findings.push(format!("{}: no write hole in {} rounds", shape.name(), sums.rounds));
    }
    findings
}

/// What all rounds together found, once the array was assembled.
#[derive(Clone, Debug, Default)]
struct Sums {
    rounds: usize,
    forced: usize,
    with_hole: usize,
    there: usize,
    idle_lost: usize,
    written_lost: usize,
    torn_blocks: usize,
    torn_writes: usize,
}

impl Sums {
    fn add(&mut self, outcome: &Outcome) {
        let verdict = &outcome.assembled;
        self.rounds += 1;
        self.forced += usize::from(outcome.forced);
        self.with_hole += usize::from(!verdict.idle_lost.is_empty());
        self.there += verdict.there.len();
        self.idle_lost += verdict.idle_lost.len();
        self.written_lost += verdict.written_lost.len();
        self.torn_blocks += verdict.torn_blocks.len();
        self.torn_writes += verdict.torn_writes.len();
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, forced, with_hole, there, idle_lost, written_lost, .. } = self;
        let Self { torn_blocks, torn_writes, .. } = self;
        write!(
            f,
            "{rounds} rounds, {forced} by force; wrong sectors of members that are there: {there}; \
             of lost ones: {idle_lost} idle in {with_hole} rounds, {written_lost} being written; \
             torn: {torn_blocks} blocks, {torn_writes} writes"
        )
    }
}

/// What the policy does not promise is not wrong.
fn wrong(shape: &Shape, outcome: &Outcome) -> Result<(), String> {
    let verdicts = outcome.read_only.iter().map(|verdict| ("read-only", verdict));
    for (how, verdict) in verdicts.chain([("assembled", &outcome.assembled)]) {
        let Verdict { there, idle_lost, written_lost, torn_blocks, .. } = verdict;
        // By their first sectors.
        let torn: Vec<u64> = torn_blocks.iter().map(|block| block * BLOCK_SECTORS).collect();
        let promised = match shape.policy {
            Policy::Resync | Policy::Bitmap => 1,
            Policy::PartialParity => 2,
            Policy::Journal { .. } => 4,
        };
        let found = [
            ("sectors of members that are there", there),
            ("idle sectors", idle_lost),
            ("sectors that were being written", written_lost),
            ("torn blocks", &torn),
        ];
        for (what, found) in &found[..promised] {
            if let Some(first) = found.first() {
                let told = tell(shape, outcome, verdict, *first);
                return Err(format!("{how}: {} {what}: {told}", found.len()));
            }
        }
    }
    Ok(())
}

/// About a sector, for people.
fn tell(shape: &Shape, outcome: &Outcome, verdict: &Verdict, sector: u64) -> String {
    let Outcome { history, lost, again, .. } = outcome;
    let role = shape.role_of(sector);
    let again = if *again { ", and the power failed again" } else { "" };
    format!("of role {role}, {lost:?} are lost{again}; {}", history.tell(verdict, sector))
}
