//! Chapter of a comparison: the same data become HTML, Markdown, CSV and JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::found::{Gap, Measured, Spread};

/// The part of the report that belongs to one comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chapter {
    /// The name of the comparison.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Subject, first publication, and its machine.
    pub about: Vec<String>,
    /// Sentences, derived from the numbers: two or three sentences, and where Braid loses.
    pub says: Vec<String>,
    /// Tables in the shape in which they were published, with what was published beside what was
    /// found.
    pub tables: Vec<Table>,
    /// Plots.
    pub plots: Vec<Plot>,
    /// Every number of the tables, for machines.
    pub cells: Vec<Cell>,
    /// Gaps: what could not be measured.
    pub gaps: Vec<Gap>,
    /// The command lines that were run, each once.
    pub commands: Vec<String>,
    /// Everything that was published, whether there is a cell for it or not.
    pub published: Vec<Published>,
    /// Values for machines: an array, whose entries join `results` of `results.json`.
    pub extra: Option<Value>,
}

/// A number as it was published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Name of the case.
    pub case: String,
    /// Name of the job.
    pub job: String,
    /// Metric: `bandwidth`, `iops`, `resync` ...
    pub metric: String,
    /// Value in the unit of the cell with the same case, job and metric.
    pub value: f64,
}

impl Published {
    /// A number that was published of a case and a job.
    pub fn new(case: &str, job: &str, metric: &str, value: f64) -> Self {
        let [case, job, metric] = [case, job, metric].map(str::to_owned);
        Self { case, job, metric, value }
    }
}

/// A number with everything that belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the case.
    pub case: String,
    /// Name of the job.
    pub job: String,
    /// Metric: `bandwidth`, `iops`, `resync` ...
    pub metric: String,
    /// `MB/s`, `1/s` ...
    pub unit: String,
    /// All rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// Count.
    pub runs: usize,
    /// The same cell where it was published.
    pub published: Option<f64>,
    /// Ratio to the case that the others are compared with.
    pub ratio: Option<f64>,
    /// The same, as published.
    pub published_ratio: Option<f64>,
    /// Most that the machine allows, computed beforehand.
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
    pub fn new(case: &str, job: &str, metric: &str, unit: &str, measured: Measured) -> Self {
        let Measured { spread, runs, raw } = measured;
        Self {
            case: case.to_owned(),
            job: job.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            spread,
            runs,
            noisy: spread.is_noisy(),
            raw,
            ..Self::default()
        }
    }
}

/// Rows of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Heads of the columns. The first column is words, the others are numbers.
    pub head: Vec<String>,
    /// Rows of as many words as the head has. `-` stands for nothing.
    pub rows: Vec<Vec<String>>,
    /// Below it.
    pub note: String,
}

/// Head of a column, and the word of each row.
pub type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

impl Table {
    /// A table of columns.
    pub fn of_columns<R>(
        title: impl Into<String>,
        rows: impl IntoIterator<Item = R>,
        columns: &[Column<'_, R>],
        note: impl Into<String>,
    ) -> Self {
        let row = |row: R| columns.iter().map(|(_, word)| word(&row)).collect();
        let head = columns.iter().map(|(head, _)| *head);
        Self::new(title, head, rows.into_iter().map(row), note)
    }

    /// A table of words that belong to a row and a column; the first column names the rows.
    pub fn grid<C, R>(
        title: impl Into<String>,
        corner: &str,
        columns: impl IntoIterator<Item = (impl Into<String>, C)>,
        rows: impl IntoIterator<Item = (impl Into<String>, R)>,
        word: impl Fn(&R, &C) -> String,
        note: impl Into<String>,
    ) -> Self {
        let (heads, columns): (Vec<String>, Vec<C>) =
            columns.into_iter().map(|(head, column)| (head.into(), column)).unzip();
        let row = |(name, row): (_, R)| {
            let words = columns.iter().map(|column| word(&row, column));
            std::iter::once(Into::into(name)).chain(words).collect()
        };
        let head = std::iter::once(corner.to_owned()).chain(heads);
        Self::new(title, head, rows.into_iter().map(row), note)
    }

    /// A table of these rows.
    pub fn new(
        title: impl Into<String>,
        head: impl IntoIterator<Item = impl Into<String>>,
        rows: impl IntoIterator<Item = Vec<String>>,
        note: impl Into<String>,
    ) -> Self {
        Self {
            title: title.into(),
            head: head.into_iter().map(Into::into).collect(),
            rows: rows.into_iter().collect(),
            note: note.into(),
        }
    }

    /// The table, unless it has no rows.
    pub fn unless_empty(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }
}

/// Lines or bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Unique in the report: letters, digits and `-`.
    pub id: String,
    /// Above it.
    pub title: String,
    /// Direction from left to right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Series in the order of the legend.
    pub series: Vec<Series>,
    /// Values that are the same everywhere.
    pub rules: Vec<Rule>,
}

impl Plot {
    /// A plot over these axes, from left to right and upwards, without rules.
    pub fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        [x, y]: [Axis; 2],
        series: impl IntoIterator<Item = Series>,
    ) -> Self {
        let series = series.into_iter().collect();
        Self { id: id.into(), title: title.into(), x, y, series, rules: Vec::new() }
    }

    /// The same with values that are the same everywhere.
    pub fn with_rules(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), ..self }
    }

    /// The plot, unless nothing in it was measured.
    pub fn if_measured(self) -> Option<Self> {
        let has_points = |one: &Series| one.style == Style::Measured && !one.points.is_empty();
        self.series.iter().any(has_points).then_some(self)
    }
}

/// Axis of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Label with the unit.
    pub label: String,
    /// Scale of the numbers.
    pub scale: Scale,
}

impl Axis {
    /// Scale from 0.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// Each step doubles.
    pub fn log2(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log2 }
    }

    /// Places with names.
    pub fn names(
        label: impl Into<String>,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { label: label.into(), scale: Scale::Names(names) }
    }
}

/// Scale of the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Scale from 0.
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
    /// Name in the legend.
    pub name: String,
    /// Kind of number.
    pub style: Style,
    /// Direction from left to right.
    pub points: Vec<Point>,
}

impl Series {
    /// Numbers of one kind under a name.
    pub fn new(
        name: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = Point>,
    ) -> Self {
        Self { name: name.into(), style, points: points.into_iter().collect() }
    }

    /// Creates a series of what was measured here.
    pub fn measured(name: impl Into<String>, points: impl IntoIterator<Item = Point>) -> Self {
        Self::new(name, Style::Measured, points)
    }
}

/// Kind of number that a series shows: each kind looks different from the others.
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
    /// Range from the least to the most.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// A value that stands alone.
    pub const fn at(x: f64, y: f64) -> Self {
        Self { x, y, range: None }
    }

    /// A value with its spread.
    pub const fn of(x: f64, spread: Spread) -> Self {
        Self { x, y: spread.median, range: Some((spread.min, spread.max)) }
    }
}

/// A value with a name, the same everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name in the legend.
    pub name: String,
    /// Value on the upward axis.
    pub value: f64,
}

impl Rule {
    /// A value under a name.
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value }
    }
}
