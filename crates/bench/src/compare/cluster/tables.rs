//! Measurements as tables: bound beside measured, and published beside both.

use super::entry::{ClusterEntry, CpuSeconds, PublishedFigures};
use super::words::Pattern;
use crate::compare::words::{marked, range, two, word};
use crate::model::{Spread, Table};

const SMALL_BYTES: f64 = 4096.0;
const MEBIBYTE: f64 = (1 << 20) as f64;

/// Returns the table of what has been published, and one for each pattern.
pub(super) fn tables(entries: &[ClusterEntry]) -> Vec<Table> {
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

/// All entries of a pattern.
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

/// `+48 %` for 1.48 times as much.
pub(super) fn percent(times: f64) -> String {
    format!("{:+.0} %", (times - 1.0) * 100.0)
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
