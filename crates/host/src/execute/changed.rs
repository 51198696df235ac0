//! I/O on a member whose changes are kept in an overlay. Reads take a run of sectors from there or
//! from the member; writes go to the overlay, and their flush has two steps.

use std::io;
use std::sync::Arc;

use braid_array::{Buf, IoOp, SECTOR_BYTES};
use rustix::io::Errno;

use super::transfer::Transfer;
use crate::driver::Op;
use crate::lock::LockedFile;
use crate::member::{Dirty, Overlay};

/// Progress of a read, write or flush.
#[derive(Debug)]
pub(super) struct Changes {
    overlay: Arc<Overlay>,
    /// Start of the member in its file, in bytes.
    start: u64,
    durable: Durable,
}

/// Progress of a flush.
#[derive(Debug)]
enum Durable {
    /// Nothing yet. The map of the changes has then to be stored as it is here.
    Nothing(Dirty),
    /// The changes; the map is stored and to be flushed, too.
    Sectors,
    All,
}

impl Changes {
    pub(super) fn of(overlay: &Arc<Overlay>, start: u64, op: IoOp) -> Self {
        let dirty = if op == IoOp::Flush { overlay.dirty() } else { Dirty::default() };
        Self { overlay: Arc::clone(overlay), start, durable: Durable::Nothing(dirty) }
    }

    /// Returns the next operation for the remaining part.
    pub(super) fn next(
        &self,
        op: IoOp,
        transfer: &Transfer,
        syncing: bool,
        member: &Arc<LockedFile>,
    ) -> Op {
        let &Transfer { offset, done_bytes, .. } = transfer;
        let from = offset + u64::from(done_bytes);
        let sector = (from - self.start) / SECTOR_BYTES;
        let rest = |buf: Buf| buf.slice(done_bytes, buf.len - done_bytes);
        let (file, place) = self.overlay.place(sector);
        match op {
            IoOp::Read { buf, .. } => {
                let buf = rest(buf);
                let run = self.overlay.run(sector, u64::from(buf.len) / SECTOR_BYTES);
                let buf = buf.slice(0, (run.sectors * SECTOR_BYTES) as u32);
                if run.changed {
                    return Op::Read { file, offset: place, buf };
                }
                Op::Read { file: Arc::clone(member), offset: from, buf }
            }
            IoOp::Write { buf, .. } if !syncing => {
                Op::Write { file, offset: place, buf: rest(buf), dsync: false }
            }
            _ => Op::Sync { file },
        }
    }

    /// A call has ended.
    pub(super) fn note(
        &mut self,
        op: IoOp,
        transfer: &Transfer,
        syncing: bool,
        result: Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let moved = result?;
        match op {
            IoOp::Write { fua, .. } if !syncing => {
                let from = transfer.offset + u64::from(transfer.done_bytes) - self.start;
                let sectors = u64::from(moved) / SECTOR_BYTES;
                self.overlay.note_written(from / SECTOR_BYTES, sectors);
                if fua {
                    self.durable = Durable::Nothing(self.overlay.dirty());
                }
            }
            IoOp::Write { .. } | IoOp::Flush => match &self.durable {
                Durable::Nothing(dirty) if dirty.is_empty() => self.durable = Durable::All,
                Durable::Nothing(dirty) => {
                    self.overlay.store(dirty).map_err(|error| errno_of(&error))?;
                    self.durable = Durable::Sectors;
                }
                Durable::Sectors | Durable::All => self.durable = Durable::All,
            },
            _ => {}
        }
        Ok(moved)
    }

    /// Returns whether another flush is due.
    pub(super) const fn is_half_durable(&self) -> bool {
        matches!(self.durable, Durable::Sectors)
    }
}

pub(super) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
