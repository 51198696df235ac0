//! Chapter of arrays over nodes: tables of bound beside measured and published beside both, and
//! cells.

use super::entry::{self, ClusterEntry, CpuSeconds, PublishedFigures};
use super::sentences::percent;
use super::words::Pattern;
use super::{plots, sentences};
use crate::compare::words::{marked, range, two, word};
use crate::model::{Cell, Chapter, Found, Measured, Spread, Table};

const SMALL_BYTES: f64 = 4096.0;
const MEBIBYTE: f64 = (1 << 20) as f64;

/// Returns the table of what has been published, and one for each pattern.
fn tables(entries: &[ClusterEntry]) -> Vec<Table> {
    let of_pattern =
        |&pattern: &Pattern| table(entries, pattern, pattern.facts().title).unless_empty();
    let published = as_published(entries).unless_empty();
    let of_patterns = Pattern::ALL.iter().filter_map(of_pattern);
    let mut tables: Vec<Table> = published.into_iter().chain(of_patterns).collect();
    if let Some(last) = tables.last_mut() {
        last.note = notes(entries);
    }
    tables
}

/// The arrays of the publication.
fn as_published(entries: &[ClusterEntry]) -> Table {
    let share = |spread: Spread| marked(three(spread.median), spread.is_noisy());
    let of = |entry: &&ClusterEntry| PublishedFigures::of(entry);
    let made = entries.iter().filter(|entry| entry.is_made_by_nodes());
    let made = made.filter_map(|entry| Some((entry, of(&entry)?)));
    Table::of_columns(
        "Parity made by nodes, as published and here",
        made,
        &[
            ("array, on what, parity made by", &|(entry, _)| entry.case.clone()),
            ("of line", &|(entry, _)| share(entry.lines())),
            ("published", &|(_, figures)| two(figures.made_by_nodes())),
            ("client alone, of line", &|(entry, _)| {
                word(entry.client(entries).map(ClusterEntry::lines), share)
            }),
            ("its ceiling", &|(_, figures)| two(figures.ceiling)),
            ("gain over the ceiling", &|(entry, figures)| {
                percent(entry.of_line() / figures.ceiling)
            }),
            ("published gain", &|(_, figures)| percent(figures.gain)),
        ],
        "Shares of the line: what one plain TCP stream carries on the same link, in the same run. \
         The ceiling is what a client can write at best that sends the parity, too.",
    )
}

fn table(entries: &[ClusterEntry], pattern: Pattern, title: &str) -> Table {
    let rate = |entry: &ClusterEntry| {
        let rate = entry.data_bytes_s.times(1e-6);
        let median = marked(format!("{:.1}", rate.median), rate.is_noisy());
        format!("{median} ({:.1}-{:.1})", rate.min, rate.max)
    };
    let exchanged = |entry: &ClusterEntry| match entry.bound_node_bytes_per_data_byte {
        Some(bound) => word(entry.node_bytes_per_data_byte, |found| {
            format!("{} ({})", three(found), three(bound))
        }),
        None => word(entry.node_bytes_per_data_byte, three),
    };
    let cpu = |entry: &ClusterEntry| {
        let CpuSeconds { client, nodes } = entry.cpu_s_per_gib;
        format!("{}, {}", word(client, two), word(nodes, two))
    };
    Table::of_columns(
        title,
        entries.iter().filter(|entry| entry.pattern == pattern),
        &[
            ("array, on what, parity made by", &|entry| entry.case.clone()),
            ("MB/s (min-max)", &|entry| rate(entry)),
            ("of line", &|entry| three(entry.of_line())),
            ("bound", &|entry| word(entry.bound_lines(), two)),
            ("x client", &|entry| word(entry.times_client(entries), two)),
            ("client B/B", &|entry| word(entry.client_bytes_per_data_byte, three)),
            ("node B/B (bound)", &|entry| exchanged(entry)),
            ("CPU s/GiB client, nodes", &|entry| cpu(entry)),
        ],
        "",
    )
}

/// Three digits after the point.
fn three(value: f64) -> String {
    format!("{value:.3}")
}

/// Notes what the tables do not show: line, memory and idle CPU time.
fn notes(entries: &[ClusterEntry]) -> String {
    let most =
        |of: &dyn Fn(&ClusterEntry) -> Option<f64>| entries.iter().filter_map(of).reduce(f64::max);
    let mut notes = Vec::new();
    if let Some((low, high)) = range(entries.iter().map(|entry| entry.line_bytes_s / 1e6)) {
        notes.push(format!(
            "Line (one plain TCP stream on the same link, same run): {low:.1} to {high:.1} MB/s."
        ));
    }
    let small = |entry: &ClusterEntry| {
        if entry.pattern != Pattern::Write4k {
            return None;
        }
        let sent = entry.client_bytes_per_data_byte?;
        Some((sent - 1.0) * SMALL_BYTES)
    };
    if let Some(bytes) = most(&small) {
        notes.push(format!(
            "Beside its data, a write of 4K costs the client {bytes:.0} bytes: messages, and \
             headers of every layer."
        ));
    }
    if let Some(bytes) = most(&|entry| entry.node_memory_bytes.map(|bytes| bytes as f64)) {
        let mib = bytes / MEBIBYTE;
        notes.push(format!("Memory of a node at its peak: {mib:.0} MiB at most."));
    }
    if let Some(cores) = most(&|entry| entry.idle_nodes_cpu) {
        let percent = cores * 100.0;
        notes.push(format!(
            "CPU time of idle nodes, all together: {percent:.2} % of a core at most."
        ));
    }
    notes.join(" ")
}

pub(super) fn chapter(found: &Found) -> Chapter {
    let entries = entry::entries(found);
    Chapter {
        title: "Parity over nodes: made by the client, or by the nodes".to_owned(),
        about: about(),
        says: sentences::sentences(&entries),
        tables: tables(&entries),
        plots: plots::plots(&entries),
        cells: entries.iter().flat_map(|entry| cells(entry, &entries)).collect(),
        extra: serde_json::to_value(&entries).ok(),
        ..Chapter::default()
    }
}

fn about() -> Vec<String> {
    [
        "A client of an array over nodes sends data and parity, and its link carries both; or it \
         sends the data once, and the nodes make the parity among themselves. H. Otsuji and O. \
         Tatebe (University of Tsukuba, \"Implementation and evaluation of cluster-wide RAID\") \
         published this over InfiniBand FDR, for RAID-4 over 2+1 nodes and for a RAID-6 of rows \
         and diagonals over five, in memory only, as the mean of three runs.",
        "Here nodes and clients are processes of one machine, each in a network namespace with a \
         link of its own that is shaped in both directions. Every figure is set beside the line, \
         which is what one plain TCP stream carries on the same link in the same run, and beside \
         the bound, which is what the links allow, computed from the schedule beforehand. Clients \
         write whole stripes to volumes of their own. Arrays have 256 MiB of data each, and the \
         more nodes there are, the smaller are the blocks that suit them: so many nodes fit into \
         one machine.",
        "Chain: each parity travels along a chain through the nodes. Encoder: one node collects \
         what it needs, another one for every slice-set. Mix: encoder or client, whichever is less \
         of a bottleneck at the moment. B/B: bytes on the links for each byte of data.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn cells(entry: &ClusterEntry, all: &[ClusterEntry]) -> Vec<Cell> {
    let cell = |metric: &str, unit: &str, spread: Spread| {
        let measured = Measured { spread, runs: entry.runs, raw: entry.raw.clone() };
        Cell::new(&entry.case, entry.pattern.name(), metric, unit, measured)
    };
    let one = |number: f64| Spread { median: number, min: number, max: number };
    let figures = PublishedFigures::of(entry);
    let rate = Cell {
        ratio: entry.times_client(all),
        bound: entry.bound_bytes_s.map(|bound| bound * 1e-6),
        ..cell("bandwidth", "MB/s", entry.data_bytes_s.times(1e-6))
    };
    let share = Cell {
        published: figures.and_then(|figures| figures.share(entry)),
        bound: entry.bound_lines(),
        ..cell("share", "lines", entry.lines())
    };
    let mut cells = vec![rate, share];
    if entry.is_made_by_nodes()
        && let Some(figures) = figures
    {
        let gain = cell("gain", "x", entry.lines().times(1.0 / figures.ceiling));
        cells.push(Cell { published: Some(figures.gain), ..gain });
    }
    let others = [
        ("line", "MB/s", Some(entry.line_bytes_s * 1e-6), None),
        ("client-bytes", "B/B", entry.client_bytes_per_data_byte, None),
        ("node-bytes", "B/B", entry.node_bytes_per_data_byte, entry.bound_node_bytes_per_data_byte),
        ("client-cpu", "s/GiB", entry.cpu_s_per_gib.client, None),
        ("node-cpu", "s/GiB", entry.cpu_s_per_gib.nodes, None),
        ("node-memory", "bytes", entry.node_memory_bytes.map(|bytes| bytes as f64), None),
        ("idle-node-cpu", "cores", entry.idle_nodes_cpu, None),
    ];
    for (metric, unit, number, bound) in others {
        cells.extend(number.map(|number| Cell { bound, ..cell(metric, unit, one(number)) }));
    }
    cells
}
