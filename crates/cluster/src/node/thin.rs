//! What keeps volumes thin: ranges that are to read as zeroes are given back, and what makes
//! parities right again writes only what is not right already.

use braid_array::{Compute, IoOp, SECTOR_BYTES};

use super::out::{Flight, Out};
use super::part::{Part, Work};
use super::pipe::Pipe;
use crate::set::Set;

/// The longest ranges that are compared.
const MAX_COMPARED_BYTES: u32 = 256 << 10;

impl Pipe {
    /// Begins to store, for a slice-set that goes. What is the same as what is there need not be
    /// written, if that could be read.
    pub(super) fn start_store(&self, (number, task): (u16, u16), unread: bool, out: &mut Out) {
        let Some((set, part)) = self.running(number) else { return };
        let (client, position) = (self.client, number);
        if let Work::Store { from, unless: Some(old), .. } = part.tasks[usize::from(task)].work
            && !unread
            && set.len <= MAX_COMPARED_BYTES
        {
            let (a, b) = (self.slot(part, set, from), self.slot(part, set, old));
            let flight = Flight::Same { client, position, task };
            return out.compute(flight, Compute::Compare { a, b });
        }
        self.write((number, task), out);
    }

    /// What is to be stored was compared with what is there.
    pub(super) fn compared(&mut self, (number, task): (u16, u16), same: bool, out: &mut Out) {
        if same {
            self.done(number, task, true, out);
        } else {
            self.write((number, task), out);
        }
    }

    fn write(&self, (number, task): (u16, u16), out: &mut Out) {
        let Some((set, part)) = self.running(number) else { return };
        let flight = Flight::Task { client: self.client, position: number, task };
        let (work, fua) = (&part.tasks[usize::from(task)].work, set.fua);
        if let Some(op) = self.store(set, work, part, fua) {
            out.io(flight, self.member, op);
        }
    }

    /// The operation that stores something; `None` for other tasks.
    pub(super) fn store(&self, set: &Set, work: &Work, part: &Part, fua: bool) -> Option<IoOp> {
        let sector = |row| {
            let byte = self.pipeline.member_byte(set.stripe, row, set.offset);
            self.data_sector + byte / SECTOR_BYTES
        };
        match *work {
            Work::Store { row, from, .. } => {
                Some(IoOp::Write { sector: sector(row), buf: self.slot(part, set, from), fua })
            }
            Work::Blank { row } => {
                let sectors = u64::from(set.len) / SECTOR_BYTES;
                Some(IoOp::WriteZeroes { sector: sector(row), sectors, unmap: true, fua })
            }
            _ => None,
        }
    }
}
