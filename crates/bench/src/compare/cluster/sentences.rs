//! Sentences that follow from the figures.

use super::entry::{ClusterEntry, PublishedFigures};
use super::setting::{Setting, link, number};
use super::words::{Pattern, Storage};
use crate::compare::words::{between, range, two};

/// Least share of what was published that counts as seen.
const SEEN: f64 = 0.9;
/// Share of what the links allow that counts as all of it.
const ALL_OF_IT: f64 = 0.9;

pub(super) fn sentences(entries: &[ClusterEntry]) -> Vec<String> {
    let mut says: Vec<String> = Vec::new();
    for (level, nodes) in [("raid4", 3), ("raid6", 5)] {
        let array: Vec<&ClusterEntry> =
            entries.iter().filter(|e| e.level_name() == level && e.nodes == nodes).collect();
        says.extend(seen(&array, entries));
    }
    says.extend(over_nodes(entries));
    says.extend(reads(entries));
    says.extend(on_disk(entries));
    says.extend(beside_gluster(entries));
    says.extend(losses(entries));
    says.extend(unlimited(entries));
    says
}

/// Says whether what was published is seen here.
fn seen(array: &[&ClusterEntry], all: &[ClusterEntry]) -> Option<String> {
    let comparable =
        |entry: &&&ClusterEntry| entry.is_made_by_nodes() && PublishedFigures::of(entry).is_some();
    let made: Vec<&&ClusterEntry> = array.iter().filter(comparable).collect();
    let first = made.first()?;
    let figures = PublishedFigures::of(first)?;
    let gains = made.iter().map(|entry| entry.of_line() / figures.ceiling);
    let (low, high) = range(gains)?;
    let verdict = match (low >= figures.gain * SEEN, high >= figures.gain * SEEN) {
        (true, _) => "is seen",
        (false, true) => "is seen with some blocks only",
        (false, false) => "is not seen",
    };
    let clients = made.iter().filter_map(|entry| entry.client(all)).map(ClusterEntry::of_line);
    let client = range(clients).map(|ends| format!("; the client alone {}", shares(ends)));
    let client = client.unwrap_or_default();
    let made = range(made.iter().map(|entry| entry.of_line()))?;
    Some(format!(
        "{}, {}: a client that sends the parity, too, sends {:.0} % more, and {} came back where \
         parity made by nodes was first published. That {verdict}: here it is {} over the client's \
         ceiling of {:.2} of the line. Parity made by nodes writes {}{client}.",
        first.array(),
        number(first.nodes, "node"),
        figures.costs() * 100.0,
        percent(figures.gain),
        between((low, high), percent),
        figures.ceiling,
        shares(made),
    ))
}

/// Says what becomes of it with more nodes.
fn over_nodes(entries: &[ClusterEntry]) -> Option<String> {
    let sweep = |entry: &&ClusterEntry| {
        let alone = entry.clients == 1 && entry.pattern == Pattern::Write;
        alone
            && entry.is_made_by_nodes()
            && entry.layout.as_deref() == Some("xor2d")
            && entry.storage == Storage::Memory
            && entry.has_block_that_suits()
            && entry.link_bit_s.is_some()
    };
    let entries: Vec<&ClusterEntry> = entries.iter().filter(sweep).collect();
    let least = entries.iter().min_by(|a, b| a.of_line().total_cmp(&b.of_line()))?;
    let most = entries.iter().max_by(|a, b| a.of_line().total_cmp(&b.of_line()))?;
    let (few, many) = range(entries.iter().map(|entry| f64::from(entry.nodes)))?;
    (few < many).then(|| {
        format!(
            "From {few:.0} to {many:.0} nodes, parity made by nodes leaves a client between {:.2} \
             of the line ({}) and {:.2} ({}); the paper had five nodes.",
            least.of_line(),
            number(least.nodes, "node"),
            most.of_line(),
            number(most.nodes, "node"),
        )
    })
}

fn reads(entries: &[ClusterEntry]) -> Option<String> {
    let reads = entries.iter().filter(|entry| {
        entry.pattern.reads() && entry.link_bit_s.is_some() && entry.schedule != "gluster"
    });
    let mut parts = Vec::new();
    for pattern in [Pattern::Read, Pattern::ReadOneLost, Pattern::ReadTwoLost] {
        let reads = reads.clone().filter(|entry| entry.pattern == pattern);
        let parts_of_bound = reads.filter_map(|entry| Some(entry.of_line() / entry.bound_lines()?));
        let Some(ends) = range(parts_of_bound) else { continue };
        let part = between(ends, two);
        let without = match pattern.lost() {
            0 => "with all nodes",
            1 => "without one",
            _ => "without two",
        };
        parts.push(format!("{part} {without}"));
    }
    (!parts.is_empty())
        .then(|| format!("Reads carry, of what the links allow, {}.", parts.join(", ")))
}

fn on_disk(entries: &[ClusterEntry]) -> Option<String> {
    let ratio = |entry: &ClusterEntry| {
        if entry.storage != Storage::Disk {
            return None;
        }
        let memory = Setting { storage: Storage::Memory, ..entry.setting.clone() };
        let same = |other: &&ClusterEntry| {
            other.setting == memory
                && (other.pattern, &other.schedule) == (entry.pattern, &entry.schedule)
        };
        Some(entry.data_bytes_s.median / entries.iter().find(same)?.data_bytes_s.median)
    };
    let of = |pattern: &dyn Fn(Pattern) -> bool, what: &str| {
        let of_pattern = entries.iter().filter(|entry| pattern(entry.pattern));
        Some(format!("{what} are {}", times(range(of_pattern.filter_map(ratio))?)))
    };
    let parts = [
        of(&|pattern| pattern == Pattern::Write, "writes of whole stripes"),
        of(&|pattern| pattern.reads(), "reads"),
        of(&|pattern| pattern == Pattern::Write4k, "writes of 4K"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty())
        .then(|| format!("With volumes in files, which the paper left out, {}.", parts.join(", ")))
}

fn beside_gluster(entries: &[ClusterEntry]) -> Option<String> {
    let ratio = |entry: &ClusterEntry| {
        if !entry.is_made_by_nodes() {
            return None;
        }
        let beside = entry.gluster(entries)?;
        Some(entry.data_bytes_s.median / beside.data_bytes_s.median)
    };
    let writes = entries.iter().filter(|entry| entry.pattern == Pattern::Write);
    let times = times(range(writes.filter_map(ratio))?);
    Some(format!("Beside a dispersed GlusterFS volume on the same links, writes are {times}."))
}

/// Says where Braid loses: against what the links allow, and against the client alone.
fn losses(entries: &[ClusterEntry]) -> Vec<String> {
    let ours = || entries.iter().filter(|entry| entry.schedule != "gluster");
    let of_bound = |entry: &&ClusterEntry| Some(entry.of_line() / entry.bound_lines()?);
    let short: Vec<&ClusterEntry> =
        ours().filter(|entry| of_bound(entry).is_some_and(|part| part < ALL_OF_IT)).collect();
    let mut losses = Vec::new();
    let least = short.iter().min_by(|a, b| {
        let part = |entry: &ClusterEntry| of_bound(&entry).unwrap_or(1.0);
        part(a).total_cmp(&part(b))
    });
    if let Some(least) = least {
        let measured = ours().filter(|entry| entry.bound_bytes_s.is_some()).count();
        losses.push(format!(
            "Where Braid loses: {} of {measured} figures stay below {ALL_OF_IT:.1} of what the \
             links allow; the least is {} ({}), {:.2} of it.",
            short.len(),
            least.case,
            least.pattern,
            of_bound(least).unwrap_or(0.0),
        ));
    }
    let times = |entry: &ClusterEntry| entry.times_client(entries).unwrap_or(1.0);
    let slower: Vec<&ClusterEntry> = ours().filter(|entry| times(entry) < 1.0).collect();
    if let Some(worst) = slower.iter().min_by(|a, b| times(a).total_cmp(&times(b))) {
        let cores = worst.cores().map_or_else(String::new, |cores| {
            format!(", with {cores:.1} cores busy for clients and nodes together")
        });
        losses.push(format!(
            "In {} parity made by nodes is slower than parity made by the client; the worst is {}, \
             {:.2} times as fast{cores}.",
            number(u16::try_from(slower.len()).unwrap_or(u16::MAX), "case"),
            worst.case,
            times(worst),
        ));
    }
    losses
}

/// Says what the figures of loopback are good for.
fn unlimited(entries: &[ClusterEntry]) -> Option<String> {
    let loopback = entries.iter().filter(|entry| entry.link_bit_s.is_none()).count();
    (loopback > 0).then(|| {
        format!(
            "{loopback} of {} figures are of {}, unshaped: links were neither limited nor counted, \
             and one machine did the work of all hosts. They tell what that costs, and nothing of \
             links.",
            entries.len(),
            link(None),
        )
    })
}

/// `+48 %` for 1.48 times as much.
pub(super) fn percent(times: f64) -> String {
    format!("{:+.0} %", (times - 1.0) * 100.0)
}

/// `0.95 to 0.98 of the line`, or one number if they say the same.
fn shares(ends: (f64, f64)) -> String {
    format!("{} of the line", between(ends, two))
}

fn times(ends: (f64, f64)) -> String {
    format!("{} times as fast", between(ends, two))
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::around;
    use super::super::gluster;
    use super::super::setting::tests::setting;
    use super::*;

    fn small() -> Setting {
        Setting { block_bytes: 16 << 10, ..setting() }
    }

    #[test]
    fn what_was_published_is_seen_or_is_not() {
        let mut entries = vec![
            around(&setting(), "client", 0.59),
            around(&setting(), "encoder", 0.98),
            around(&small(), "encoder", 0.84),
        ];
        let text = sentences(&entries).join("\n");
        assert!(text.contains("raid6 xor2d, 5 nodes: a client that sends the parity"), "{text}");
        assert!(text.contains("sends 67 % more") && text.contains("+38 % came back"), "{text}");
        assert!(text.contains("That is seen: here it is +40 % to +63 % over"), "{text}");
        assert!(text.contains("0.84 to 0.98 of the line"), "{text}");
        assert!(text.contains("the client alone 0.59 of the line"), "{text}");
        entries[2] = around(&small(), "encoder", 0.5);
        assert!(sentences(&entries)[0].contains("is seen with some blocks only"));
        let entries = [around(&small(), "encoder", 0.6)];
        assert!(sentences(&entries)[0].contains("That is not seen: here it is +0 %"));
    }

    #[test]
    fn where_it_loses_is_said() {
        let entries = [
            around(&setting(), "client", 0.59),
            around(&setting(), "encoder", 0.55),
            around(&gluster::beside(&setting()), "gluster", 0.5),
        ];
        let text = sentences(&entries).join("\n");
        assert!(text.contains("1 of 2 figures stay below 0.9"), "{text}");
        assert!(text.contains("256K, 500 Mbit/s, encoder (write), 0.55 of it"), "{text}");
        assert!(text.contains("In 1 case parity made by nodes is slower"), "{text}");
        assert!(text.contains("same links, writes are 1.10 times as fast"), "{text}");
        let fine = [around(&setting(), "encoder", 0.97)];
        assert!(!sentences(&fine).join("\n").contains("loses"));
    }

    #[test]
    fn nodes_disks_and_loopback_are_told_of() {
        let nodes =
            |nodes, block_kib: u64| Setting { nodes, block_bytes: block_kib << 10, ..setting() };
        let disk = Setting { storage: Storage::Disk, ..setting() };
        let entries = [
            around(&nodes(4, 64), "encoder", 0.97),
            around(&nodes(34, 4), "encoder", 0.9),
            around(&setting(), "encoder", 1.0),
            around(&disk, "encoder", 0.8),
            around(&Setting { link_bit_s: None, ..setting() }, "encoder", 5.0),
        ];
        let text = sentences(&entries).join("\n");
        assert!(text.contains("From 4 to 34 nodes"), "{text}");
        assert!(text.contains("0.90 of the line (34 nodes) and 0.97 (4 nodes)"), "{text}");
        assert!(text.contains("writes of whole stripes are 0.80 times as fast"), "{text}");
        assert!(text.contains("1 of 5 figures are of loopback"), "{text}");
        assert!(sentences(&[]).is_empty());
    }
}
