//! `results.json` and `results.csv`: every number, for programs. Published fields keep their names
//! and columns.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;
use crate::model::{Cell, Chapter, Gap, Published};

#[derive(Serialize)]
struct Results<'a> {
    schema: u32,
    machine: &'a Machine,
    comparisons: BTreeMap<&'a str, ComparisonData<'a>>,
    results: Vec<&'a Value>,
}

#[derive(Serialize)]
struct ComparisonData<'a> {
    published: Vec<Published>,
    cases: &'a [Cell],
    gaps: &'a [Gap],
    says: &'a [String],
}

pub(super) fn json(machine: &Machine, chapters: &[Chapter]) -> String {
    let comparisons = chapters.iter().map(|chapter| {
        let of_chapter = ComparisonData {
            published: published(chapter),
            cases: &chapter.cells,
            gaps: &chapter.gaps,
            says: &chapter.says,
        };
        (chapter.name.as_str(), of_chapter)
    });
    let extra = chapters.iter().filter_map(|chapter| chapter.extra.as_ref()?.as_array());
    let results = Results {
        schema: 1,
        machine,
        comparisons: comparisons.collect(),
        results: extra.flatten().collect(),
    };
    serde_json::to_string_pretty(&results).expect("numbers and words") + "\n"
}

/// Collects what the chapter gives, and what its cells bear beyond that.
fn published(chapter: &Chapter) -> Vec<Published> {
    let mut all = chapter.published.clone();
    for cell in &chapter.cells {
        let is_there = |one: &Published| {
            (&one.case, &one.job, &one.metric) == (&cell.case, &cell.job, &cell.metric)
        };
        if !all.iter().any(is_there)
            && let Some(value) = cell.published
        {
            let [case, job, metric] = [&cell.case, &cell.job, &cell.metric].map(String::clone);
            all.push(Published { case, job, metric, value });
        }
    }
    all
}

/// Word of a cell of a comparison.
type CsvField = fn(&str, &Cell) -> String;

const COLUMNS: [(&str, CsvField); 16] = [
    ("comparison", |comparison, _| comparison.to_owned()),
    ("case", |_, cell| cell.case.clone()),
    ("job", |_, cell| cell.job.clone()),
    ("metric", |_, cell| cell.metric.clone()),
    ("unit", |_, cell| cell.unit.clone()),
    ("median", |_, cell| cell.spread.median.to_string()),
    ("min", |_, cell| cell.spread.min.to_string()),
    ("max", |_, cell| cell.spread.max.to_string()),
    ("runs", |_, cell| cell.runs.to_string()),
    ("published", |_, cell| number(cell.published)),
    ("ratio", |_, cell| number(cell.ratio)),
    ("published_ratio", |_, cell| number(cell.published_ratio)),
    ("bound", |_, cell| number(cell.bound)),
    ("noisy", |_, cell| cell.noisy.to_string()),
    ("server_cores", |_, cell| number(cell.server_cores)),
    ("raw", |_, cell| cell.raw.join(" ")),
];

fn number(number: Option<f64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

pub(super) fn csv(chapters: &[Chapter]) -> String {
    let mut lines = csv::Writer::from_writer(Vec::new());
    lines.write_record(COLUMNS.map(|(name, _)| name)).expect("memory");
    for chapter in chapters {
        for cell in &chapter.cells {
            let record = COLUMNS.map(|(_, field)| field(&chapter.name, cell));
            lines.write_record(record).expect("as many fields in each line");
        }
    }
    let bytes = lines.into_inner().expect("memory");
    String::from_utf8(bytes).expect("made of strings")
}
