//! Where in the ring of a node its slots lie: those of positions, and those for reads.

use braid_array::{Buf, Role};

use super::{Pipeline, PlacedSchedule, Room};
use crate::ids::{Position, Slot};
use crate::set::Set;

impl Pipeline {
    /// Bytes of a node's ring.
    #[must_use]
    pub fn ring_bytes(&self, node: Role) -> u64 {
        let reads = self.params.reads;
        let others = reads.count - self.base_reads();
        self.read_starts[1][node.index()] + u64::from(others) * u64::from(reads.bytes)
    }

    /// Bytes at its beginning that may be used at any time.
    #[must_use]
    pub fn base_bytes(&self, node: Role) -> u64 {
        let reads = u64::from(self.base_reads()) * u64::from(self.params.reads.bytes);
        self.read_starts[0][node.index()] + reads
    }

    /// The slot for an arriving transfer, in the ring of the node it goes to; as long as the set.
    #[must_use]
    pub fn arrival(&self, plan: &PlacedSchedule, set: &Set, transfer: usize) -> Buf {
        let to = plan.schedule.transfers()[transfer].to;
        self.slot(set, to, plan.rank(transfer))
    }

    /// Slices that can arrive at a node for one slice-set at this position.
    #[must_use]
    pub fn arrivals(&self, position: Position, node: Role) -> u32 {
        self.rooms[position.encoder(self.params.nodes).index()][node.index()].received
    }

    /// The slot of an arrival that a plan does not have.
    #[must_use]
    pub fn idle(&self, set: &Set, node: Role, rank: u16) -> Buf {
        self.slot(set, node, rank.into())
    }

    /// The slot for the sum that is the `number`th not formed in place.
    #[must_use]
    pub fn fresh(&self, set: &Set, node: Role, number: u32) -> Buf {
        self.slot(set, node, self.room(set, node).received + number)
    }

    /// The slot for the old content of a row.
    #[must_use]
    pub fn old(&self, set: &Set, node: Role, row: u16) -> Buf {
        let room = self.room(set, node);
        self.slot(set, node, room.received + room.fresh + u32::from(row))
    }

    /// A slot for reads.
    ///
    /// # Panics
    /// When there is none of that number.
    #[must_use]
    pub fn read_slot(&self, node: Role, slot: Slot) -> Buf {
        let reads = self.params.reads;
        assert!(slot.0 < reads.count, "read slot {slot} of {}", reads.count);
        let (starts, number) = match slot.0.checked_sub(self.base_reads()) {
            None => (&self.read_starts[0], slot.0),
            Some(number) => (&self.read_starts[1], number),
        };
        let offset = starts[node.index()] + u64::from(number) * u64::from(reads.bytes);
        Buf { offset, len: reads.bytes }
    }

    fn room(&self, set: &Set, node: Role) -> Room {
        self.rooms[set.position.encoder(self.params.nodes).index()][node.index()]
    }

    fn slot(&self, set: &Set, node: Role, number: u32) -> Buf {
        let bytes = self.position_bytes(set.position);
        let start = self.starts[set.position.index()][node.index()];
        Buf { offset: start + u64::from(number) * u64::from(bytes), len: set.len }
    }
}
