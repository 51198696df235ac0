//! A deliberate fault: data that nodes store from their journals do not arrive.

use braid_array::{Buf, IoOp};

/// Buffer just read from the journal of a volume.
#[derive(Debug, Default)]
pub(super) struct Replay {
    read: Option<Buf>,
}

impl Replay {
    /// Returns whether this I/O writes the buffer just read from the journal, which begins at
    /// `journal`, to its place.
    pub(super) fn stores(&mut self, op: IoOp, journal: u64) -> bool {
        let read = self.read.take();
        match op {
            IoOp::Read { sector, buf } if sector >= journal => {
                self.read = Some(buf);
                false
            }
            IoOp::Write { sector, buf, .. } => read == Some(buf) && sector < journal,
            _ => false,
        }
    }
}
