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
    let comparison = |chapter: &'_ Chapter| published(chapter);
    let comparisons = chapters.iter().map(|chapter| {
        let of_chapter = ComparisonData {
            published: comparison(chapter),
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

const COLUMNS: [&str; 16] = [
    "comparison",
    "case",
    "job",
    "metric",
    "unit",
    "median",
    "min",
    "max",
    "runs",
    "published",
    "ratio",
    "published_ratio",
    "bound",
    "noisy",
    "server_cores",
    "raw",
];

pub(super) fn csv(chapters: &[Chapter]) -> String {
    let mut lines = csv::Writer::from_writer(Vec::new());
    lines.write_record(COLUMNS).expect("memory");
    for chapter in chapters {
        for cell in &chapter.cells {
            lines.write_record(record(&chapter.name, cell)).expect("as many fields in each line");
        }
    }
    let bytes = lines.into_inner().expect("memory");
    String::from_utf8(bytes).expect("made of strings")
}

fn record(comparison: &str, cell: &Cell) -> [String; 16] {
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    [
        comparison.to_owned(),
        cell.case.clone(),
        cell.job.clone(),
        cell.metric.clone(),
        cell.unit.clone(),
        cell.spread.median.to_string(),
        cell.spread.min.to_string(),
        cell.spread.max.to_string(),
        cell.runs.to_string(),
        number(cell.published),
        number(cell.ratio),
        number(cell.published_ratio),
        number(cell.bound),
        cell.noisy.to_string(),
        number(cell.server_cores),
        cell.raw.join(" "),
    ]
}
