//! Loads within the process, for a moment; `tests/live/engine.rs` has those that need the command
//! and fio.

use braid_array::level::Level;

use super::*;
use crate::compare::rates::COLUMNS;
use crate::folder::Folder;
use crate::model::{Cell, Note, Run};

fn options() -> EngineOptions {
    EngineOptions { run_ms: 5, area_bytes: 16 << 20, ..EngineOptions::usual(false) }
}

fn room(scratch: &std::path::Path) -> Room {
    std::fs::create_dir(scratch).expect("a directory");
    Room::new(scratch.to_owned(), Vec::new(), Tool::at("braid", "no".into()))
}

#[test]
fn every_level_is_measured_within_the_process_and_has_its_rows() {
    let place = tempfile::tempdir().expect("a directory");
    let folder = Folder::open(&place.path().join("report")).expect("a folder");
    let room = room(&place.path().join("scratch"));
    let engine = options();
    let mut cases = vec![EngineCase::Copies];
    for level in levels(&engine) {
        cases.extend(
            [EnginePlace::Memory, EnginePlace::Files]
                .map(|members| EngineCase::Within(level, members)),
        );
    }
    cases.push(EngineCase::Stripes);
    for case in &cases {
        let case = case.to_string();
        let mut stands = engine.set_up(&case, &room).expect(&case);
        for load in loads() {
            let mut note = Note::default();
            stands.run(&load.to_string(), &mut note).expect(&case);
            folder.keep("engine", Run::new(&case, load, 0), &note).expect("kept");
        }
    }
    let chapter = engine.chapter(&folder.found("engine"));
    let table = |title: &str| {
        let table = chapter.tables.iter().find(|table| table.title == title);
        &table.unwrap_or_else(|| panic!("no table {title}")).rows
    };
    let copies = EngineCase::Copies.to_string();
    let ratios = table(&format!("Rate within the process, on memory, by that of {copies}"));
    assert!(ratios.iter().flatten().all(|word| word != "-"), "{ratios:?}");
    // Copies have no latencies.
    let rows = table("Within the process").iter().filter(|row| !row[0].starts_with(&copies));
    let rows: Vec<&Vec<String>> = rows.collect();
    assert_eq!(rows.len(), (cases.len() - 1) * loads().count());
    let measured = |row: &&Vec<String>| row[1..=COLUMNS.len()].iter().all(|word| word != "-");
    assert!(rows.iter().all(measured), "{rows:?}");
    let of = |metric: &str| -> Vec<&Cell> {
        chapter.cells.iter().filter(|cell| cell.metric == metric).collect()
    };
    assert!(of("iops").iter().all(|c| c.spread.min > 0.0));
    for (low, high) in [("p50", "p99"), ("p99", "p99.9")] {
        let pairs = of(low).into_iter().zip(of(high));
        assert!(pairs.into_iter().all(|(low, high)| low.spread.median <= high.spread.median));
    }
}

#[test]
fn a_load_that_cannot_be_carried_out_says_why_and_the_next_one_runs() {
    let place = tempfile::tempdir().expect("a directory");
    let room = room(&place.path().join("scratch"));
    let stack = Stack::new(&room, "x");
    let shape = ArrayShape::usual(Level::Raid5);
    let (inside, _stack) =
        Inside::start(&options(), stack, shape, EnginePlace::Memory, &room).expect("set up");
    let load = |bytes, depth| Requests::one_way(true, bytes, depth);
    let length = Duration::from_millis(5);
    let long = inside.drive(load(2 << 20, 1), length).expect_err("longer than a request may be");
    assert!(long.contains("a request failed"), "{long}");
    let many = inside.drive(load(1 << 20, 100_000), length).expect_err("too much memory");
    assert!(many.contains("memory"), "{many}");
    let figures = inside.drive(load(4096, 4), length).expect("it runs");
    assert!(figures.requests > 0.0);
}

/// Cases are measured in turns with what they are compared with.
#[test]
fn what_a_case_is_compared_with_is_in_its_group() {
    let engine = EngineOptions::usual(false);
    for place in EnginePlace::ALL {
        let cases = place.cases(&engine);
        for case in &cases {
            let baseline = case.baseline();
            assert!(
                cases.iter().any(|other| other.to_string() == baseline),
                "{case:?} and {baseline}"
            );
        }
    }
}
