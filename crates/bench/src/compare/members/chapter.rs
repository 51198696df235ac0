//! Tables, plots and cells.

use super::class::METRICS;
use super::numbers::{COLD_READS, CaseNumber, KINDS, Members, cpu};
use super::{BONNIE, MembersCase, MembersOptions, sentences};
use crate::compare::words::{NOTHING, marked};
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
        let name = case.name();
        let cell = |metric: &str| numbers.numbers.cell(&name, BONNIE, metric);
        cells.extend(KINDS.into_iter().filter_map(|kind| numbers.cell(case, kind)));
        cells.extend(bonnie::MORE.into_iter().filter_map(|column| cell(column.name)));
        cells.extend(METRICS.into_iter().filter_map(|column| cell(&cpu(column))));
        published.extend(METRICS.into_iter().filter_map(|column| {
            let value = case.class.published(case.members, column)?;
            Some(Published::new(&name, BONNIE, column.name, value))
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

/// A table whose rows are cases.
fn table(
    title: &str,
    heads: impl IntoIterator<Item = String>,
    cases: Vec<MembersCase>,
    words: impl Fn(MembersCase) -> Vec<String>,
    note: &str,
) -> Table {
    let head = std::iter::once("machine and volumes".to_owned()).chain(heads);
    let row = |case: MembersCase| {
        let volumes = if case.members == 1 { "volume" } else { "volumes" };
        let called = format!("{}, {} {volumes}", case.class.name, case.members);
        [vec![called], words(case)].concat()
    };
    Table::new(title, head, cases.into_iter().map(row), note)
}

/// Table in the shape of the document.
fn as_published(numbers: &Members<'_>) -> Table {
    let heads = METRICS.into_iter().flat_map(|column| {
        let unit = if column.unit == "1/s" { "/s" } else { column.unit };
        [format!("{}, {unit}", column.name), "published".to_owned()]
    });
    let words = |case: MembersCase| {
        let mut row = Vec::new();
        for kind in &KINDS[..4] {
            row.push(whole(numbers.spread(case, *kind)));
            row.push(plain(kind.published(case), 0));
        }
        row.push(plain((case.members == 1).then_some(case.class.dollars), 3));
        row
    };
    let heads = heads.chain(["$/h, published".to_owned()]);
    let note = "kB are 1024 bytes. read: from memory, as published.";
    table("Found and published", heads, numbers.cases(), words, note)
}

fn ratios(numbers: &Members<'_>) -> Table {
    let heads = METRICS.into_iter().flat_map(|column| [column.name, "published"]);
    let several = numbers.cases().into_iter().filter(|case| case.members > 1).collect();
    let words = |case: MembersCase| {
        let pair = |kind: &CaseNumber| {
            [plain(numbers.ratio(case, *kind), 2), plain(kind.published_ratio(case), 2)]
        };
        KINDS[..4].iter().flat_map(pair).collect()
    };
    let note = "How many times as much as one volume of the same machine.";
    table("By one volume", heads.map(str::to_owned), several, words, note)
}

fn bounds(numbers: &Members<'_>) -> Table {
    let of_bytes = [KINDS[0], KINDS[1], COLD_READS];
    let seeks = KINDS[3];
    let last = ["read from the members, kB/s", "bound, seeks/s", "seeks, share"];
    let heads = std::iter::once("bound, kB/s".to_owned())
        .chain(of_bytes.map(|kind| format!("{}, share", kind.name)))
        .chain(last.map(str::to_owned));
    let words = |case: MembersCase| {
        let mut row = vec![plain(Some(case.class.bound_kb_s(case.members)), 0)];
        row.extend(of_bytes.map(|kind| plain(numbers.share(case, kind), 2)));
        row.push(whole(numbers.spread(case, COLD_READS)));
        row.push(plain(seeks.bound(case), 0));
        row.push(plain(numbers.share(case, seeks), 2));
        row
    };
    let note = "The bound is computed beforehand: the lesser of members x limit of a member and \
               the limit of the host. Of seeks it is an estimate: how many of their writes lie \
               side by side is chance.";
    table("Share of what the limits let through", heads, numbers.cases(), words, note)
}

fn cpu_table(numbers: &Members<'_>) -> Table {
    let heads = METRICS.map(|column| format!("{}, %", column.name));
    let words = |case: MembersCase| {
        let cpu = |column| whole(numbers.numbers.spread(&case.name(), BONNIE, &cpu(column)));
        let served = plain(numbers.server_cores(case).map(|cores| cores * 100.0), 1);
        METRICS.map(cpu).into_iter().chain([served]).collect()
    };
    let note = "In percent of one core: of bonnie++, as it says, and of the process of the array \
               while a file is read from the members (none where there is no array).";
    let heads = heads.into_iter().chain(["Braid, %".to_owned()]);
    table("CPU time", heads, numbers.cases(), words, note)
}

/// Table of what else bonnie++ found.
fn more_table(numbers: &Members<'_>) -> Option<Table> {
    let value = |case: MembersCase, column: BonnieColumn| {
        numbers.numbers.spread(&case.name(), BONNIE, column.name)
    };
    let mut columns = bonnie::MORE.to_vec();
    columns.retain(|&column| numbers.cases().iter().any(|&case| value(case, column).is_some()));
    let heads = columns.iter().map(|column| format!("{}, {}", column.name, column.unit));
    let words = |case| columns.iter().map(|&column| whole(value(case, column))).collect();
    let note = "- was over too soon to be measured.";
    let table = table("What else bonnie++ says", heads, numbers.cases(), words, note);
    (!columns.is_empty()).then_some(table)
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
    let word = |spread: Spread| marked(format!("{:.0}", spread.median), spread.is_noisy());
    spread.map_or_else(|| NOTHING.to_owned(), word)
}

fn plain(number: Option<f64>, places: usize) -> String {
    number.map_or_else(|| NOTHING.to_owned(), |number| format!("{number:.places$}"))
}
