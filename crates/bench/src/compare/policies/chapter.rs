//! The chapter of `policies`: what each costs beside `resync`, and every number.

use super::Options;
use super::case::{Case, Load, Place, Policy};
use crate::compare::figures::{Column, Numbers, RATE, heads, number, of_fio, spread_words};
use crate::model::{Axis, Chapter, Found, Plot, Point, Rule, Scale, Series, Style, Table};

/// What a request costs: the reciprocal of the rate, whatever is under way at once.
const TIME: Column =
    Column { name: "time per request", unit: "us", read: |of| Some(1e6 / of.iops) };

pub(super) fn chapter(options: &Options, found: &Found) -> Chapter {
    let numbers = Numbers::of(found, of_fio);
    let cases: Vec<Case> = Place::ALL
        .into_iter()
        .flat_map(Place::cases)
        .filter(|case| numbers.has(&case.name()))
        .collect();
    let cells = cases.iter().flat_map(|case| {
        Load::ALL.map(|load| numbers.cells(&case.name(), &case.anchor().name(), load.name()))
    });
    let places = || Place::ALL.into_iter().filter(|place| cases.iter().any(|c| c.place == *place));
    let mut tables: Vec<Table> = places().map(|place| costs(&numbers, place)).collect();
    if !cases.is_empty() {
        tables.push(every_number(&numbers, &cases));
    }
    Chapter {
        name: "policies".to_owned(),
        title: "What consistency policies cost".to_owned(),
        about: about(options),
        says: places().flat_map(|place| says(&numbers, place)).collect(),
        cells: cells.flatten().collect(),
        tables,
        plots: places().map(|place| plot(&numbers, place)).collect(),
        ..Chapter::default()
    }
}

fn about(options: &Options) -> Vec<String> {
    let Options { run_ms, member_bytes, .. } = options;
    vec![format!(
        "RAID 5 on four members of {} MiB, chunk 512K, over NBD by fio at random places of all \
         that the array holds, for {run_ms} ms each; the journal is as large as a member and lies \
         where members lie. Members of memory: no flushes. Files: a flush after as many writes as \
         are under way at once. A journal that writes back brings all that it has in place after \
         each run, before the next policy is measured: that counts in its CPU time, not in its \
         rate.",
        member_bytes >> 20
    )]
}

/// The policies that cost something.
fn others() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter().filter(|policy| *policy != Policy::Resync)
}

fn costs(numbers: &Numbers, place: Place) -> Table {
    let row = |load: Load| {
        let cost = |policy: Policy| {
            let case = Case { policy, place };
            let to = case.anchor().name();
            spread_words(numbers.ratio(&case.name(), &to, load.name(), TIME).as_ref())
        };
        std::iter::once(load.name().to_owned()).chain(others().map(cost)).collect()
    };
    let names = others().map(|policy| policy.name().to_owned());
    Table {
        title: format!("Time per request by that of resync, members of {}", place.name()),
        head: std::iter::once("load".to_owned()).chain(names).collect(),
        rows: Load::ALL.map(row).to_vec(),
        note:
            "Medians of the ratios of all rounds, in brackets the least and the most; above 1 is \
               slower than resync."
                .to_owned(),
    }
}

fn every_number(numbers: &Numbers, cases: &[Case]) -> Table {
    let row = |case: &Case, load: Load| {
        let ratio = numbers.ratio(&case.name(), &case.anchor().name(), load.name(), RATE);
        let mut row = vec![format!("{}, {}", case.name(), load.name())];
        row.extend(numbers.row(&case.name(), load.name()));
        row.push(spread_words(ratio.as_ref()));
        row
    };
    let mut head = vec!["policy and load".to_owned()];
    head.extend(heads());
    head.push("rate by that of resync".to_owned());
    Table {
        title: "Policies and loads".to_owned(),
        head,
        rows: cases.iter().flat_map(|case| Load::ALL.map(|load| row(case, load))).collect(),
        note:
            "Medians of all rounds; ~ marks those whose rounds lie far apart. Latencies of reads \
               and writes are those of writes."
                .to_owned(),
    }
}

fn says(numbers: &Numbers, place: Place) -> Vec<String> {
    let sentence = |policy: Policy| {
        let case = Case { policy, place };
        let cost = |load: Load| {
            let to = case.anchor().name();
            let ratio = numbers.ratio(&case.name(), &to, load.name(), TIME)?;
            Some(format!("{} times ({})", number(ratio.spread.median), load.name()))
        };
        let costs: Vec<String> = Load::ALL.into_iter().filter_map(cost).collect();
        let name = case.name();
        (!costs.is_empty())
            .then(|| format!("A request takes by {name} that of resync: {}.", costs.join(", ")))
    };
    others().filter_map(sentence).collect()
}

fn plot(numbers: &Numbers, place: Place) -> Plot {
    let bars = |policy: Policy| {
        let case = Case { policy, place };
        let to = case.anchor().name();
        let point = |(at, load): (usize, Load)| {
            let ratio = numbers.ratio(&case.name(), &to, load.name(), TIME)?;
            Some(Point::of(at as f64, ratio.spread))
        };
        let points = Load::ALL.into_iter().enumerate().filter_map(point).collect();
        Series { name: policy.name().to_owned(), style: Style::Measured, points }
    };
    let loads = Load::ALL.map(|load| load.name().to_owned()).to_vec();
    Plot {
        id: format!("policies-{}", place.name()),
        title: format!("Policies, members of {}", place.name()),
        x: Axis { label: String::new(), scale: Scale::Names(loads) },
        y: Axis { label: "time per request by that of resync".to_owned(), scale: Scale::Linear },
        series: others().map(bars).collect(),
        rules: vec![Rule { name: "resync".to_owned(), value: 1.0 }],
    }
}
