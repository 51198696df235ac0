//! The words in which a measurement is asked for: as they are typed, and as they are kept.

use crate::compare::words::names;

names! {
    /// Requests of clients.
    pub enum Pattern {
        /// Full stripes, one after the other.
        Write = "write",
        /// Long reads, one after the other.
        Read = "read",
        /// The same without one node.
        ReadOneLost = "read-1-lost",
        /// The same without two nodes.
        ReadTwoLost = "read-2-lost",
        /// Full stripes without one node.
        WriteOneLost = "write-1-lost",
        /// The same without two nodes.
        WriteTwoLost = "write-2-lost",
        /// 1M after 1M, each answered before the next.
        WriteAlone = "write-1m-alone",
        /// 4K at random places.
        Write4k = "write-4k",
        /// The same, one at a time, each durable before the next.
        Write4kDurable = "write-4k-durable",
        /// Nothing: the nodes rebuild one of them.
        Rebuild = "rebuild",
    }

    /// Places of nodes' volumes.
    pub enum Storage {
        /// In memory.
        Memory = "memory",
        /// In files.
        Disk = "disk",
    }

    /// Policy after an unclean stop.
    pub enum Policy {
        /// All parities are made anew.
        Resync = "resync",
        /// A resync of the stripes marked in a bitmap.
        Bitmap = "bitmap",
        /// Parts of stripes are recorded first.
        Ppl = "ppl",
        /// All is recorded first.
        Journal = "journal",
    }

    /// Maker of the parities.
    pub enum WriteSchedule {
        /// The client, which sends them as it sends data.
        Client = "client",
        /// The nodes, each parity along a chain through them.
        Chain = "chain",
        /// The nodes, with as many shared transfers as are known.
        Static = "static",
        /// One node, another one for every slice-set.
        Encoder = "encoder",
        /// The nodes, as `encoder`, or the client, whichever is less of a bottleneck at the moment.
        Mix = "mix",
    }
}

pub(super) struct ClusterFacts {
    pub(super) title: &'static str,
    /// The option that asks for it; writes are always measured.
    pub(super) option: &'static str,
    /// Nodes that the client does without.
    lost: u16,
}

const fn facts(title: &'static str, option: &'static str, lost: u16) -> ClusterFacts {
    ClusterFacts { title, option, lost }
}

/// Facts in the order of the patterns.
const FACTS: [ClusterFacts; Pattern::ALL.len()] = [
    facts("Writes of whole stripes", "", 0),
    facts("Reads", " --reads", 0),
    facts("Reads without one node", " --degraded-reads", 1),
    facts("Reads without two nodes", " --degraded-reads", 2),
    facts("Writes of whole stripes without one node", " --degraded-writes", 1),
    facts("Writes of whole stripes without two nodes", " --degraded-writes", 2),
    facts("Writes of 1M in sequence, each answered before the next", " --lone-writes", 0),
    facts("Writes of 4K at random places, 64 at once", " --small-writes", 0),
    facts("Writes of 4K at random places, each durable before the next", " --durable-writes", 0),
    facts("Rebuilding one node", " --rebuild", 0),
];

impl Pattern {
    pub(super) const fn facts(self) -> &'static ClusterFacts {
        &FACTS[self as usize]
    }

    /// Nodes that the client does without.
    pub const fn lost(self) -> u16 {
        self.facts().lost
    }

    /// Returns whether it changes what others measure later, whose members all have the same.
    pub const fn leaves_some_behind(self) -> bool {
        !self.reads() && self.lost() > 0
    }

    /// Nodes that the array has to do without.
    pub fn survived(self) -> u16 {
        self.lost().max(u16::from(self == Self::Rebuild))
    }

    /// Returns whether data go to the client.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadOneLost | Self::ReadTwoLost)
    }
}
