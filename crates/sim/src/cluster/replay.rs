//! A deliberate fault: what nodes store from their journals arrives in the wrong order.

use braid_array::{Buf, IoOp};

use crate::disk::Disk;

/// What was to be stored from the journal of a volume, and is held back.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// It holds what was just read from the journal.
    read: Option<Buf>,
    writes: Vec<(u64, Vec<u8>)>,
}

impl Replay {
    /// Holds it back if it stores what was just read from the journal. All of that arrives before
    /// the next flush, the last first.
    pub(super) fn hides(
        &mut self,
        op: IoOp,
        disk: &mut Disk,
        journal_sectors: u64,
        arena: &[u8],
    ) -> bool {
        let journal = disk.sectors() - journal_sectors.min(disk.sectors());
        let read = self.read.take();
        match op {
            IoOp::Read { sector, buf } if sector >= journal => self.read = Some(buf),
            IoOp::Write { sector, buf, .. } if read == Some(buf) && sector < journal => {
                let bytes = &arena[buf.offset as usize..][..buf.len as usize];
                self.writes.push((sector, bytes.to_vec()));
                return true;
            }
            IoOp::Flush => {
                for (sector, bytes) in std::mem::take(&mut self.writes).into_iter().rev() {
                    disk.write(sector, &bytes, false);
                }
            }
            _ => {}
        }
        false
    }
}
