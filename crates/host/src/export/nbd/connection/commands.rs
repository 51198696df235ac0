//! Commands of a client. Each becomes requests as long as the client may have more in flight.

use braid_array::{Buf, Op, Request};

use super::super::session::{Command, Kind, Step};
use super::{Connection, Current, Serving, Stop, Transfer};
use crate::engine::core::Core;

/// Commands under way at most.
const MAX_JOBS: usize = 512;
/// Unsent headers and error replies at most, before no more commands are taken.
const MAX_UNSENT_BYTES: usize = 256 << 10;
/// Pieces in one message at most, about; the system's limit is 1024.
const MAX_UNSENT_PARTS: usize = 900;

impl Connection {
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
            Step::NeedMore => return Err(Stop::Input),
            Step::Again => {}
            Step::Command(command) => self.begin(core, command),
            Step::StartTls => self.start_tls(core),
            Step::Close => self.closing = true,
        }
        Ok(())
    }

    fn begin(&mut self, core: &mut Core, Command { cookie, kind }: Command) {
        let job = self.jobs.insert(Serving {
            cookie,
            read: matches!(kind, Kind::Read { .. }),
            then_flush: matches!(kind, Kind::Trim { fua: true, .. }),
            pieces: 0,
            issued: false,
            answering: false,
            error: None,
        });
        let (op, offset, len) = match kind {
            Kind::Read { offset, len } => {
                let in_turn = !self.session.structured() && len > Request::MAX_BYTES;
                let transfer = Transfer::Read { in_turn };
                self.current = Some(Current { job, offset, left: len, transfer });
                return;
            }
            Kind::Write { offset, len, fua } => {
                let transfer = Transfer::Write { fua, filling: None };
                self.current = Some(Current { job, offset, left: len, transfer });
                return;
            }
            Kind::WriteZeroes { offset, len, fua, unmap } => {
                (Op::WriteZeroes { fua, unmap }, offset, len)
            }
            Kind::Trim { offset, len, .. } => (Op::Discard, offset, len),
            Kind::Flush => (Op::Flush, 0, 0),
        };
        self.jobs[job].issued = true;
        self.request(core, job, op, (offset, len), Buf::default());
    }

    /// Makes the next request of the current command.
    fn issue(&mut self, core: &mut Core, current: Current) -> Result<(), Stop> {
        let Current { job, offset, left, transfer } = current;
        let len = Request::first_bytes(offset, left.into());
        let (op, buf) = match transfer {
            // It begins when all else is answered.
            Transfer::Read { in_turn: true }
                if self.jobs[job].pieces > 0 || self.jobs.len() > 1 =>
            {
                return Err(Stop::Own);
            }
            Transfer::Read { in_turn } => {
                self.exclusive = in_turn;
                (Op::Read, self.allocate(core, len)?)
            }
            Transfer::Write { fua, filling } => {
                let (buf, filled) = match filling {
                    Some(filling) => filling,
                    None => (self.allocate(core, len)?, 0),
                };
                let filled = filled + self.take_input(core, buf.slice(filled, len - filled));
                if filled < len {
                    let transfer = Transfer::Write { fua, filling: Some((buf, filled)) };
                    self.current = Some(Current { transfer, ..current });
                    return Err(Stop::Input);
                }
                (Op::Write { fua }, buf)
            }
        };
        let transfer = match transfer {
            Transfer::Write { fua, .. } => Transfer::Write { fua, filling: None },
            read @ Transfer::Read { .. } => read,
        };
        self.jobs[job].issued = left == len;
        self.current = (left > len).then_some(Current {
            job,
            offset: offset + u64::from(len),
            left: left - len,
            transfer,
        });
        self.request(core, job, op, (offset, len), buf);
        Ok(())
    }
}
