//! Which charts results make: for everything that was varied alone, one with it along the axis.
//! Values are in lines, so that runs on different links and busy machines compare.

use std::collections::{BTreeMap, BTreeSet};

use super::results::{Entry, Results};
use super::svg::{Chart, Point, Rule, Series};
use crate::args::Size;

/// What is varied in a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Block,
    Nodes,
    Clients,
}

/// By schedule, for people who cannot tell red from green, too.
const COLOURS: [(&str, &str); 6] = [
    ("client", "#d55e00"),
    ("chain", "#0072b2"),
    ("static", "#56b4e9"),
    ("encoder", "#009e73"),
    ("mix", "#cc79a7"),
    ("gluster", "#e69f00"),
];

/// Names of files, and the charts.
pub(super) fn charts(results: &Results) -> Vec<(String, Chart)> {
    let mut found = Vec::new();
    for axis in [Axis::Block, Axis::Nodes, Axis::Clients] {
        let mut groups: BTreeMap<String, Vec<&Entry>> = BTreeMap::new();
        for entry in results.results.iter().filter(|entry| entry.schedule != "gluster") {
            groups.entry(axis.file(entry)).or_default().push(entry);
        }
        for (file, entries) in groups {
            let places: BTreeSet<u64> = entries.iter().map(|entry| axis.place(entry)).collect();
            if places.len() > 1 {
                let places: Vec<u64> = places.into_iter().collect();
                found.push((file, chart(axis, &places, &entries, results)));
            }
        }
    }
    found
}

impl Axis {
    fn place(self, entry: &Entry) -> u64 {
        match self {
            Self::Block => entry.block_bytes,
            Self::Nodes => entry.nodes.into(),
            Self::Clients => entry.clients.into(),
        }
    }

    fn name(self, place: u64) -> String {
        if self == Self::Block { Size(place).to_string() } else { place.to_string() }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Nodes => "nodes",
            Self::Clients => "clients",
        }
    }

    /// What all entries of a chart have in common.
    fn common(self, entry: &Entry) -> Vec<String> {
        let mut words = vec![entry.level.clone()];
        words.extend(entry.layout.clone());
        let number = |count: u16, one: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {one}s"),
        };
        let fixed = [
            (Self::Nodes, number(entry.nodes, "node")),
            (Self::Clients, number(entry.clients, "client")),
            (Self::Block, format!("blocks of {}", Size(entry.block_bytes))),
        ];
        words.extend(fixed.into_iter().filter(|(axis, _)| *axis != self).map(|(_, word)| word));
        words.push(entry.storage.clone());
        words.push(entry.fabric.clone());
        words.push(match entry.link_bit_s {
            Some(rate) => format!("{} Mbit/s", rate / 1_000_000),
            None => "loopback".to_owned(),
        });
        words
    }

    fn file(self, entry: &Entry) -> String {
        let words = self.common(entry).join("-").replace([' ', '/'], "-").to_lowercase();
        format!("{}-by-{}-{words}.svg", entry.pattern, self.label())
    }
}

fn chart(axis: Axis, places: &[u64], entries: &[&Entry], results: &Results) -> Chart {
    let first = entries[0];
    let series = COLOURS.iter().filter_map(|&(name, colour)| {
        let at = |place: &u64| {
            entries.iter().find(|entry| entry.schedule == name && axis.place(entry) == *place)
        };
        let points: Vec<Option<Point>> =
            places.iter().map(|place| Some(point(at(place)?))).collect();
        let bound = |place| at(place).and_then(|e| Some(e.bound_bytes_s? / e.line_bytes_s));
        let bounds = places.iter().map(bound).collect();
        let drawn = points.iter().any(Option::is_some);
        drawn.then(|| Series { name: name.to_owned(), colour, points, bounds })
    });
    Chart {
        title: format!("{}: {}", first.pattern, axis.common(first).join(", ")),
        x_label: axis.label().to_owned(),
        y_label: "data, in lines (1 = one plain TCP stream on the same link)".to_owned(),
        places: places.iter().map(|&place| axis.name(place)).collect(),
        series: series.collect(),
        rules: rules(axis, first, results),
    }
}

fn point(entry: &Entry) -> Point {
    let Entry { data_bytes_s: rate, line_bytes_s: line, .. } = entry;
    Point { value: rate.median / line, min: rate.min / line, max: rate.max / line }
}

/// The ceiling, what Otsuji and Tatebe published for the same array, and what a peer does.
fn rules(axis: Axis, entry: &Entry, results: &Results) -> Vec<Rule> {
    let rule = |name: &str, value, colour| Rule { name: name.to_owned(), value, colour };
    let mut rules = vec![rule("line", 1.0, "#000")];
    if entry.pattern != "write" || axis != Axis::Block || entry.clients != 1 {
        return rules;
    }
    match (entry.level.as_str(), entry.layout.as_deref(), entry.nodes) {
        // 1.38 times what naive could do at best, 0.6 of the line.
        ("raid6", Some("xor2d"), 5) => rules.push(rule("paper: 1.38 x naive", 0.83, "#888")),
        // "Nearly 50 % more" than naive, which could do 2/3 of the line at best.
        ("raid4", _, 3) => rules.push(rule("paper: 1.5 x naive", 1.0, "#888")),
        _ => {}
    }
    let peer = results.results.iter().find(|other| {
        let key = |e: &Entry| (e.nodes, e.clients, e.link_bit_s, e.pattern.clone());
        other.schedule == "gluster" && key(other) == key(entry)
    });
    rules.extend(peer.map(|peer| rule("GlusterFS 3+2", peer.of_line(), "#e69f00")));
    rules
}

#[cfg(test)]
mod tests {
    use super::super::results::Machine;
    use super::super::results::tests::entry;
    use super::*;

    #[test]
    fn what_varies_alone_makes_a_chart() {
        let mut entries = Vec::new();
        for (nodes, rate) in [(4, 57e6), (5, 58e6), (6, 59e6)] {
            entries.push(entry("client", nodes, rate / 2.0));
            entries.push(entry("encoder", nodes, rate));
        }
        let mut other = entry("encoder", 5, 55e6);
        other.block_bytes = 16 << 10;
        entries.push(other);
        let charts = charts(&Results::new(Machine::this(), entries));
        let files: Vec<&str> = charts.iter().map(|(file, _)| file.as_str()).collect();
        let link = "memory-tcp-500-mbit-s.svg";
        assert_eq!(
            files,
            [
                format!("write-by-block-raid6-xor2d-5-nodes-1-client-{link}"),
                format!("write-by-nodes-raid6-xor2d-1-client-blocks-of-256k-{link}"),
            ]
        );
        let by_block = &charts[0].1;
        assert_eq!(by_block.places, ["16K", "256K"]);
        let names: Vec<&str> = by_block.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["client", "encoder"]);
        assert!(by_block.series[0].points[0].is_none(), "not measured");
        assert!(by_block.rules.iter().any(|rule| rule.value == 0.83));
        assert_eq!(charts[1].1.places, ["4", "5", "6"]);
    }
}
