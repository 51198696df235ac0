//! Tables, plots and cells.

use super::class::{Class, METRICS};
use super::numbers::{Numbers, What, of};
use super::{BONNIE, Case, Options, says};
use crate::model::chapter::Published;
use crate::model::{Axis, Cell, Chapter, Found, Plot, Point, Scale, Series, Spread, Style, Table};
use crate::rig::file_name;
use crate::tool::bonnie::{self, Column, READ};

const SOURCE: &str = "\"Amazon EBS as RAID 0 for faster disk I/O\" (Classmethod, in Japanese, \
                      2011-10-19)";
const NOTHING: &str = "-";

pub(super) fn chapter(options: &Options, found: &Found) -> Chapter {
    let numbers = Numbers(found);
    let mut cells: Vec<Cell> = Vec::new();
    let mut published: Vec<Published> = Vec::new();
    for case in Case::all() {
        cells.extend(What::all().filter_map(|what| numbers.cell(case, what)));
        cells.extend(more(found, case));
        cells.extend(METRICS.into_iter().filter_map(|column| cpu(&numbers, case, column)));
        published.extend(METRICS.into_iter().filter_map(|column| {
            let value = case.class.published(case.members, column)?;
            let case = case.name();
            let job = BONNIE.to_owned();
            Some(Published { case, job, metric: column.name.to_owned(), value })
        }));
    }
    let mut tables = vec![as_published(&numbers), ratios(&numbers), bounds(&numbers)];
    tables.push(cpu_table(&numbers));
    tables.extend(more_table(found, &numbers));
    Chapter {
        name: "members".to_owned(),
        title: "More members on machines with limits".to_owned(),
        about: about(options),
        says: says::says(&numbers),
        tables,
        plots: What::all().filter_map(|what| plot(&numbers, what)).collect(),
        cells,
        published,
        ..Chapter::default()
    }
}

fn about(options: &Options) -> Vec<String> {
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

/// In the shape of the document.
fn as_published(numbers: &Numbers<'_>) -> Table {
    let mut head = vec!["machine and volumes".to_owned()];
    for column in METRICS {
        let unit = if column.unit == "1/s" { "/s" } else { column.unit };
        head.extend([format!("{}, {unit}", column.name), "published".to_owned()]);
    }
    head.push("$/h, published".to_owned());
    let row = |case: Case| {
        let mut row = vec![called(case)];
        for column in METRICS {
            row.push(whole(numbers.spread(case, What::Of(column))));
            row.push(plain(case.class.published(case.members, column), 0));
        }
        row.push(plain((case.members == 1).then_some(case.class.dollars), 3));
        row
    };
    Table {
        title: "Found and published".to_owned(),
        head,
        rows: numbers.cases().into_iter().map(row).collect(),
        note: "kB are 1024 bytes. read: from memory, as published.".to_owned(),
    }
}

fn ratios(numbers: &Numbers<'_>) -> Table {
    let mut head = vec!["machine and volumes".to_owned()];
    head.extend(METRICS.iter().flat_map(|column| [column.name.to_owned(), "published".to_owned()]));
    let several = numbers.cases().into_iter().filter(|case| case.members > 1);
    let row = |case: Case| {
        let mut row = vec![called(case)];
        for column in METRICS {
            row.push(plain(numbers.ratio(case, What::Of(column)), 2));
            row.push(plain(case.class.published_ratio(case.members, column), 2));
        }
        row
    };
    Table {
        title: "By one volume".to_owned(),
        head,
        rows: several.map(row).collect(),
        note: "How many times as much as one volume of the same machine.".to_owned(),
    }
}

/// Those that have one.
fn bounded() -> impl Iterator<Item = What> {
    What::all().filter(|what| *what != What::Of(READ))
}

fn bounds(numbers: &Numbers<'_>) -> Table {
    let mut head = vec!["machine and volumes".to_owned(), "bound, kB/s".to_owned()];
    let of_bytes = || bounded().filter(|what| what.column().unit != "1/s");
    head.extend(of_bytes().map(|what| format!("{}, share", what.name())));
    head.extend(
        ["read from the members, kB/s", "bound, seeks/s", "seeks, share"].map(str::to_owned),
    );
    let seeks = What::Of(bonnie::SEEKS);
    let row = |case: Case| {
        let mut row = vec![called(case), plain(Some(case.class.bound_kb_s(case.members)), 0)];
        row.extend(of_bytes().map(|what| plain(numbers.share(case, what), 2)));
        row.push(whole(numbers.spread(case, What::ColdRead)));
        row.push(plain(Numbers::bound(case, seeks), 0));
        row.push(plain(numbers.share(case, seeks), 2));
        row
    };
    Table {
        title: "Share of what the limits let through".to_owned(),
        head,
        rows: numbers.cases().into_iter().map(row).collect(),
        note: "The bound is computed beforehand: the lesser of members x limit of a member and \
               the limit of the host. Of seeks it is an estimate: how many of their writes lie \
               side by side is chance."
            .to_owned(),
    }
}

fn cpu_table(numbers: &Numbers<'_>) -> Table {
    let mut head = vec!["machine and volumes".to_owned()];
    head.extend(METRICS.map(|column| format!("{}, %", column.name)));
    head.push("Braid, %".to_owned());
    let row = |case: Case| {
        let mut row = vec![called(case)];
        for column in METRICS {
            row.push(whole(numbers.cpu(case, column).map(|found| found.spread)));
        }
        row.push(plain(numbers.server_cores(case).map(|cores| cores.median * 100.0), 1));
        row
    };
    Table {
        title: "CPU time".to_owned(),
        head,
        rows: numbers.cases().into_iter().map(row).collect(),
        note: "In percent of one core: of bonnie++, as it says, and of the process of the array \
               while a file is read from the members (none where there is no array)."
            .to_owned(),
    }
}

/// What else bonnie++ found.
fn more(found: &Found, case: Case) -> Vec<Cell> {
    let cell = |column: Column| {
        let read = |text: &str| bonnie::value(text, column);
        let measured = found.measured(&case.name(), BONNIE, bonnie::OUTPUT, read)?;
        Some(Cell::new(&case.name(), BONNIE, column.name, column.unit, measured))
    };
    bonnie::MORE.into_iter().filter_map(cell).collect()
}

fn more_table(found: &Found, numbers: &Numbers<'_>) -> Option<Table> {
    let value = |case: Case, column: Column| {
        let cells = more(found, case);
        cells.into_iter().find(|cell| cell.metric == column.name).map(|cell| cell.spread)
    };
    let mut columns = bonnie::MORE.to_vec();
    columns.retain(|&column| numbers.cases().iter().any(|&case| value(case, column).is_some()));
    let names = columns.iter().map(|column| format!("{}, {}", column.name, column.unit));
    let row = |case: Case| {
        let values = columns.iter().map(|&column| whole(value(case, column)));
        std::iter::once(called(case)).chain(values).collect()
    };
    (!columns.is_empty()).then(|| Table {
        title: "What else bonnie++ says".to_owned(),
        head: std::iter::once("machine and volumes".to_owned()).chain(names).collect(),
        rows: numbers.cases().into_iter().map(row).collect(),
        note: "- was over too soon to be measured.".to_owned(),
    })
}

fn cpu(numbers: &Numbers<'_>, case: Case, column: Column) -> Option<Cell> {
    let metric = format!("{}, CPU", column.name);
    Some(Cell::new(&case.name(), BONNIE, &metric, "%", numbers.cpu(case, column)?))
}

fn plot(numbers: &Numbers<'_>, what: What) -> Option<Plot> {
    let classes = numbers.classes();
    let mut series: Vec<Series> = Vec::new();
    for (style, after) in
        [(Style::Measured, ""), (Style::Published, ", published"), (Style::Bound, ", bound")]
    {
        // Seeks have none that is more than an estimate.
        let has_style = style != Style::Bound || bounded().any(|other| other == what);
        if !has_style {
            continue;
        }
        for &class in &classes {
            let points = points(numbers, class, what, style);
            let name = format!("{}{after}", class.name);
            series.extend((!points.is_empty()).then_some(Series { name, style, points }));
        }
    }
    series.iter().any(|series| series.style == Style::Measured).then(|| Plot {
        id: format!("members-{}", file_name(what.name())),
        title: format!("More members: {}", what.name()),
        x: Axis { label: "members".to_owned(), scale: Scale::Log2 },
        y: Axis { label: what.column().unit.to_owned(), scale: Scale::Linear },
        series,
        rules: Vec::new(),
    })
}

fn points(numbers: &Numbers<'_>, class: &'static Class, what: What, style: Style) -> Vec<Point> {
    let point = |case: Case| {
        let x = f64::from(case.members);
        match style {
            Style::Measured => Some(Point::of(x, numbers.spread(case, what)?)),
            Style::Published => Some(Point::at(x, Numbers::published(case, what)?)),
            Style::Bound => Some(Point::at(x, Numbers::bound(case, what)?)),
        }
    };
    of(class).into_iter().filter_map(point).collect()
}

fn called(case: Case) -> String {
    let volumes = if case.members == 1 { "volume" } else { "volumes" };
    format!("{}, {} {volumes}", case.class.name, case.members)
}

fn whole(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || NOTHING.to_owned(),
        |spread| format!("{:.0}{}", spread.median, if spread.is_noisy() { "~" } else { "" }),
    )
}

fn plain(number: Option<f64>, places: usize) -> String {
    number.map_or_else(|| NOTHING.to_owned(), |number| format!("{number:.places$}"))
}
