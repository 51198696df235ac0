//! A report that is made up: numbers of no machine, names of no good will.

#![allow(dead_code, reason = "each test file uses a part")]

use braid_bench::machine::Machine;
use braid_bench::model::{
    Axis, Cell, Chapter, Gap, Measured, Plot, Point, Published, Rule, Scale, Series, Spread, Style,
    Table,
};
use serde_json::json;

/// A name that would be a script, a link, a column or a command of the terminal.
pub(crate) const HOSTILE: &str =
    "</title><script>alert(1)</script><img src=http://evil.example/x onerror=y> | `a` \u{1b}[31m&";

/// A test that cannot run says so, and fails where everything is meant to be there.
pub(crate) fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test} cannot run: {reason}");
    eprintln!("SKIPPED {test}: {reason}");
}

pub(crate) fn machine() -> Machine {
    Machine {
        cpu: "Some Processor 9000 @ 2.10GHz".to_owned(),
        cores: 2,
        memory_bytes: 25_300_000_000,
        kernel: "6.1.0-18-amd64".to_owned(),
        braid: "0.1.0".to_owned(),
        tools: vec!["fio-3.33".to_owned(), "bonnie++ 2.00a".to_owned()],
        storage: "4 files in /var/tmp on ext4".to_owned(),
    }
}

/// Lines, bars and wide tables; a chapter in which nothing was measured; hostile names.
pub(crate) fn chapters() -> Vec<Chapter> {
    vec![levels(), chunks(), nothing()]
}

fn levels() -> Chapter {
    let levels = ["no RAID", "RAID 0", "RAID 1", "RAID 5", "RAID 6", "RAID 10", "far2", "offset2"];
    let jobs = ["read", "write", "randread", "randwrite", "rw", "randrw"];
    let value = |job: usize, level: usize| 900.0 / (1.0 + job as f64) + 30.0 * level as f64;
    let cells = jobs.iter().enumerate().flat_map(|(job, name)| {
        levels.iter().enumerate().map(move |(level, case)| {
            let value = value(job, level);
            let rounds = [value * 0.8, value, value * if level == 3 { 1.4 } else { 1.02 }];
            let mut cell = cell(case, name, &rounds);
            cell.published = (level != 7).then_some(value * 0.9);
            cell.ratio = Some(value / 900.0);
            cell
        })
    });
    let cells: Vec<Cell> = cells.collect();
    Chapter {
        name: "levels".to_owned(),
        title: "Which level is how fast".to_owned(),
        about: vec![
            "A job file of eight jobs on ext4 over each level, as it was published.".into(),
        ],
        says: vec![
            "RAID 5 writes 0.31 times as much as one member (published: 0.40).".to_owned(),
            "Braid loses at random reads: 0.8 of one member.".to_owned(),
        ],
        tables: vec![wide_table(&levels, &cells)],
        plots: vec![bars(&levels, &cells), many_bars(&levels, &cells)],
        cells,
        gaps: vec![Gap {
            case: Some("RAID 6".to_owned()),
            job: Some("randrw".to_owned()),
            reason: "fio: not installed".to_owned(),
            next: "apt-get install fio".to_owned(),
        }],
        commands: vec![
            "fio --output-format=json jobs.fio ".to_owned() + &"--long-word ".repeat(30),
        ],
        published: vec![Published {
            case: "RAID 7".to_owned(),
            job: "read".to_owned(),
            metric: "bandwidth".to_owned(),
            value: 12.0,
        }],
        extra: Some(json!([{"level": 5}])),
    }
}

fn cell(case: &str, job: &str, rounds: &[f64]) -> Cell {
    let spread = Spread::of(rounds).expect("rounds");
    let raw = (0..rounds.len()).map(|round| format!("raw/levels/{round}.fio.json")).collect();
    Cell::new(case, job, "bandwidth", "MB/s", Measured { spread, runs: rounds.len(), raw })
}

fn wide_table(levels: &[&str], cells: &[Cell]) -> Table {
    let two = |level: &&str| [(*level).to_owned(), format!("{level}, published")];
    let head: Vec<String> =
        std::iter::once("job".to_owned()).chain(levels.iter().flat_map(two)).collect();
    let row = |cells: &[Cell]| {
        let words = cells.iter().flat_map(|cell| {
            let mark = if cell.noisy { "~" } else { "" };
            let published = cell.published.map_or("-".to_owned(), |value| format!("{value:.1}"));
            [format!("{:.1}{mark}", cell.spread.median), published]
        });
        std::iter::once(cells[0].job.clone()).chain(words).collect()
    };
    let rows = cells.chunks(levels.len()).map(row).collect();
    let note = "Published on a machine with seven disks.".to_owned();
    Table { title: "MB/s of each job".to_owned(), head, rows, note }
}

fn bars(levels: &[&str], cells: &[Cell]) -> Plot {
    let of_job = |style: Style, value: &dyn Fn(&Cell) -> Point| {
        let points = cells.iter().take(levels.len()).map(value).collect();
        let name = if style == Style::Published { "read, published" } else { "read" };
        Series { name: name.to_owned(), style, points }
    };
    let place = |cell: &Cell| levels.iter().position(|level| *level == cell.case).unwrap_or(0);
    Plot {
        id: "levels-read".to_owned(),
        title: "Reads in a row, of all levels, beside what was published of the same levels".into(),
        x: Axis { label: "level".to_owned(), scale: names(levels) },
        y: Axis { label: "MB/s".to_owned(), scale: Scale::Linear },
        series: vec![
            of_job(Style::Measured, &|cell| Point::of(place(cell) as f64, cell.spread)),
            of_job(Style::Published, &|cell| {
                Point::at(place(cell) as f64, cell.published.unwrap_or(f64::NAN))
            }),
        ],
        rules: vec![Rule { name: "one member".to_owned(), value: 700.0 }],
    }
}

fn many_bars(levels: &[&str], cells: &[Cell]) -> Plot {
    let series = |of_job: &[Cell]| Series {
        name: of_job[0].job.clone(),
        style: Style::Measured,
        points: (0..).zip(of_job).map(|(x, cell)| Point::of(f64::from(x), cell.spread)).collect(),
    };
    Plot {
        id: "levels-all".to_owned(),
        title: "All jobs".to_owned(),
        x: Axis { label: "level".to_owned(), scale: names(levels) },
        y: Axis { label: "MB/s".to_owned(), scale: Scale::Log10 },
        series: cells.chunks(levels.len()).map(series).collect(),
        rules: vec![],
    }
}

fn names(names: &[&str]) -> Scale {
    Scale::Names(names.iter().map(|name| (*name).to_owned()).collect())
}

fn chunks() -> Chapter {
    Chapter {
        name: "chunk".to_owned(),
        title: "Which chunk size".to_owned(),
        tables: vec![Table {
            title: HOSTILE.to_owned(),
            head: vec![HOSTILE.to_owned(), "4K".to_owned()],
            rows: vec![vec![HOSTILE.to_owned(), "1.5".to_owned()], vec!["64K".to_owned()]],
            note: HOSTILE.to_owned(),
        }],
        plots: vec![over_sizes(), over_time(), long_names()],
        ..Chapter::default()
    }
}

fn axis(label: &str, scale: Scale) -> Axis {
    Axis { label: label.to_owned(), scale }
}

fn over_sizes() -> Plot {
    let line = |style: Style, name: &str, factor: f64| {
        let point = |size: f64| {
            let value = factor * size.sqrt();
            let range = (style == Style::Measured).then_some((value * 0.8, value * 1.1));
            Point { x: size, y: value, range }
        };
        let points = (12..=20).map(f64::from).map(f64::exp2).map(point).collect();
        Series { name: name.to_owned(), style, points }
    };
    Plot {
        id: "chunk-sizes".to_owned(),
        title: "Bandwidth over the size of a request".to_owned(),
        x: axis("request, bytes", Scale::Log2),
        y: axis("MB/s", Scale::Log10),
        series: vec![
            line(Style::Measured, "chunk 4K", 0.5),
            line(Style::Measured, "chunk 64K", 0.9),
            line(Style::Measured, "chunk 1M", 1.1),
            line(Style::Published, "chunk 64K, published", 0.7),
            line(Style::Bound, "what the members allow", 1.6),
        ],
        rules: vec![Rule { name: "one member".to_owned(), value: 300.0 }],
    }
}

fn over_time() -> Plot {
    let at = |s: f64| Point::at(s, 80.0 + 60.0 * (s / 9.0).sin());
    let points = (0..200).map(f64::from).map(at).collect();
    Plot {
        id: "chunk-time".to_owned(),
        title: HOSTILE.to_owned(),
        x: axis("s", Scale::Linear),
        y: axis(HOSTILE, Scale::Linear),
        series: vec![Series { name: HOSTILE.to_owned(), style: Style::Measured, points }],
        rules: vec![],
    }
}

fn long_names() -> Plot {
    let cases = ["array-direct-over-nbd", "image file on ext4", HOSTILE, "b", "c"];
    Plot {
        id: "chunk-long-names".to_owned(),
        title: "Long names".to_owned(),
        x: axis("", names(&cases)),
        y: axis("1/s", Scale::Linear),
        series: vec![Series {
            name: "limit".to_owned(),
            style: Style::Bound,
            points: vec![Point::at(0.0, 12_000.0), Point::at(4.0, 90_000.0)],
        }],
        rules: vec![],
    }
}

fn nothing() -> Chapter {
    Chapter {
        name: "members".to_owned(),
        title: "Whether more disks help".to_owned(),
        gaps: vec![Gap {
            case: None,
            job: None,
            reason: HOSTILE.to_owned(),
            next: "apt-get install bonnie++".to_owned(),
        }],
        plots: vec![Plot {
            id: "members-empty".to_owned(),
            title: "Nothing".to_owned(),
            x: Axis { label: "members".to_owned(), scale: Scale::Log2 },
            y: Axis { label: "MB/s".to_owned(), scale: Scale::Log10 },
            series: vec![],
            rules: vec![],
        }],
        ..Chapter::default()
    }
}
