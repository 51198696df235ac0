//! Chapter of arrays over nodes.

use super::entry::{self, ClusterEntry, PublishedFigures};
use super::{plots, sentences, tables};
use crate::model::{Cell, Chapter, Found, Measured, Spread};

/// The chapter, out of what was counted.
pub(super) fn chapter(found: &Found) -> Chapter {
    let entries = entry::entries(found);
    Chapter {
        title: "Parity over nodes: made by the client, or by the nodes".to_owned(),
        about: about(),
        says: sentences::sentences(&entries),
        tables: tables::tables(&entries),
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

/// Every number of an entry.
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
