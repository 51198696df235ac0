//! What a comparison says: the same data become HTML, Markdown, CSV and JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::found::{Gap, Measured};
use super::spread::Spread;

/// The part of the report that belongs to one comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chapter {
    /// The name of the comparison.
    pub name: String,
    /// For people.
    pub title: String,
    /// What is compared, who published it first, and on what kind of machine.
    pub about: Vec<String>,
    /// What the numbers say, derived from them: two or three sentences, and where Braid loses.
    pub says: Vec<String>,
    /// In the shape in which they were published, with what was published beside what was found.
    pub tables: Vec<Table>,
    /// For what is better seen.
    pub plots: Vec<Plot>,
    /// Every number of the tables, for machines.
    pub cells: Vec<Cell>,
    /// What could not be measured.
    pub gaps: Vec<Gap>,
    /// The command lines that were run, each once.
    pub commands: Vec<String>,
    /// Everything that was published, whether there is a cell for it or not.
    pub published: Vec<Published>,
    /// What else it gives to machines: an array, whose entries join `results` of `results.json`.
    pub extra: Option<Value>,
}

/// A number as it was published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// What was set up.
    pub case: String,
    /// What was run.
    pub job: String,
    /// What of it: `bandwidth`, `iops`, `resync` ...
    pub metric: String,
    /// In the unit of the cell with the same case, job and metric.
    pub value: f64,
}

/// A number with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What was set up.
    pub case: String,
    /// What was run.
    pub job: String,
    /// What of it: `bandwidth`, `iops`, `resync` ...
    pub metric: String,
    /// `MB/s`, `1/s` ...
    pub unit: String,
    /// All rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// How many.
    pub runs: usize,
    /// The same cell where it was published.
    pub published: Option<f64>,
    /// To the case that the others are compared with.
    pub ratio: Option<f64>,
    /// The same, as published.
    pub published_ratio: Option<f64>,
    /// What the machine allows at best, computed beforehand.
    pub bound: Option<f64>,
    /// The rounds lie too far apart.
    pub noisy: bool,
    /// CPU seconds a second of the process that serves the case.
    pub server_cores: Option<f64>,
    /// The files it comes from, seen from the report's folder.
    pub raw: Vec<String>,
}

impl Cell {
    /// A number that was measured.
    #[must_use]
    pub fn new(case: &str, job: &str, metric: &str, unit: &str, measured: Measured) -> Self {
        let Measured { spread, runs, raw } = measured;
        Self {
            case: case.to_owned(),
            job: job.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            spread,
            runs,
            published: None,
            ratio: None,
            published_ratio: None,
            bound: None,
            noisy: spread.is_noisy(),
            server_cores: None,
            raw,
        }
    }
}

/// Rows of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Of the columns. The first column is words, the others are numbers.
    pub head: Vec<String>,
    /// As many words each as the head has. `-` stands for nothing.
    pub rows: Vec<Vec<String>>,
    /// Below it.
    pub note: String,
}

/// Lines or bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Unique in the report: letters, digits and `-`.
    pub id: String,
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// In the order of the legend.
    pub series: Vec<Series>,
    /// Values that are the same everywhere.
    pub rules: Vec<Rule>,
}

/// What an axis shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// With the unit.
    pub label: String,
    /// How numbers become places.
    pub scale: Scale,
}

/// How numbers become places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// Each step doubles.
    Log2,
    /// Each step is ten times as much.
    Log10,
    /// Places 0, 1, 2 ... with names; the values are bars side by side.
    Names(Vec<String>),
}

/// One line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// What kind of number it is.
    pub style: Style,
    /// From left to right.
    pub points: Vec<Point>,
}

/// What kind of number a series shows: each kind looks different from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Measured here: solid, with least and most.
    Measured,
    /// Published: hollow marks, thin.
    Published,
    /// Computed beforehand: dashed.
    Bound,
}

/// A value, and between what it lay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where, from left to right.
    pub x: f64,
    /// The median, or the only value.
    pub y: f64,
    /// Of the least and the most.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// A value that stands alone.
    #[must_use]
    pub const fn at(x: f64, y: f64) -> Self {
        Self { x, y, range: None }
    }

    /// A value with its spread.
    #[must_use]
    pub const fn of(x: f64, spread: Spread) -> Self {
        Self { x, y: spread.median, range: Some((spread.min, spread.max)) }
    }
}

/// A value with a name, the same everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// In the legend.
    pub name: String,
    /// On the upward axis.
    pub value: f64,
}
