//! Commands of a client. Each becomes requests as long as the client may have more in flight.

use braid_array::{Buf, Op, Request};

use super::super::session::{CommandKind, NbdCommand, SessionStep};
use super::{ClientConnection, Current, NbdTransfer, ServedCommand, Stop};
use crate::engine::core::Core;

/// Commands under way at most.
const MAX_JOBS: usize = 512;
/// Unsent headers and error replies at most, before no more commands are taken.
const MAX_UNSENT_BYTES: usize = 256 << 10;
/// Pieces in one message at most, about; the system's limit is 1024.
const MAX_UNSENT_PARTS: usize = 900;

impl ClientConnection {
    /// Goes on as far as possible.
    pub(in super::super) fn advance(&mut self, core: &mut Core) {
        if self.receiving {
            // Everything received was consumed as far as it could be.
            return;
        }
        loop {
            let went = match self.current {
                _ if self.closing || self.broken => return,
                None if self.held => return,
                Some(current) => self.issue(core, current),
                None => self.next_command(core),
            };
            match went {
                Ok(()) => {}
                Err(Stop::Input) if self.receive(core) => {}
                Err(_) => return,
            }
        }
    }

    /// Lets the session look at the input.
    fn next_command(&mut self, core: &mut Core) -> Result<(), Stop> {
        if self.exclusive
            || self.jobs.len() >= MAX_JOBS
            || self.out.bytes.len() > MAX_UNSENT_BYTES
            || self.out.parts() > MAX_UNSENT_PARTS
        {
            return Err(Stop::Own);
        }
        let unread = self.input.slice(self.start, self.end - self.start);
        // SAFETY: no receive is in flight (`advance`), so nobody else touches the input buffer.
        let input = unsafe { core.arena.memory().bytes(unread) };
        let (used, step) = self.session.step(input, &mut self.out.bytes);
        self.start += u32::try_from(used).expect("no more than was given");
        if self.session.transmits() && self.holder.is_none() {
            self.holder = core.arena.admit();
            debug_assert!(self.holder.is_some(), "let in although there is no room");
        }
        match step {
            SessionStep::NeedMore => return Err(Stop::Input),
            SessionStep::Again => {}
            SessionStep::Command(command) => self.begin(core, command),
            SessionStep::StartTls => self.start_tls(core),
            SessionStep::Close => self.closing = true,
        }
        Ok(())
    }

    fn begin(&mut self, core: &mut Core, NbdCommand { cookie, kind }: NbdCommand) {
        let job = self.jobs.insert(ServedCommand {
            cookie,
            read: matches!(kind, CommandKind::Read { .. }),
            then_flush: matches!(kind, CommandKind::Trim { fua: true, .. }),
            pieces: 0,
            issued: false,
            answering: false,
            error: None,
        });
        let current =
            |offset, left, transfer| Some(Current { job, offset, left, transfer, filling: None });
        let (op, offset, len) = match kind {
            CommandKind::Read { offset, len } => {
                let in_turn = !self.session.structured() && len > Request::MAX_BYTES;
                self.current = current(offset, len, NbdTransfer::Read { in_turn });
                return;
            }
            CommandKind::Write { offset, len, fua } => {
                self.current = current(offset, len, NbdTransfer::Write { fua });
                return;
            }
            CommandKind::WriteZeroes { offset, len, fua, unmap } => {
                (Op::WriteZeroes { fua, unmap }, offset, len)
            }
            CommandKind::Trim { offset, len, .. } => (Op::Discard, offset, len),
            CommandKind::Flush => (Op::Flush, 0, 0),
        };
        self.jobs[job].issued = true;
        self.request(core, job, op, (offset, len), Buf::default());
    }

    /// Makes the next request of the current command.
    fn issue(&mut self, core: &mut Core, current: Current) -> Result<(), Stop> {
        let Current { job, offset, left, transfer, filling } = current;
        let len = Request::first_bytes(offset, left.into());
        let (op, buf) = match transfer {
            // It begins when all else is answered.
            NbdTransfer::Read { in_turn: true }
                if self.jobs[job].pieces > 0 || self.jobs.len() > 1 =>
            {
                return Err(Stop::Own);
            }
            NbdTransfer::Read { in_turn } => {
                self.exclusive = in_turn;
                (Op::Read, self.allocate(core, len)?)
            }
            NbdTransfer::Write { fua } => {
                let (buf, filled) = match filling {
                    Some(filling) => filling,
                    None => (self.allocate(core, len)?, 0),
                };
                let filled = filled + self.take_input(core, buf.slice(filled, len - filled));
                if filled < len {
                    self.current = Some(Current { filling: Some((buf, filled)), ..current });
                    return Err(Stop::Input);
                }
                (Op::Write { fua }, buf)
            }
        };
        self.jobs[job].issued = left == len;
        self.current = (left > len).then_some(Current {
            job,
            offset: offset + u64::from(len),
            left: left - len,
            transfer,
            filling: None,
        });
        self.request(core, job, op, (offset, len), buf);
        Ok(())
    }
}
