//! Parameters of a pipeline from its setup.

use braid_array::fabric::PeerId;
use braid_array::{Buf, IoOp, MemberId, Role, SECTOR_BYTES};

use super::part::{Part, SetSlot, TaskWork};
use crate::ids::{Epoch, SetVersion, Slot};
use crate::node::ids::{ArrayId, ClientId};
use crate::node::out::NodeOut;
use crate::pipeline::Pipeline;
use crate::set::Set;
use crate::wire::Message;

/// The node's seat in a pipeline: the client, the role, and the location of its data and its ring.
/// A seat never changes.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) client: ClientId,
    /// The connection to the client.
    pub(super) peer: PeerId,
    /// The array that the client was granted; always known when it writes.
    pub(super) array: Option<ArrayId>,
    pub(super) role: Role,
    /// Whether slice-sets may be opened.
    pub(super) write: bool,
    pub(super) member: MemberId,
    pub(super) volume_bytes: u64,
    /// First sector of the data on the member.
    pub(super) data_sector: u64,
    /// Where the ring begins in the arena.
    pub(super) ring: u64,
    pub(super) pipeline: Pipeline,
}

impl Seat {
    pub(super) const fn epoch(&self) -> Epoch {
        self.pipeline.params().epoch
    }

    /// Returns the version of a slice-set of the client.
    pub(super) const fn version(&self, set: &Set) -> SetVersion {
        SetVersion::new(self.epoch(), set.number)
    }

    /// Returns the array, if the client writes.
    pub(super) fn written_array(&self) -> Option<ArrayId> {
        if self.write { self.array } else { None }
    }

    /// Sends the client a message that answers no request.
    pub(super) fn tell(&self, message: &Message, out: &mut NodeOut) {
        out.send(self.peer, self.epoch(), message);
    }

    /// Returns the place of a slice-set's slot in the arena.
    pub(super) fn slot(&self, part: &Part, set: &Set, slot: SetSlot) -> Buf {
        let buf = match slot {
            SetSlot::Arrival(transfer) => self.pipeline.arrival(&part.plan, set, transfer),
            SetSlot::Idle(rank) => self.pipeline.idle(set, self.role, rank),
            SetSlot::Fresh(fresh) => self.pipeline.fresh(set, self.role, fresh),
            SetSlot::Old(row) => self.pipeline.old(set, self.role, row),
        };
        Buf { offset: self.ring + buf.offset, ..buf }
    }

    /// Returns the place of a slot for reads in the arena.
    pub(super) fn read_buf(&self, slot: Slot, bytes: u32) -> Buf {
        let buf = self.pipeline.read_slot(self.role, slot).slice(0, bytes);
        Buf { offset: self.ring + buf.offset, ..buf }
    }

    /// Returns the sector of a slice-set's row on the member.
    pub(super) fn sector(&self, set: &Set, row: u16) -> u64 {
        let byte = self.pipeline.member_byte(set.stripe, row, set.offset);
        self.data_sector + byte / SECTOR_BYTES
    }

    /// Returns the operation of a store; `None` for other tasks.
    pub(super) fn store(&self, set: &Set, work: &TaskWork, part: &Part, fua: bool) -> Option<IoOp> {
        match *work {
            TaskWork::Store { row, from, .. } => {
                let buf = self.slot(part, set, from);
                Some(IoOp::Write { sector: self.sector(set, row), buf, fua, fill: false })
            }
            TaskWork::Zeroes { row } => {
                let sectors = u64::from(set.len) / SECTOR_BYTES;
                let sector = self.sector(set, row);
                Some(IoOp::WriteZeroes { sector, sectors, unmap: true, fua })
            }
            _ => None,
        }
    }
}
