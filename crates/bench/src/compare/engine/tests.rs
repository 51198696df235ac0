//! All levels and loads within the process, for a moment; `tests/live/engine.rs` has those that
//! need the command and fio.

use braid_array::level::Level;

use super::*;
use crate::compare::figures::COLUMNS;
use crate::folder::{self, Folder};
use crate::model::{Cell, Note};
use crate::tool::Tool;

#[test]
fn every_level_is_measured_within_the_process_and_has_its_rows() {
    let place = tempfile::tempdir().expect("a directory");
    let folder = Folder::open(&place.path().join("report")).expect("a folder");
    let room = Room::new(place.path().join("scratch"), Vec::new(), Tool::at("braid", "no".into()));
    let engine = Engine(Options { run_ms: 5, area_bytes: 16 << 20, ..Options::full() });
    std::fs::create_dir(&room.scratch).expect("a directory");
    let mut cases = vec![Case::Copies];
    for level in levels(&engine.0) {
        cases.extend([Place::Memory, Place::Files].map(|members| Case::Within(level, members)));
    }
    cases.push(Case::Stripes);
    for case in &cases {
        let case = case.name();
        let mut stands = engine.set_up(&case, &room).expect(&case);
        for load in loads() {
            let mut note = Note::default();
            stands.run(&load.name(), &mut note).expect(&case);
            let job = &load.name();
            let place = folder::Place { comparison: "engine", case: &case, job, round: 0 };
            folder.keep(place, &note, 1.0, None).expect("kept");
        }
    }
    let chapter = engine.chapter(&folder.found("engine"));
    let table = |title: &str| {
        let table = chapter.tables.iter().find(|table| table.title == title);
        &table.unwrap_or_else(|| panic!("no table {title}")).rows
    };
    let copies = Case::Copies.name();
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
    assert!(of("iops").len() == rows.len() + loads().count());
    assert!(of("iops").iter().all(|c| c.spread.min > 0.0));
    for (low, high) in [("p50", "p99"), ("p99", "p99.9")] {
        let pairs = of(low).into_iter().zip(of(high));
        assert!(pairs.into_iter().all(|(low, high)| low.spread.median <= high.spread.median));
    }
}

#[test]
fn a_load_that_cannot_be_carried_out_says_why_and_the_next_one_runs() {
    let place = tempfile::tempdir().expect("a directory");
    let room = Room::new(place.path().join("scratch"), Vec::new(), Tool::at("braid", "no".into()));
    let options = Options { run_ms: 5, area_bytes: 16 << 20, ..Options::full() };
    let shape = Shape::usual(Level::Raid5);
    let stand = array::Stand::set_up(&options, "x".to_owned(), shape, Place::Memory, &room);
    let stand = stand.expect("set up");
    let load = |bytes, depth| load::Load { writes: true, bytes, depth };
    let length = Duration::from_millis(5);
    let long = stand.drive(load(2 << 20, 1), length).expect_err("longer than a request may be");
    assert!(long.contains("a request failed"), "{long}");
    let many = stand.drive(load(1 << 20, 100_000), length).expect_err("too much memory");
    assert!(many.contains("memory"), "{many}");
    let figures = stand.drive(load(4096, 4), length).expect("it runs");
    assert!(figures.requests > 0.0);
}

#[test]
fn names_are_unique_and_both_forms_keep_to_their_time() {
    for (options, minutes) in [(Options::quick(), 4), (Options::full(), 25)] {
        let engine = Engine(options);
        let groups = engine.groups();
        let takes: Duration = groups.iter().map(Group::takes).sum();
        assert!(takes < Duration::from_secs(minutes * 60), "{takes:?}");
        let mut files = Vec::new();
        for name in groups.iter().flat_map(|group| &group.cases) {
            assert_eq!(Case::named(&engine.0, name).map(Case::name).as_ref(), Some(name));
            files.push(crate::rig::file_name(name));
        }
        let all = files.len();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), all);
        let again: Options = serde_json::from_value(engine.options()).expect("options");
        assert_eq!(again, engine.0);
    }
}

/// What is compared with something is measured in turns with it.
#[test]
fn what_a_case_is_compared_with_is_in_its_group() {
    let engine = Engine(Options::full());
    for group in engine.groups() {
        for name in &group.cases {
            let anchor = Case::named(&engine.0, name).expect("a case").anchor().name();
            assert!(group.cases.contains(&anchor), "{name} and {anchor}");
        }
    }
}

#[test]
fn it_becomes_smaller_until_it_is_as_small_as_it_can_be() {
    let mut engine: Box<dyn Comparison> = Box::new(Engine(Options::full()));
    while let Some(smaller) = engine.smaller() {
        assert!(smaller.needs_memory_bytes() < engine.needs_memory_bytes());
        assert!(smaller.needs_bytes() < engine.needs_bytes());
        engine = smaller;
    }
    assert_eq!(engine.options()["area_bytes"], LEAST_BYTES);
}
