//! I/O that nobody waits for any more. A member that has failed may never answer, and holds up no
//! request, job, update, removal or stop. What is in flight on it counts as failed at once. Until
//! it is really answered, the kernel may still read or write its memory: scratch is set aside so
//! long, and a read into a request's own buffer is asked for again with another buffer.

use super::Array;
use crate::action::{Action, IoError};
use crate::{Buf, IoId, IoOp};

impl Array {
    /// Answers what was given up, as failed.
    pub(crate) fn drive_abandoned(&mut self) {
        while let Some(io) = self.ios.abandoning.pop_front() {
            let Some((owner, id, op)) = self.ios.abandon(io) else { continue };
            let buf = op.buf();
            self.lend(io, buf);
            self.actions.push_back(Action::Abandon { io, buf });
            self.keeper.answered(id);
            self.tell_owner(owner, Some((id, op, IoError::ABANDONED)), None);
        }
    }

    /// The memory of an I/O that is not waited for: nobody may use it until the I/O is answered.
    pub(crate) fn lend(&mut self, io: IoId, buf: Option<Buf>) {
        if let Some(buf) = buf {
            self.pool.lend(io, buf);
        }
    }

    /// An I/O that nobody waited for is answered.
    pub(crate) fn unlend(&mut self, io: IoId) {
        if self.pool.unlend(io) {
            self.queues.ready.extend(self.queues.scratch_waiters.drain(..));
            self.pump_pages();
        }
    }
}

impl IoOp {
    /// The memory it works on.
    pub(crate) const fn buf(self) -> Option<Buf> {
        match self {
            Self::Read { buf, .. } | Self::Write { buf, .. } => Some(buf),
            Self::WriteZeroes { .. } | Self::Discard { .. } | Self::Flush => None,
        }
    }
}
