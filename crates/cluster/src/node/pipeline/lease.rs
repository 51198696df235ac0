//! Lease of a client's ring: the base, or all of it; and the part that is kept when the client is
//! gone.

use super::seat::Seat;
use crate::ids::{Position, Slot};

/// Return of memory by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returning {
    pub(super) tag: u32,
    /// Returns the whole lease, so that nothing is used until the answer; otherwise nothing beyond
    /// the base is used.
    pub(super) all: bool,
}

/// A client's lease of its ring: the base from the beginning, the whole ring on request, and the
/// part with leftovers when the client is gone.
#[derive(Debug)]
pub(super) struct RingLease {
    /// All of the ring may be used; otherwise the base.
    pub(super) whole: bool,
    /// The client gives memory back, and waits for that.
    pub(super) returning: Option<Returning>,
    /// Bytes of the ring with leftovers, once the client is gone.
    pub(super) left_bytes: Option<u64>,
}

impl RingLease {
    /// Returns the bytes of the ring that may be used, or are kept.
    pub(super) fn bytes(&self, seat: &Seat) -> u64 {
        match self.left_bytes {
            Some(left) => left,
            None if self.whole => seat.pipeline.ring_bytes(seat.role),
            None => seat.pipeline.base_bytes(seat.role),
        }
    }

    /// Returns whether the client is returning its whole lease.
    fn returns_all(&self) -> bool {
        self.returning.is_some_and(|returning| returning.all)
    }

    /// Returns whether memory is granted for a position.
    pub(super) fn covers(&self, position: Position, seat: &Seat) -> bool {
        self.whole || seat.pipeline.base().contains(&position)
    }

    pub(super) fn may_use(&self, position: Position, seat: &Seat) -> bool {
        !self.returns_all() && self.covers(position, seat)
    }

    pub(super) fn may_read_at(&self, slot: Slot, seat: &Seat) -> bool {
        !self.returns_all() && (self.whole || slot.0 < seat.pipeline.base_reads())
    }
}
