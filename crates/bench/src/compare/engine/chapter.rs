//! The table of `engine`, a row for each case and load.

use super::array::OUTPUT;
use super::load::{Load, Measured};
use super::{Case, Options, loads};
use crate::model::{Cell, Chapter, Found, Table};

const NOTHING: &str = "-";

/// A number of each row.
struct Column {
    name: &'static str,
    unit: &'static str,
    places: usize,
    read: fn(&Measured) -> f64,
}

const COLUMNS: [Column; 5] = [
    Column { name: "iops", unit: "1/s", places: 0, read: |m| m.requests as f64 / m.seconds },
    Column {
        name: "CPU per request",
        unit: "us",
        places: 1,
        read: |m| m.engine_cpu_s * 1e6 / m.requests.max(1) as f64,
    },
    Column { name: "p50", unit: "us", places: 1, read: |m| m.p50_us },
    Column { name: "p99", unit: "us", places: 1, read: |m| m.p99_us },
    Column { name: "p99.9", unit: "us", places: 1, read: |m| m.p999_us },
];

pub(super) fn chapter(options: &Options, found: &Found) -> Chapter {
    let rows = || Case::all().flat_map(|case| loads().map(move |load| (case, load)));
    let cells: Vec<Cell> = rows()
        .flat_map(|(case, load)| COLUMNS.iter().filter_map(move |c| cell(found, case, load, c)))
        .collect();
    Chapter {
        name: "engine".to_owned(),
        title: "The engine alone".to_owned(),
        about: vec![format!(
            "Requests at random places from a thread of the same process, for {} ms each, on \
             members of {} MiB: four, or two for a mirror; chunk 512K. Nothing lies between \
             but the queue through which threads ask the engine, with a copy of the data. CPU \
             time is that of the process but for the thread that asks, by the kernel's \
             accounts: of the engine and of the kernel's workers.",
            options.run_ms,
            options.member_bytes >> 20
        )],
        says: Case::all().filter_map(|case| says(found, case)).collect(),
        tables: vec![table(found)],
        cells,
        ..Chapter::default()
    }
}

fn cell(found: &Found, case: Case, load: Load, column: &Column) -> Option<Cell> {
    let read =
        |text: &str| serde_json::from_str(text).ok().map(|measured| (column.read)(&measured));
    let measured = found.measured(&case.name(), &load.name(), OUTPUT, read)?;
    Some(Cell::new(&case.name(), &load.name(), column.name, column.unit, measured))
}

fn table(found: &Found) -> Table {
    let mut head = vec!["level and load".to_owned()];
    head.extend(COLUMNS.iter().map(|column| format!("{}, {}", column.name, column.unit)));
    let row = |case: Case, load: Load| {
        let cells = COLUMNS.iter().map(|column| {
            let cell = cell(found, case, load, column);
            cell.map_or_else(
                || NOTHING.to_owned(),
                |cell| {
                    let noisy = if cell.noisy { "~" } else { "" };
                    format!("{:.*}{noisy}", column.places, cell.spread.median)
                },
            )
        });
        std::iter::once(format!("{}, {}", case.name(), load.name())).chain(cells).collect()
    };
    let measured = found.cases();
    let cases = Case::all().filter(|case| measured.contains(&case.name().as_str()));
    Table {
        title: "Levels and loads".to_owned(),
        head,
        rows: cases.flat_map(|case| loads().map(move |load| row(case, load))).collect(),
        note: "Medians of all rounds; ~ marks those whose rounds lie far apart.".to_owned(),
    }
}

/// What small requests cost, one at a time.
fn says(found: &Found, case: Case) -> Option<String> {
    let [reads, writes] = [false, true].map(|writes| {
        let load = loads().find(|load| load.writes == writes)?;
        cell(found, case, load, &COLUMNS[1]).map(|cell| cell.spread.median)
    });
    Some(format!(
        "{}: a read of 4K takes {:.1} us of CPU time, a write {:.1}, one at a time.",
        case.name(),
        reads?,
        writes?
    ))
}
