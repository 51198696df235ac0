//! Plots of entries: one for everything that was varied alone, with it along the axis. Values are
//! in lines, so that runs on different links and busy machines compare; over loopback, which has
//! none, in MB/s.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{ClusterEntry, PublishedFigures};
use super::setting::{link, number};
use super::words::{Pattern, Storage, WriteSchedule};
use crate::compare::words::{names, size};
use crate::model::{Axis, Plot, Point, Rule, Series, Style};
use crate::rig::file_name;

names! {
    /// Quantity that is varied in a plot.
    enum Varied {
        Block = "block",
        Nodes = "number of nodes",
        Clients = "number of clients",
        Storage = "storage",
    }
}

pub(super) fn plots(entries: &[ClusterEntry]) -> Vec<Plot> {
    let mut found = Vec::new();
    for varied in Varied::ALL {
        let mut groups: BTreeMap<String, Vec<&ClusterEntry>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.schedule != "gluster") {
            groups.entry(varied.title(entry, false)).or_default().push(entry);
            if varied == Varied::Nodes && entry.has_block_that_suits() {
                groups.entry(varied.title(entry, true)).or_default().push(entry);
            }
        }
        for (title, group) in &groups {
            let places: BTreeSet<u64> = group.iter().map(|entry| varied.place(entry)).collect();
            let within = |other: &Vec<&ClusterEntry>| {
                other.len() > group.len() && group.iter().all(|entry| other.contains(entry))
            };
            if places.len() > 1 && !groups.values().any(within) {
                found.push(plot(varied, title.clone(), group, entries));
            }
        }
    }
    found
}

impl Varied {
    fn place(self, entry: &ClusterEntry) -> u64 {
        match self {
            Self::Block => entry.block_bytes,
            Self::Nodes => entry.nodes.into(),
            Self::Clients => entry.clients.into(),
            Self::Storage => u64::from(entry.storage == Storage::Disk),
        }
    }

    fn axis(self) -> Axis {
        match self {
            Self::Block => Axis::log2("block, bytes"),
            Self::Nodes => Axis::linear("nodes"),
            Self::Clients => Axis::linear("clients"),
            Self::Storage => Axis::names("volumes in", ["memory", "files on disk"]),
        }
    }

    /// Names the quantity that is varied, and what all entries of a plot have in common: a block,
    /// or that each has the one that suits its number of nodes.
    fn title(self, entry: &ClusterEntry, suits: bool) -> String {
        let mut words = vec![entry.array()];
        let block = if suits {
            "blocks as they suit".to_owned()
        } else {
            format!("blocks of {}", size(entry.block_bytes))
        };
        let storage = match entry.storage {
            Storage::Memory => "in memory",
            Storage::Disk => "on disk",
        };
        let fixed = [
            (Self::Nodes, number(entry.nodes, "node")),
            (Self::Clients, number(entry.clients, "client")),
            (Self::Block, block),
            (Self::Storage, storage.to_owned()),
        ];
        let fixed = fixed.into_iter().filter(|(varied, _)| *varied != self);
        words.extend(fixed.map(|(_, word)| word));
        words.extend((entry.fabric != "tcp").then(|| entry.fabric.clone()));
        words.push(link(entry.link_bit_s));
        format!("{} against the {self}: {}", entry.pattern, words.join(", "))
    }
}

fn plot(varied: Varied, title: String, group: &[&ClusterEntry], all: &[ClusterEntry]) -> Plot {
    let schedules = WriteSchedule::ALL.iter();
    let measured = schedules.filter_map(|schedule| measured(varied, group, schedule.name()));
    let series = measured.chain(bounds(varied, group)).chain(published(varied, group));
    let label = match group[0].link_bit_s {
        Some(_) => "data, in lines (1 = one plain TCP stream on the same link)",
        None => "data, MB/s",
    };
    let id = file_name(&format!("cluster {title}"));
    Plot::new(id, title, [varied.axis(), Axis::linear(label)], series)
        .with_rules(rules(varied, group, all))
}

fn places<'a>(
    varied: Varied,
    group: &[&'a ClusterEntry],
    schedule: &str,
) -> BTreeMap<u64, &'a ClusterEntry> {
    let same = group.iter().filter(|entry| entry.schedule == schedule);
    same.map(|entry| (varied.place(entry), *entry)).collect()
}

fn measured(varied: Varied, group: &[&ClusterEntry], schedule: &str) -> Option<Series> {
    let point = |(place, entry): (u64, &ClusterEntry)| match entry.link_bit_s {
        Some(_) => Point::of(place as f64, entry.lines()),
        None => Point::of(place as f64, entry.data_bytes_s.times(1e-6)),
    };
    let points = places(varied, group, schedule).into_iter().map(point);
    let series = Series::measured(format!("parity made by {schedule}"), points);
    (!series.points.is_empty()).then_some(series)
}

/// Returns the bounds of the links; schedules with the same bound share one line. The bound of one
/// link is omitted: it is drawn as a rule.
fn bounds(varied: Varied, group: &[&ClusterEntry]) -> Vec<Series> {
    let mut found: Vec<(Vec<&str>, Vec<Point>)> = Vec::new();
    for schedule in WriteSchedule::ALL {
        let places = places(varied, group, schedule.name());
        let point = |(place, entry): (&u64, &&ClusterEntry)| {
            Some(Point::at(*place as f64, entry.bound_lines()?))
        };
        let points: Vec<Point> = places.iter().filter_map(point).collect();
        if points.iter().all(|point| (point.y - 1.0).abs() < 1e-6) {
            continue;
        }
        match found.iter_mut().find(|(_, same)| *same == points) {
            Some((names, _)) => names.push(schedule.name()),
            None => found.push((vec![schedule.name()], points)),
        }
    }
    let series = |(names, points): (Vec<&str>, Vec<Point>)| {
        Series::new(format!("bound: {}", names.join(", ")), Style::Bound, points)
    };
    found.into_iter().map(series).collect()
}

/// Draws what was published of the same array: a figure for all blocks.
fn published(varied: Varied, group: &[&ClusterEntry]) -> Vec<Series> {
    let figures = group.iter().find_map(|entry| PublishedFigures::of(entry));
    if varied != Varied::Block {
        return Vec::new();
    }
    let Some(figures) = figures else { return Vec::new() };
    let places: BTreeSet<u64> = group.iter().map(|entry| varied.place(entry)).collect();
    let flat = |name: String, y: f64| {
        let points = places.iter().map(|&place| Point::at(place as f64, y));
        Series::new(name, Style::Published, points)
    };
    let gain = (figures.gain - 1.0) * 100.0;
    vec![
        flat(format!("published: nodes, {gain:+.0} %"), figures.made_by_nodes()),
        flat("published: client, computed".to_owned(), figures.ceiling),
    ]
}

/// The ceiling, and what another file system does.
fn rules(varied: Varied, group: &[&ClusterEntry], all: &[ClusterEntry]) -> Vec<Rule> {
    let first = group[0];
    if first.link_bit_s.is_none() {
        return Vec::new();
    }
    let mut rules = Vec::new();
    if first.pattern != Pattern::Write4k {
        rules.push(Rule::new("one link", 1.0));
    }
    if varied == Varied::Block {
        let beside = group.iter().find_map(|entry| entry.gluster(all));
        rules.extend(
            beside.map(|beside| {
                Rule::new("GlusterFS 3+2, parity made by its client", beside.of_line())
            }),
        );
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::around;
    use super::super::setting::Setting;
    use super::super::setting::tests::setting;
    use super::*;
    use crate::model::Scale;

    #[test]
    fn blocks_that_suit_make_one_plot_and_not_several_parts_of_it() {
        let nodes =
            |nodes, block_kib: u64| Setting { nodes, block_bytes: block_kib << 10, ..setting() };
        let entries = [
            around(&nodes(4, 64), "encoder", 0.9),
            around(&nodes(5, 64), "encoder", 0.9),
            around(&nodes(34, 4), "encoder", 0.9),
            around(&nodes(5, 16), "encoder", 0.9),
        ];
        let suits: Vec<bool> = entries.iter().map(ClusterEntry::has_block_that_suits).collect();
        assert_eq!(suits, [true, true, true, false]);
        let plots = plots(&entries);
        let by_nodes: Vec<&Plot> = plots.iter().filter(|plot| plot.x.label == "nodes").collect();
        let [one] = &by_nodes[..] else { panic!("not one plot: {plots:?}") };
        assert!(one.title.contains("blocks as they suit"), "{}", one.title);
        assert_eq!(one.series[0].points.len(), 3);
    }

    #[test]
    fn loopback_has_no_lines_and_storage_makes_bars() {
        let loopback = Setting { link_bit_s: None, ..setting() };
        let entries = [
            around(&loopback, "encoder", 2.0),
            around(&Setting { storage: Storage::Disk, ..loopback }, "encoder", 1.0),
        ];
        let plots = plots(&entries);
        let [bars] = &plots[..] else { panic!("not one plot") };
        assert!(matches!(&bars.x.scale, Scale::Names(names) if names.len() == 2));
        assert_eq!(bars.y.label, "data, MB/s");
        let heights: Vec<f64> = bars.series[0].points.iter().map(|p| p.y.round()).collect();
        assert_eq!((heights, bars.rules.len()), (vec![120.0, 60.0], 0));
    }
}
