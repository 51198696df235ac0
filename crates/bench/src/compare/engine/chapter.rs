//! The chapter of `engine`: what levels keep of what has no RAID, and every number.

use super::Options;
use super::case::{Case, Place, levels, word};
use super::exports::Export;
use super::load::{Load, OUTPUT, loads};
use super::plots::plots;
use crate::compare::figures::{CPU, Figures, Numbers, RATE, heads, number, of_fio, spread_words};
use crate::model::{Chapter, Found, Run, Table};

/// Levels that are asked in the same way and compared with the same.
struct Way {
    title: String,
    cases: Vec<Case>,
}

fn ways(options: &Options) -> Vec<Way> {
    let places = Place::ALL.into_iter().map(|place| Way {
        title: format!("within the process, on {}", place.name()),
        cases: place.within(options).collect(),
    });
    let exports = Export::ALL.into_iter().map(|export| Way {
        title: format!("over {}", export.name()),
        cases: levels(options).map(|level| Case::Over(level, export)).collect(),
    });
    places.chain(exports).collect()
}

/// What a run left: the histogram's figures, or fio's.
fn read(found: &Found, run: &Run) -> Option<(String, Figures)> {
    let within = || {
        let figures = serde_json::from_str(&found.text(run, OUTPUT)?).ok()?;
        Some((run.file(OUTPUT)?.to_owned(), figures))
    };
    within().or_else(|| of_fio(found, run))
}

pub(super) fn chapter(options: &Options, found: &Found) -> Chapter {
    let numbers = Numbers::of(found, read);
    let cases: Vec<Case> = Place::ALL
        .into_iter()
        .flat_map(|place| place.cases(options))
        .filter(|case| numbers.has(&case.name()))
        .collect();
    let cells = cases.iter().flat_map(|case| {
        let of_load = |load: Load| numbers.cells(&case.name(), &case.anchor().name(), &load.name());
        loads().flat_map(of_load)
    });
    let ways = ways(options);
    let measured = || ways.iter().filter(|way| way.cases.iter().any(|case| cases.contains(case)));
    let mut tables: Vec<Table> = measured().map(|way| ratios(&numbers, way)).collect();
    let (within, over): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_within());
    for (title, cases) in [("Within the process", within), ("Over exports", over)] {
        if !cases.is_empty() {
            tables.push(every_number(&numbers, title, &cases));
        }
    }
    Chapter {
        name: "engine".to_owned(),
        title: "The engine alone, and over its exports".to_owned(),
        about: about(options),
        says: measured().flat_map(|way| says(&numbers, way)).collect(),
        cells: cells.collect(),
        tables,
        plots: plots(options, &numbers),
        ..Chapter::default()
    }
}

fn about(options: &Options) -> Vec<String> {
    let Options { run_ms, area_bytes, .. } = options;
    vec![
        format!(
            "Requests at random places within {} MiB, for {run_ms} ms each, on four members, or \
             two for a mirror; chunk 512K, or 256K on five members. All of it was written before.",
            area_bytes >> 20
        ),
        "Within the process: the engine's own thread makes the requests, with nothing between \
         them and the machine. Latencies are a histogram's. CPU time is that of the whole \
         process, its share of making requests included. Beside members of memory: copies of as \
         much by one thread, the bound of what one thread can do."
            .to_owned(),
        "Over exports: arrays on members of memory, each served by a process of its own, and what \
         has no RAID, asked by fio: files and devices by libaio past the page cache, NBD by fio's \
         own client over one connection. Over vhost-user, for which fio has no engine, by a driver \
         of one ring, which sleeps while nothing is answered. Latencies count from sending a \
         request. CPU time is that of the process that serves, by the kernel's accounts \
         (hundredths of a second); what the kernel's own threads do for a loop device \
         is in none of them."
            .to_owned(),
    ]
}

/// What levels keep of what has no RAID.
fn ratios(numbers: &Numbers, way: &Way) -> Table {
    let anchor = way.cases.first().map(|case| case.anchor().name()).unwrap_or_default();
    let row = |load: Load| {
        let ratio = |case: &Case| {
            let ratio = numbers.ratio(&case.name(), &anchor, &load.name(), RATE);
            spread_words(ratio.as_ref())
        };
        std::iter::once(load.name()).chain(way.cases.iter().map(ratio)).collect()
    };
    let name = |case: &Case| match case {
        Case::Within(level, _) | Case::Over(level, _) => format!("RAID {}", word(*level)),
        Case::Stripes => "RAID 5, 1M a stripe".to_owned(),
        Case::Beside(_) | Case::Copies => case.name(),
    };
    Table {
        title: format!("Rate {}, by that of {anchor}", way.title),
        head: std::iter::once("load".to_owned()).chain(way.cases.iter().map(name)).collect(),
        rows: loads().map(row).collect(),
        note: "Medians of the ratios of all rounds, in brackets the least and the most.".to_owned(),
    }
}

/// A row for each case and load.
fn every_number(numbers: &Numbers, title: &str, cases: &[&Case]) -> Table {
    let row = |case: &Case, load: Load| {
        let anchor = case.anchor().name();
        let ratio = numbers.ratio(&case.name(), &anchor, &load.name(), RATE);
        let mut row = vec![format!("{}, {}", case.name(), load.name())];
        row.extend(numbers.row(&case.name(), &load.name()));
        row.push(spread_words(ratio.as_ref()));
        row.push(anchor);
        row
    };
    let mut head = vec!["case and load".to_owned()];
    head.extend(heads());
    head.extend(["ratio", "to"].map(str::to_owned));
    Table {
        title: title.to_owned(),
        head,
        rows: cases.iter().flat_map(|case| loads().map(|load| row(case, load))).collect(),
        note: "Medians of all rounds; ~ marks those whose rounds lie far apart.".to_owned(),
    }
}

/// Where a way is fastest and slowest beside what has no RAID, and what small requests cost.
fn says(numbers: &Numbers, way: &Way) -> Vec<String> {
    let Some(anchor) = way.cases.first().map(|case| case.anchor().name()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for case in &way.cases {
        for load in loads() {
            if let Some(ratio) = numbers.ratio(&case.name(), &anchor, &load.name(), RATE) {
                let what = format!("{}, {}", case.name(), load.name());
                all.push((ratio.spread.median, what));
            }
        }
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut says = Vec::new();
    if let Some(((least, slowest), (most, fastest))) = all.first().zip(all.last()) {
        says.push(format!(
            "Rates {} are from {} ({slowest}) to {} ({fastest}) of those of {anchor}.",
            way.title,
            number(*least),
            number(*most)
        ));
    }
    let cost = |case: &Case| {
        let [read, written] = [false, true].map(|writes| {
            let load = loads().find(|load| load.writes == writes)?;
            Some(numbers.measured(&case.name(), &load.name(), CPU)?.spread.median)
        });
        Some(format!("{} and {} by {}", number(read?), number(written?), case.name()))
    };
    let costs: Vec<String> = way.cases.iter().filter_map(cost).collect();
    if !costs.is_empty() {
        says.push(format!(
            "A read and a write of 4K, one at a time, take in us of CPU time: {}.",
            costs.join(", ")
        ));
    }
    says
}
