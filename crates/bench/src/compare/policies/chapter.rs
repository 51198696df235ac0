//! The chapter of `policies`: what each costs beside `resync`, and every number.

use super::PolicyOptions;
use super::case::{Policy, PolicyCase, PolicyLoad, PolicyPlace};
use crate::compare::numbers::Numbers;
use crate::compare::rates::{self, Compared, TIME, cells, every_number, of_fio};
use crate::compare::words::number;
use crate::model::{Axis, Chapter, Found, Measured, Plot, Point, Rule, Series, Table};

pub(super) fn chapter(options: &PolicyOptions, found: &Found) -> Chapter {
    let numbers = of_fio(found);
    let mut cases: Vec<PolicyCase> = PolicyCase::all().collect();
    cases.retain(|case| numbers.has(case));
    let row = |case: &PolicyCase, load: PolicyLoad| Compared {
        case: case.to_string(),
        to: baseline(case.place),
        load: load.to_string(),
    };
    let rows: Vec<Compared> =
        cases.iter().flat_map(|case| PolicyLoad::ALL.map(|load| row(case, load))).collect();
    let places =
        || PolicyPlace::ALL.into_iter().filter(|place| cases.iter().any(|c| c.place == *place));
    let mut tables: Vec<Table> = places().map(|place| costs(&numbers, place)).collect();
    let words = ("Policies and loads", "policy and load", &["rate by that of resync"][..]);
    let note = "Medians of all rounds; ~ marks those whose rounds lie far apart. Latencies of \
                reads and writes are those of writes.";
    tables.extend(every_number(&numbers, words, &rows, note).unless_empty());
    Chapter {
        title: "What consistency policies cost".to_owned(),
        about: about(options),
        says: places().flat_map(|place| says(&numbers, place)).collect(),
        cells: rows.iter().flat_map(|row| cells(&numbers, row)).collect(),
        tables,
        plots: places().map(|place| plot(&numbers, place)).collect(),
        ..Chapter::default()
    }
}

fn about(options: &PolicyOptions) -> Vec<String> {
    let PolicyOptions { run_ms, member_bytes, .. } = options;
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

/// The cases that cost something.
fn others(place: PolicyPlace) -> impl Iterator<Item = PolicyCase> {
    place.cases().into_iter().filter(|case| case.policy != Policy::Resync)
}

/// The name of what the others are compared with.
fn baseline(place: PolicyPlace) -> String {
    PolicyCase { policy: Policy::Resync, place }.to_string()
}

fn cost(numbers: &Numbers, case: PolicyCase, load: PolicyLoad) -> Option<Measured> {
    numbers.ratio((case, load, TIME), baseline(case.place))
}

fn costs(numbers: &Numbers, place: PolicyPlace) -> Table {
    let title = format!("Time per request by that of resync, members of {place}");
    let cases = others(place).map(|case| (case.policy.to_string(), case.to_string()));
    let note = "Medians of the ratios of all rounds, in brackets the least and the most; above 1 \
                is slower than resync.";
    rates::ratios(numbers, (title, TIME, &baseline(place)), PolicyLoad::ALL, cases, note)
}

fn says(numbers: &Numbers, place: PolicyPlace) -> Vec<String> {
    let sentence = |case: PolicyCase| {
        let cost = |load: PolicyLoad| {
            let times = number(cost(numbers, case, load)?.spread.median);
            Some(format!("{times} times ({load})"))
        };
        let costs: Vec<String> = PolicyLoad::ALL.into_iter().filter_map(cost).collect();
        let costs = (!costs.is_empty()).then(|| costs.join(", "))?;
        Some(format!("A request takes by {case} that of resync: {costs}."))
    };
    others(place).filter_map(sentence).collect()
}

fn plot(numbers: &Numbers, place: PolicyPlace) -> Plot {
    let bars = |case: PolicyCase| {
        let point = |(at, load)| Some(Point::of(at as f64, cost(numbers, case, load)?.spread));
        let points = PolicyLoad::ALL.into_iter().enumerate().filter_map(point);
        Series::measured(case.policy.name(), points)
    };
    let loads = Axis::names("", PolicyLoad::ALL.map(PolicyLoad::name));
    let axes = [loads, Axis::linear("time per request by that of resync")];
    let title = format!("Policies, members of {place}");
    Plot::new(format!("policies-{place}"), title, axes, others(place).map(bars))
        .with_rules([Rule::new("resync", 1.0)])
}
