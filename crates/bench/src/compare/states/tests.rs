//! The sentences, of numbers that might have been found.

use super::case::{Task, mirror};
use super::course::Phase;
use super::numbers::{SPEED, States, finish_error, kept, used};
use super::*;
use crate::compare::numbers::Numbers;
use crate::model::Run;

/// Sentences on a mirror: dd alone, in sync, and while it recovers; what dd and the recovery do
/// beside each other, and what these keep of their speed.
fn said(alone: f64, in_sync: f64, dd: [f64; 2], recovery: [f64; 2]) -> String {
    let options = StateOptions::usual(true);
    let mut all = Vec::new();
    for ((case, _), mb_s) in mirror().into_iter().zip([in_sync, alone, 60.0, alone]) {
        let mut speed = |task, mb_s| all.push((case, task, SPEED.to_owned(), mb_s));
        for &mb in &options.sizes_mb {
            Flow::ALL.into_iter().for_each(|flow| speed(Task::Sized(flow, mb), mb_s));
            speed(Task::Cached(mb), if mb < 64 { 900.0 } else { 90.0 });
        }
        speed(Task::TwoReaders, in_sync);
    }
    for flow in Flow::ALL {
        let both = used(Phase::Both);
        for (metric, value) in [
            (used(Phase::Degraded), dd[0]),
            (kept(both), dd[1] / dd[0]),
            (Phase::Alone.to_string(), recovery[0]),
            (Phase::Both.to_string(), recovery[1]),
            (kept(Phase::Both), recovery[1] / recovery[0]),
            (finish_error(Phase::Both), 0.5),
            (finish_error(Phase::After), 0.25),
        ] {
            all.push((StateCase::Trace(MIRROR), Task::Trace(flow), metric, value));
        }
    }
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("members.txt"), "80000000 bytes/s each\n").expect("written");
    let run = Run { files: vec!["members.txt".to_owned()], ..Run::new("", "", 0) };
    let found = Found { runs: vec![run], folder: folder.path().to_owned(), ..Found::default() };
    let numbers = Numbers::default().with(all);
    sentences::sentences(&States { options: &options, numbers, found: &found }).join("\n")
}

#[test]
fn what_is_said_follows_from_what_was_found() {
    let says = said(80.0, 160.0, [76.0, 66.0], [80.0, 10.0]);
    for part in [
        "2.00 (published 0.9",
        "keeps 0.87 of its speed (published 0.95)",
        "keeps 0.12 of its own (published 0.13)",
        "Both together would take 1.20 of a member, of which dd alone takes 0.95",
        "Two readers of a mirror get 2.00",
        "both legs serve",
        "falls from 900 to 90.0 MB/s between 16 and 64 MB",
        "is off by 50 % while dd writes and by 25 % after it",
        "Most is lost with write 2 MB, RAID 1 UI: 0.75",
    ] {
        assert!(says.contains(part), "{part:?} is not in\n{says}");
    }
    let says = said(60.0, 60.0, [40.0, 39.0], [80.0, 40.0]);
    assert!(says.contains("keeps 0.97 of its speed"), "{says}");
    assert!(!says.contains("were wanted") && says.contains("the legs do not add up"), "{says}");
    assert!(says.contains("Nothing is lost: the least is 1.00"), "{says}");
}

#[test]
fn nothing_found_is_nothing_said() {
    let chapter = StateOptions::usual(true).chapter(&Found::default());
    assert!(chapter.says.is_empty() && chapter.cells.is_empty() && chapter.plots.is_empty());
    assert!(chapter.tables.iter().all(|table| !table.rows.is_empty()));
}
