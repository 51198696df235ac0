//! Tables, plots and cells.

use super::class::METRICS;
use super::numbers::{COLD_READS, CaseNumber, KINDS, Members, cpu};
use super::{BONNIE, MembersCase, MembersOptions, sentences};
use crate::compare::words::{median_as, word};
use crate::model::{
    Axis, Cell, Chapter, Found, Plot, Point, Published, Series, Spread, Style, Table,
};
use crate::rig::file_name;
use crate::tool::bonnie::{self, BonnieColumn};

const SOURCE: &str = "\"Amazon EBS as RAID 0 for faster disk I/O\" (Classmethod, in Japanese, \
                      2011-10-19)";

pub(super) fn chapter(options: &MembersOptions, found: &Found) -> Chapter {
    let numbers = Members::of(found);
    let mut cells: Vec<Cell> = Vec::new();
    let mut published: Vec<Published> = Vec::new();
    for case in MembersCase::all() {
        let cell = |metric: String| numbers.numbers.cell((case, BONNIE, metric));
        cells.extend(KINDS.into_iter().filter_map(|kind| numbers.cell(case, kind)));
        cells.extend(bonnie::MORE.into_iter().filter_map(|column| cell(column.name.to_owned())));
        cells.extend(METRICS.into_iter().filter_map(|column| cell(cpu(column))));
        published.extend(METRICS.into_iter().filter_map(|column| {
            let value = case.class.published(case.members, column)?;
            Some(Published::new(&case.to_string(), BONNIE, column.name, value))
        }));
    }
    let mut tables = vec![as_published(&numbers), ratios(&numbers), bounds(&numbers)];
    tables.push(cpu_table(&numbers));
    tables.extend(more_table(&numbers));
    Chapter {
        title: "More members on machines with limits".to_owned(),
        about: about(options),
        says: sentences::sentences(&numbers),
        tables,
        plots: KINDS.into_iter().filter_map(|kind| plot(&numbers, kind)).collect(),
        cells,
        published,
        ..Chapter::default()
    }
}

fn about(options: &MembersOptions) -> Vec<String> {
    let mut about = vec![
        format!(
            "bonnie++ on XFS over one volume, two and four in RAID 0 with a chunk of 256K, \
             read-ahead of 32 MiB and noatime. First published in {SOURCE}, on four types of \
             virtual machines with network volumes."
        ),
        "The machines are made of this one: each member, and all members together, let so many \
         bytes a second through, and so many requests that do not go on where the one before \
             them ended. A member has what one volume wrote there, \
         the host the most that any number of volumes wrote; requests likewise, by seeks, of \
         which only one in ten writes and none reads but from memory. So what comes out can be \
         computed beforehand: the lesser of members x limit and the limit of the host. What one \
         volume did is given, what several do is measured. One volume is a limited disk without \
         an array."
            .to_owned(),
        "The published reads are faster than any network volume was: they came from the page \
         cache. Reads from memory and reads from the members are kept apart here. When bonnie++ \
         is done with its reads too soon to give a number, fio reads 8K after 8K of a file in the \
         page cache instead."
            .to_owned(),
        "The whole lines of bonnie++ are in raw/members: cat raw/members/*/*bonnie.csv | \
         bon_csv2html makes a page of them."
            .to_owned(),
    ];
    let sizes: Vec<String> = super::class::CLASSES
        .iter()
        .map(|class| format!("{} MiB on {}", class.file_mib(options.write_ms), class.name))
        .collect();
    about.push(format!(
        "The document does not say how large its files were; here they are {}.",
        sizes.join(", ")
    ));
    if !options.whole {
        about.push(
            "In short: without writing characters one by one and without creating files (-f -n 0). \
             Seeks of files this small write some blocks twice and some side by side, which become \
             one request: the limits of requests are scaled by that. What bonnie++ does before the \
             first block goes to a member counts more in half a second than in a long run."
                .to_owned(),
        );
    }
    about
}

/// A column: its head, and the word of each case.
type Words<'a> = (String, Box<dyn Fn(MembersCase) -> String + 'a>);

/// A table whose rows are cases.
fn table(title: &str, cases: Vec<MembersCase>, columns: Vec<Words<'_>>, note: &str) -> Table {
    let called = |case: MembersCase| {
        let volumes = if case.members == 1 { "volume" } else { "volumes" };
        (format!("{}, {} {volumes}", case.class.name, case.members), case)
    };
    let rows = cases.into_iter().map(called);
    Table::grid(title, "machine and volumes", columns, rows, |case, word| word(*case), note)
}

fn column<'a>(head: impl Into<String>, word: impl Fn(MembersCase) -> String + 'a) -> Words<'a> {
    (head.into(), Box::new(word))
}

/// Table in the shape of the document.
fn as_published(numbers: &Members<'_>) -> Table {
    let pair = |(kind, metric): (CaseNumber, BonnieColumn)| {
        let unit = if metric.unit == "1/s" { "/s" } else { metric.unit };
        let head = format!("{}, {unit}", metric.name);
        let found = column(head, move |case| whole(numbers.spread(case, kind)));
        [found, column("published", move |case| plain(kind.published(case), 0))]
    };
    let mut columns: Vec<Words<'_>> = KINDS.into_iter().zip(METRICS).flat_map(pair).collect();
    columns.push(column("$/h, published", |case| {
        plain((case.members == 1).then_some(case.class.dollars), 3)
    }));
    let note = "kB are 1024 bytes. read: from memory, as published.";
    table("Found and published", numbers.cases(), columns, note)
}

fn ratios(numbers: &Members<'_>) -> Table {
    let pair = |(kind, metric): (CaseNumber, BonnieColumn)| {
        let found = column(metric.name, move |case| plain(numbers.ratio(case, kind), 2));
        [found, column("published", move |case| plain(kind.published_ratio(case), 2))]
    };
    let several = numbers.cases().into_iter().filter(|case| case.members > 1).collect();
    let columns = KINDS.into_iter().zip(METRICS).flat_map(pair).collect();
    let note = "How many times as much as one volume of the same machine.";
    table("By one volume", several, columns, note)
}

fn bounds(numbers: &Members<'_>) -> Table {
    let share = |head: String, kind| column(head, move |case| plain(numbers.share(case, kind), 2));
    let seeks = KINDS[3];
    let bound = |case: MembersCase| plain(Some(case.class.bound_kb_s(case.members)), 0);
    let mut columns = vec![column("bound, kB/s", bound)];
    let of_bytes = [KINDS[0], KINDS[1], COLD_READS];
    columns.extend(of_bytes.map(|kind| share(format!("{}, share", kind.name), kind)));
    columns.push(column("read from the members, kB/s", |case| {
        whole(numbers.spread(case, COLD_READS))
    }));
    columns.push(column("bound, seeks/s", |case| plain(seeks.bound(case), 0)));
    columns.push(share("seeks, share".to_owned(), seeks));
    let note = "The bound is computed beforehand: the lesser of members x limit of a member and \
               the limit of the host. Of seeks it is an estimate: how many of their writes lie \
               side by side is chance.";
    table("Share of what the limits let through", numbers.cases(), columns, note)
}

/// A column of what bonnie++ said.
fn said<'a>(numbers: &'a Members<'_>, head: String, metric: String) -> Words<'a> {
    column(head, move |case| whole(numbers.numbers.spread((case, BONNIE, &metric))))
}

fn cpu_table(numbers: &Members<'_>) -> Table {
    let of_metric =
        |metric: BonnieColumn| said(numbers, format!("{}, %", metric.name), cpu(metric));
    let served = |case| plain(numbers.server_cores(case).map(|cores| cores * 100.0), 1);
    let columns = METRICS.into_iter().map(of_metric).chain([column("Braid, %", served)]);
    let note = "In percent of one core: of bonnie++, as it says, and of the process of the array \
               while a file is read from the members (none where there is no array).";
    table("CPU time", numbers.cases(), columns.collect(), note)
}

/// Table of what else bonnie++ found.
fn more_table(numbers: &Members<'_>) -> Option<Table> {
    let cases = numbers.cases();
    let is_there = |metric: &BonnieColumn| {
        cases.iter().any(|case| numbers.numbers.spread((case, BONNIE, metric.name)).is_some())
    };
    let of_metric = |metric: BonnieColumn| {
        said(numbers, format!("{}, {}", metric.name, metric.unit), metric.name.to_owned())
    };
    let columns: Vec<Words<'_>> =
        bonnie::MORE.into_iter().filter(is_there).map(of_metric).collect();
    let note = "- was over too soon to be measured.";
    (!columns.is_empty()).then(|| table("What else bonnie++ says", cases.clone(), columns, note))
}

fn plot(numbers: &Members<'_>, kind: CaseNumber) -> Option<Plot> {
    let styles =
        [(Style::Measured, ""), (Style::Published, ", published"), (Style::Bound, ", bound")];
    let mut series: Vec<Series> = Vec::new();
    for (style, after) in styles {
        if style == Style::Bound && !kind.is_bounded() {
            continue;
        }
        for class in numbers.classes() {
            let point = |case: MembersCase| {
                let x = f64::from(case.members);
                match style {
                    Style::Measured => Some(Point::of(x, numbers.spread(case, kind)?)),
                    Style::Published => Some(Point::at(x, kind.published(case)?)),
                    Style::Bound => Some(Point::at(x, kind.bound(case)?)),
                }
            };
            let points = MembersCase::of(class).into_iter().filter_map(point);
            series.push(Series::new(format!("{}{after}", class.name), style, points));
        }
    }
    series.retain(|series| !series.points.is_empty());
    let axes = [Axis::log2("members"), Axis::linear(kind.column.unit)];
    let id = format!("members-{}", file_name(kind.name));
    Plot::new(id, format!("More members: {}", kind.name), axes, series).if_measured()
}

fn whole(spread: Option<Spread>) -> String {
    median_as(spread, |number| format!("{number:.0}"))
}

fn plain(number: Option<f64>, places: usize) -> String {
    word(number, |number| format!("{number:.places$}"))
}
