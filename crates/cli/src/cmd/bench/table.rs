//! Measurements as a table that reads well on a terminal and as Markdown: bound beside measured.

use super::results::{Entry, Results};
use crate::args::Size;

const SMALL_BYTES: u32 = 4096;
const MEBIBYTE: f64 = (1 << 20) as f64;
const HEAD: [&str; 14] = [
    "array",
    "nodes",
    "clients",
    "block",
    "storage",
    "pattern",
    "schedule",
    "MB/s (min-max)",
    "of line",
    "bound",
    "x client",
    "client B/B",
    "node B/B (bound)",
    "CPU s/GiB client, nodes",
];
/// Columns up to here are words.
const WORDS: usize = 1;

/// The table, in the order of the results.
pub(super) fn table(results: &Results) -> String {
    let rows: Vec<Vec<String>> = results.results.iter().map(|e| row(e, results)).collect();
    let head = HEAD.map(str::to_owned).to_vec();
    let all = || std::iter::once(&head).chain(&rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let rule = |(column, &width): (usize, &usize)| match column < WORDS {
        true => "-".repeat(width),
        false => format!("{}:", "-".repeat(width - 1)),
    };
    let rule = widths.iter().enumerate().map(rule).collect::<Vec<_>>();
    let mut text = String::new();
    for row in [&head, &rule].into_iter().chain(&rows) {
        let cell = |(column, cell): (usize, &String)| match column < WORDS {
            true => format!("| {cell:<0$} ", widths[column]),
            false => format!("| {cell:>0$} ", widths[column]),
        };
        text.extend(row.iter().enumerate().map(cell));
        text.push_str("|\n");
    }
    text
}

fn row(entry: &Entry, results: &Results) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let two = |number: Option<f64>| or_dash(number.map(|number| format!("{number:.2}")));
    let three = |number: Option<f64>| or_dash(number.map(|number| format!("{number:.3}")));
    let rate = entry.data_bytes_s;
    let layout = entry.layout.as_ref().map_or_else(String::new, |layout| format!(" {layout}"));
    let exchanged = match (entry.node_bytes_per_data_byte, entry.bound_node_bytes_per_data_byte) {
        (None, _) => "-".to_owned(),
        (found, None) => three(found),
        (found, bound) => format!("{} ({})", three(found), three(bound)),
    };
    let cpu = entry.cpu_s_per_gib;
    vec![
        format!("{}{layout}", entry.level),
        entry.nodes.to_string(),
        entry.clients.to_string(),
        Size(entry.block_bytes).to_string(),
        entry.storage.clone(),
        entry.pattern.clone(),
        entry.schedule.clone(),
        format!("{:.1} ({:.1}-{:.1})", rate.median / 1e6, rate.min / 1e6, rate.max / 1e6),
        format!("{:.3}", entry.of_line()),
        two(entry.bound_bytes_s.map(|bound| bound / entry.line_bytes_s)),
        two(times_client(entry, results)),
        three(entry.client_bytes_per_data_byte),
        exchanged,
        format!("{}, {}", two(cpu.client), two(cpu.nodes)),
    ]
}

/// How much faster than the same with the schedule `client`.
fn times_client(entry: &Entry, results: &Results) -> Option<f64> {
    let mut same = entry.clone();
    "client".clone_into(&mut same.schedule);
    let client = results.results.iter().find(|other| other.measures_the_same(&same))?;
    let times = entry.data_bytes_s.median / client.data_bytes_s.median;
    (entry.schedule != "client").then_some(times)
}

/// What the table does not show: line, memory and idle CPU time.
pub(super) fn notes(results: &Results) -> String {
    let lines = results.results.iter().map(|entry| entry.line_bytes_s);
    let (low, high) = lines.fold((f64::MAX, 0.0_f64), |(l, h), x| (l.min(x), h.max(x)));
    let most =
        |of: fn(&Entry) -> Option<f64>| results.results.iter().filter_map(of).reduce(f64::max);
    let mut text = String::new();
    if high > 0.0 {
        text += &format!(
            "Line (one plain TCP stream on the same link, same run): {:.1} to {:.1} MB/s.\n",
            low / 1e6,
            high / 1e6
        );
    }
    if results.results.iter().any(|entry| entry.link_bit_s.is_none()) {
        text += "Loopback, unshaped: links were neither limited nor counted.\n";
    }
    let small = |entry: &Entry| {
        let sent = entry.client_bytes_per_data_byte.filter(|_| entry.pattern == "write-4k")?;
        Some((sent - 1.0) * f64::from(SMALL_BYTES))
    };
    if let Some(bytes) = most(small) {
        text += &format!(
            "Beyond its data, a write of 4K costs the client {bytes:.0} bytes: messages, and \
             headers of every layer.\n"
        );
    }
    if let Some(bytes) = most(|entry| entry.node_memory_bytes.map(|bytes| bytes as f64)) {
        text += &format!("Memory of a node at its peak: {:.0} MiB at most.\n", bytes / MEBIBYTE);
    }
    if let Some(cpu) = most(|entry| entry.idle_nodes_cpu) {
        text += &format!(
            "CPU time of idle nodes, all together: {:.2} % of a core at most.\n",
            cpu * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::Machine;
    use super::super::results::tests::entry;
    use super::*;

    #[test]
    fn bounds_stand_beside_what_was_measured() {
        let entries = vec![entry("client", 5, 35e6), entry("encoder", 5, 59e6)];
        let results = Results::new(Machine::this(), entries);
        let text = table(&results);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{text}");
        let cells: Vec<&str> = lines[3].split('|').map(str::trim).collect();
        assert_eq!(cells[1], "raid6 xor2d");
        assert_eq!(cells[8], "59.0 (53.1-64.9)");
        assert_eq!(cells[9], "0.983");
        assert_eq!(cells[11], "1.69");
        assert_eq!(cells[13], "1.334 (1.333)");
        let mut small = entry("encoder", 5, 30e6);
        (small.pattern, small.client_bytes_per_data_byte) = ("write-4k".into(), Some(1.0625));
        let with_small = Results::new(Machine::this(), vec![small]);
        assert!(notes(&with_small).contains("costs the client 256 bytes"));
        assert!(notes(&results).contains("Memory of a node at its peak: 100 MiB"));
    }
}
