//! How much of its ring a client may use: the base, or all; and how much is kept when it is gone.

use super::seat::Seat;
use crate::ids::{Position, Slot};

/// A client gives memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returning {
    pub(super) tag: u32,
    /// It uses nothing at all until it is answered; otherwise nothing beyond the base.
    pub(super) all: bool,
}

/// A client's lease of its ring: the base from the beginning, all of it when asked for, and what
/// it left when it is gone.
#[derive(Debug)]
pub(super) struct Lease {
    /// All of the ring may be used; otherwise the base.
    pub(super) whole: bool,
    /// The client gives memory back, and waits for that.
    pub(super) returning: Option<Returning>,
    /// The client is gone: so much of the ring holds what it left.
    pub(super) left_bytes: Option<u64>,
}

impl Lease {
    /// How much of the ring may be used, or is kept.
    pub(super) fn bytes(&self, seat: &Seat) -> u64 {
        match self.left_bytes {
            Some(left) => left,
            None if self.whole => seat.pipeline.ring_bytes(seat.role),
            None => seat.pipeline.base_bytes(seat.role),
        }
    }

    /// Does the client give back all that it may use?
    fn returns_all(&self) -> bool {
        self.returning.is_some_and(|returning| returning.all)
    }

    /// Is memory granted for a position?
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
