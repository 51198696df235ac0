//! Measurements as tables: bound beside measured, and published beside both.

use super::entry::Entry;
use super::published::Figures;
use super::words::Pattern;
use crate::model::{Spread, Table};

const SMALL_BYTES: f64 = 4096.0;
const MEBIBYTE: f64 = (1 << 20) as f64;
const HEAD: [&str; 8] = [
    "array, on what, parity made by",
    "MB/s (min-max)",
    "of line",
    "bound",
    "x client",
    "client B/B",
    "node B/B (bound)",
    "CPU s/GiB client, nodes",
];
const PUBLISHED_HEAD: [&str; 7] = [
    "array, on what, parity made by",
    "of line",
    "published",
    "client alone, of line",
    "its ceiling",
    "gain over the ceiling",
    "published gain",
];

/// What has been published, and a table for each pattern.
pub(super) fn tables(entries: &[Entry]) -> Vec<Table> {
    let mut tables: Vec<Table> = as_published(entries).into_iter().collect();
    for &pattern in Pattern::ALL {
        let rows: Vec<_> = entries.iter().filter(|entry| entry.pattern == pattern).collect();
        if !rows.is_empty() {
            tables.push(Table {
                title: title(pattern).to_owned(),
                head: HEAD.map(str::to_owned).to_vec(),
                rows: rows.into_iter().map(|entry| row(entry, entries)).collect(),
                note: String::new(),
            });
        }
    }
    if let Some(last) = tables.last_mut() {
        last.note = notes(entries);
    }
    tables
}

const fn title(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Write => "Writes of whole stripes",
        Pattern::Read => "Reads",
        Pattern::ReadOneLost => "Reads without one node",
        Pattern::ReadTwoLost => "Reads without two nodes",
        Pattern::WriteOneLost => "Writes of whole stripes without one node",
        Pattern::WriteTwoLost => "Writes of whole stripes without two nodes",
        Pattern::WriteAlone => "Writes of 1M in sequence, each answered before the next",
        Pattern::Write4k => "Writes of 4K at random places, 64 at once",
        Pattern::Write4kDurable => "Writes of 4K at random places, each durable before the next",
        Pattern::Rebuild => "Rebuilding one node",
    }
}

/// The arrays of the publication.
fn as_published(entries: &[Entry]) -> Option<Table> {
    let row = |entry: &Entry| {
        if !entry.is_made_by_nodes() {
            return None;
        }
        let figures = Figures::of(entry)?;
        let client = entry.client(entries).map(Entry::lines);
        Some(vec![
            entry.case.clone(),
            share(entry.lines()),
            format!("{:.2}", figures.made_by_nodes()),
            client.map_or_else(dash, share),
            format!("{:.2}", figures.ceiling),
            percent(entry.of_line() / figures.ceiling),
            percent(figures.gain),
        ])
    };
    let rows: Vec<Vec<String>> = entries.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        title: "Parity made by nodes, as published and here".to_owned(),
        head: PUBLISHED_HEAD.map(str::to_owned).to_vec(),
        rows,
        note:
            "Shares of the line: what one plain TCP stream carries on the same link, in the same \
               run. The ceiling is what a client can write at best that sends the parity, too."
                .to_owned(),
    })
}

fn row(entry: &Entry, all: &[Entry]) -> Vec<String> {
    let two = |number: Option<f64>| number.map_or_else(dash, |number| format!("{number:.2}"));
    let three = |number: Option<f64>| number.map_or_else(dash, |number| format!("{number:.3}"));
    let rate = entry.data_bytes_s.times(1e-6);
    let exchanged = match (entry.node_bytes_per_data_byte, entry.bound_node_bytes_per_data_byte) {
        (None, _) => dash(),
        (found, None) => three(found),
        (found, bound) => format!("{} ({})", three(found), three(bound)),
    };
    let cpu = entry.cpu_s_per_gib;
    let median = marked(format!("{:.1}", rate.median), rate);
    vec![
        entry.case.clone(),
        format!("{median} ({:.1}-{:.1})", rate.min, rate.max),
        format!("{:.3}", entry.of_line()),
        two(entry.bound_lines()),
        two(entry.times_client(all)),
        three(entry.client_bytes_per_data_byte),
        exchanged,
        format!("{}, {}", two(cpu.client), two(cpu.nodes)),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

fn share(spread: Spread) -> String {
    marked(format!("{:.3}", spread.median), spread)
}

/// The rounds lie too far apart.
fn marked(text: String, spread: Spread) -> String {
    if spread.is_noisy() { format!("{text}~") } else { text }
}

/// `+48 %` for 1.48 times as much.
pub(super) fn percent(times: f64) -> String {
    format!("{:+.0} %", (times - 1.0) * 100.0)
}

/// What the tables do not show: line, memory and idle CPU time.
fn notes(entries: &[Entry]) -> String {
    let lines = entries.iter().map(|entry| entry.line_bytes_s / 1e6);
    let (low, high) = lines.fold((f64::MAX, 0.0_f64), |(l, h), x| (l.min(x), h.max(x)));
    let most = |of: &dyn Fn(&Entry) -> Option<f64>| entries.iter().filter_map(of).reduce(f64::max);
    let mut notes = Vec::new();
    if high > 0.0 {
        notes.push(format!(
            "Line (one plain TCP stream on the same link, same run): {low:.1} to {high:.1} MB/s."
        ));
    }
    let small = |entry: &Entry| {
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

#[cfg(test)]
mod tests {
    use super::super::entry::tests::around;
    use super::super::setting::Setting;
    use super::super::setting::tests::setting;
    use super::*;

    #[test]
    fn bounds_and_what_was_published_stand_beside_what_was_measured() {
        let noisy = Spread { median: 54e6, min: 30e6, max: 60e6 };
        let mut small = around(&setting(), "encoder", 0.5);
        (small.pattern, small.client_bytes_per_data_byte) = (Pattern::Write4k, Some(1.0625));
        let six = Setting { nodes: 6, ..setting() };
        let entries = [
            around(&setting(), "client", 0.59),
            around(&setting(), "encoder", 0.984),
            Entry { data_bytes_s: noisy, ..around(&six, "encoder", 0.9) },
            small,
        ];
        let tables = tables(&entries);
        assert!(tables.iter().all(|t| t.rows.iter().all(|row| row.len() == t.head.len())));
        let [published, writes, small] = &tables[..] else { panic!("not three tables") };
        let expected = [
            "raid6 xor2d, 5 nodes, 256K, 500 Mbit/s, encoder",
            "0.984",
            "0.83",
            "0.590",
            "0.60",
            "+64 %",
            "+38 %",
        ];
        assert_eq!(published.rows, [expected.map(str::to_owned)]);
        let cells = &writes.rows[1];
        assert_eq!(&cells[1..5], ["59.0 (57.9-60.2)", "0.984", "1.00", "1.67"]);
        assert_eq!(cells[6], "0.820 (1.333)");
        assert_eq!(writes.rows[2][1], "54.0~ (30.0-60.0)");
        assert!(small.note.contains("costs the client 256 bytes"), "{}", small.note);
        assert!(small.note.contains("at its peak: 100 MiB"));
        assert!(super::tables(&[]).is_empty());
    }

    #[test]
    fn what_was_not_on_links_is_not_set_beside_what_was() {
        let loopback = Setting { link_bit_s: None, ..setting() };
        let tables = tables(&[around(&loopback, "encoder", 0.9)]);
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].rows[0][3..=6], ["-", "-", "-", "-"]);
    }
}
