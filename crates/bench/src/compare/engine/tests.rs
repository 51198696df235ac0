//! All cases and loads, for a moment.

use super::*;
use crate::folder::Folder;
use crate::runner::Runner;
use crate::tool::Tool;

#[test]
fn every_level_is_measured_and_has_its_rows() {
    let place = tempfile::tempdir().expect("a directory");
    let folder = Folder::open(&place.path().join("report")).expect("a folder");
    let room = Room::new(place.path().join("scratch"), Vec::new(), Tool::at("braid", "no".into()));
    let engine = Engine(Options { run_ms: 5, ..Options::quick() });
    let all: Vec<Box<dyn Comparison>> = vec![Box::new(engine.clone())];
    std::fs::create_dir(&room.scratch).expect("a directory");
    Runner::new(&folder, &room, indicatif::ProgressBar::hidden()).run(&all, false).expect("a run");
    let found = folder.found("engine");
    assert_eq!(found.gaps, []);
    let chapter = engine.chapter(&found);
    let rows = &chapter.tables[0].rows;
    assert_eq!(rows.len(), Case::all().count() * loads().count());
    assert!(rows.iter().flatten().all(|word| word != "-"), "{rows:?}");
    let rates = chapter.cells.iter().filter(|cell| cell.metric == "iops");
    assert!(rates.clone().count() == rows.len() && rates.into_iter().all(|c| c.spread.min > 0.0));
    for (low, high) in [("p50", "p99"), ("p99", "p99.9")] {
        let of = |metric: &str| -> Vec<f64> {
            let cells = chapter.cells.iter().filter(|cell| cell.metric == metric);
            cells.map(|cell| cell.spread.median).collect()
        };
        assert!(of(low).iter().zip(of(high)).all(|(low, high)| *low <= high), "{low}, {high}");
    }
}
