//! Figures that H. Otsuji and O. Tatebe published of parity made by nodes ("Implementation and
//! evaluation of cluster-wide RAID", University of Tsukuba): figures for two arrays, as shares of
//! the link.

use super::entry::ClusterEntry;
use super::words::{Pattern, Storage};

/// Figures of one array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PublishedFigures {
    /// Level as entries have it.
    level: &'static str,
    nodes: u16,
    /// Share that the client reaches at best when it sends the parity, too: computed.
    pub(super) ceiling: f64,
    /// Factor by which it was more with parity made by nodes.
    pub(super) gain: f64,
}

/// Two data nodes and one for parity: a client that sends the parity is 33 % slower than its link,
/// and "nearly 50 %" came back with every block. Five nodes: 12 blocks of data have 8 of parity,
/// and 38 % over the ceiling was measured.
const ALL: [PublishedFigures; 2] = [
    PublishedFigures { level: "raid4", nodes: 3, ceiling: 2.0 / 3.0, gain: 1.5 },
    PublishedFigures { level: "raid6", nodes: 5, ceiling: 0.6, gain: 1.38 },
];

impl PublishedFigures {
    /// Returns the published figures of the array of an entry, for one client, shaped links and
    /// memory.
    pub(super) fn of(entry: &ClusterEntry) -> Option<Self> {
        let same_code = entry.level != "raid6" || entry.layout.as_deref() == Some("xor2d");
        let same_test = entry.clients == 1
            && entry.pattern == Pattern::Write
            && entry.storage == Storage::Memory
            && entry.link_bit_s.is_some();
        if !(same_code && same_test) {
            return None;
        }
        ALL.into_iter().find(|one| (one.level, one.nodes) == (entry.level.as_str(), entry.nodes))
    }

    /// Share of the link that was measured there with parity made by nodes.
    pub(super) const fn made_by_nodes(self) -> f64 {
        self.ceiling * self.gain
    }

    /// The share of the link for a schedule; `None` for one that was not tried there.
    pub(super) fn share(self, entry: &ClusterEntry) -> Option<f64> {
        match entry.schedule.as_str() {
            "client" => Some(self.ceiling),
            _ => entry.is_made_by_nodes().then(|| self.made_by_nodes()),
        }
    }

    /// Share that the client loses if it has to send the parity.
    pub(super) fn costs(self) -> f64 {
        1.0 / self.ceiling - 1.0
    }
}
