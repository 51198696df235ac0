//! The chapter of `engine`: what levels keep of what has no RAID, and every number.

use braid_array::level::Level;

use super::EngineOptions;
use super::case::{EXPORTS, EngineCase, EnginePlace, all, levels, word};
use super::load::{OUTPUT, loads};
use crate::compare::numbers::Numbers;
use crate::compare::rates::{self, CPU, Compared, Figures, RATE, cells, every_number, of_fio};
use crate::compare::requests::Requests;
use crate::compare::words::number;
use crate::model::{Axis, Chapter, Found, Plot, Point, Rule, Series, Table};

/// Levels that are asked in the same way and compared with the same.
struct Way {
    title: String,
    cases: Vec<EngineCase>,
}

impl Way {
    /// The name of what all of it is compared with.
    fn baseline(&self) -> String {
        self.cases.first().map(|case| case.baseline()).unwrap_or_default()
    }
}

fn ways(options: &EngineOptions) -> Vec<Way> {
    let places = EnginePlace::ALL.into_iter().map(|place| Way {
        title: format!("within the process, on {place}"),
        cases: place.within(options).collect(),
    });
    let exports = EXPORTS.into_iter().map(|export| Way {
        title: format!("over {}", export.name),
        cases: levels(options).map(|level| EngineCase::Over(level, export)).collect(),
    });
    places.chain(exports).collect()
}

/// Reads what runs left: the histogram's figures, or fio's.
fn read(found: &Found) -> Numbers {
    of_fio(found).read(found, [OUTPUT], |run, [text]| {
        serde_json::from_str(text).map_or_else(|_| Vec::new(), |it: Figures| it.readings(run))
    })
}

pub(super) fn chapter(options: &EngineOptions, found: &Found) -> Chapter {
    let numbers = read(found);
    let mut cases = all(options);
    cases.retain(|case| numbers.has(case));
    let rows = |case: &EngineCase| {
        let case = *case;
        loads().map(move |load| Compared {
            case: case.to_string(),
            to: case.baseline(),
            load: load.to_string(),
        })
    };
    let ways = ways(options);
    let measured = || ways.iter().filter(|way| way.cases.iter().any(|case| cases.contains(case)));
    let mut tables: Vec<Table> = measured().map(|way| ratios(&numbers, way)).collect();
    let (within, over): (Vec<EngineCase>, Vec<EngineCase>) =
        cases.iter().partition(|case| case.is_within());
    let note = "Medians of all rounds; ~ marks those whose rounds lie far apart.";
    for (title, cases) in [("Within the process", within), ("Over exports", over)] {
        let rows: Vec<Compared> = cases.iter().flat_map(rows).collect();
        let words = (title, "case and load", &["ratio", "to"][..]);
        tables.extend(every_number(&numbers, words, &rows, note).unless_empty());
    }
    Chapter {
        title: "The engine alone, and over its exports".to_owned(),
        about: about(options),
        says: measured().flat_map(|way| says(&numbers, way)).collect(),
        cells: cases.iter().flat_map(rows).flat_map(|one| cells(&numbers, &one)).collect(),
        tables,
        plots: loads().filter_map(|load| plot(options, &numbers, load)).collect(),
        ..Chapter::default()
    }
}

/// Levels beside each other under a load.
fn plot(options: &EngineOptions, numbers: &Numbers, load: Requests) -> Option<Plot> {
    let bars = |title: String, case: &dyn Fn(Level) -> EngineCase| {
        let point = |(place, level): (usize, Level)| {
            Some(Point::of(place as f64, numbers.spread((case(level), load, RATE))?))
        };
        Series::measured(title, levels(options).enumerate().filter_map(point))
    };
    let within = |level| EngineCase::Within(level, EnginePlace::Memory);
    let mut series = vec![bars("within the process".to_owned(), &within)];
    for export in EXPORTS {
        let title = format!("over {}", export.name);
        series.push(bars(title, &|level| EngineCase::Over(level, export)));
    }
    let rule = |case: EngineCase| match case {
        // What is no server is so much faster that a plot cannot show both.
        EngineCase::Beside(baseline) if baseline.program.is_some() => {
            Some(Rule::new(baseline.name, numbers.median((case, load, RATE))?))
        }
        _ => None,
    };
    let id = format!("engine-{}", load.to_string().to_lowercase().replace(' ', "-"));
    let title = format!("{load}, members of memory");
    let names = levels(options).map(|level| level.name());
    let axes = [Axis::names("", names), Axis::linear("requests a second")];
    let rules = EnginePlace::Memory.cases(options).into_iter().filter_map(rule);
    Plot::new(id, title, axes, series).with_rules(rules).if_measured()
}

fn about(options: &EngineOptions) -> Vec<String> {
    let EngineOptions { run_ms, area_bytes, .. } = options;
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

/// Compares levels with what has no RAID.
fn ratios(numbers: &Numbers, way: &Way) -> Table {
    let baseline = way.baseline();
    let head = |case: &EngineCase| match case {
        EngineCase::Within(level, _) | EngineCase::Over(level, _) => {
            format!("RAID {}", word(*level))
        }
        EngineCase::Stripes => "RAID 5, 1M a stripe".to_owned(),
        EngineCase::Beside(_) | EngineCase::Copies => case.to_string(),
    };
    let cases = way.cases.iter().map(|case| (head(case), case.to_string()));
    let title = format!("Rate {}, by that of {baseline}", way.title);
    let note = "Medians of the ratios of all rounds, in brackets the least and the most.";
    rates::ratios(numbers, (title, RATE, &baseline), loads(), cases, note)
}

/// Says where a way is fastest and slowest beside what has no RAID, and what small requests cost.
fn says(numbers: &Numbers, way: &Way) -> Vec<String> {
    let baseline = way.baseline();
    let mut all = Vec::new();
    for case in &way.cases {
        for load in loads() {
            let ratio = numbers.ratio((case, load, RATE), &baseline);
            all.extend(ratio.map(|ratio| (ratio.spread.median, format!("{case}, {load}"))));
        }
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut says = Vec::new();
    if let Some(((least, slowest), (most, fastest))) = all.first().zip(all.last()) {
        says.push(format!(
            "Rates {} are from {} ({slowest}) to {} ({fastest}) of those of {baseline}.",
            way.title,
            number(*least),
            number(*most)
        ));
    }
    let cost = |case: &EngineCase| {
        let [read, written] = [false, true].map(|writes| {
            let load = loads().find(|load| load.writes() == writes)?;
            numbers.median((case, load, CPU))
        });
        Some(format!("{} and {} by {case}", number(read?), number(written?)))
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
