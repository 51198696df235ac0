//! A read, write or flush on its way. Its remaining part is done by the kernel, by a copy or by a
//! member's own thread.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use braid_array::{Buf, Instant, IoId, IoOp, MemberId};
use rustix::io::Errno;

use super::backends::WantedRead;
use super::changed::Changes;
use super::mapped::Mapped;
use super::transfer::Transfer;
use crate::driver::{Driver, Op};
use crate::lock::LockedFile;
use crate::token::Token;

/// A read, write or flush.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) io: IoId,
    pub(super) member: MemberId,
    pub(super) begun: Instant,
    pub(super) file: Arc<LockedFile>,
    pub(super) at_once: bool,
    pub(super) mapped: Option<Arc<Mapped>>,
    /// Thread that reads the member, if not the driver.
    pub(super) reader: Option<Sender<WantedRead>>,
    /// Set when writes go to an overlay.
    pub(super) changes: Option<Box<Changes>>,
    /// Its part of the executor's `given_bytes`.
    pub(super) given_bytes: u32,
    pub(super) op: IoOp,
    pub(super) transfer: Transfer,
    /// A flush is in flight: the operation itself, or the one that makes it durable.
    pub(super) syncing: bool,
    pub(super) then_sync: bool,
    /// The machine waits for it no longer: nothing more of it is begun.
    pub(super) abandoned: bool,
}

impl Flight {
    /// Returns whether another flush is due, of the map of changes.
    pub(super) fn is_half_durable(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.is_half_durable())
    }

    /// Gives the next operation to the member's own reader thread, if it has one. `None` leaves the
    /// operation to the driver.
    pub(super) fn have_read(&self, index: usize, op: &Op) -> Option<Result<(), Errno>> {
        let reader = self.reader.as_ref()?;
        match op {
            Op::Read { file, offset, buf } if Arc::ptr_eq(file, &self.file) => {
                let wanted = WantedRead { index, offset: *offset, len: buf.len };
                Some(reader.send(wanted).map_err(|_| Errno::NODEV))
            }
            _ => None,
        }
    }

    /// The bytes it has not moved.
    pub(super) const fn left_bytes(&self) -> u32 {
        self.transfer.len_bytes - self.transfer.done_bytes
    }

    /// Does the remaining part at once.
    pub(super) fn carry_out(&self, driver: &Driver<Token>) -> Result<u32, Errno> {
        let op = self.next();
        let copied = self.mapped.as_ref().and_then(|mapped| mapped.carry_out(driver.memory(), &op));
        copied.map_or_else(|| driver.carry_out(&op), Ok)
    }

    /// Notes that the driver does the rest.
    pub(super) fn note_given(&self) {
        if let (Some(mapped), IoOp::Write { .. }) = (&self.mapped, self.op) {
            mapped.note_written(self.transfer.offset, self.transfer.len_bytes as usize);
        }
    }

    /// Returns the next operation for the remaining part.
    pub(super) fn next(&self) -> Op {
        let Self { file, op, transfer, syncing, then_sync, .. } = self;
        if let Some(changes) = &self.changes {
            return changes.next(*op, transfer, *syncing, file);
        }
        let file = Arc::clone(file);
        let rest = |buf: Buf| buf.slice(transfer.done_bytes, buf.len - transfer.done_bytes);
        let offset = transfer.offset + u64::from(transfer.done_bytes);
        match *op {
            IoOp::Read { buf, .. } => Op::Read { file, offset, buf: rest(buf) },
            IoOp::Write { buf, fua, .. } if !syncing => {
                Op::Write { file, offset, buf: rest(buf), dsync: fua && !then_sync }
            }
            _ => Op::Sync { file },
        }
    }
}
