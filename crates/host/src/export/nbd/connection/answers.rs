//! The answers to commands: put together as requests are done, and sent.

use std::sync::Arc;

use braid_array::{Buf, Op, Request, RequestError, SECTOR_BYTES};
use rustix::io::Errno;

use super::{ClientConnection, Current, MESSAGE_BYTES, NbdTransfer, SEND, ServedCommand};
use crate::driver::{Op as DriverOp, OutgoingBytes};
use crate::engine::core::Core;
use crate::nbd_proto::{NbdError, put_data_chunk, put_simple_reply};
use crate::token::JobRef;

/// Empty messages that are kept.
const MAX_SPARES: usize = 8;

impl ClientConnection {
    /// A request is done.
    pub(in super::super) fn completed(
        &mut self,
        core: &mut Core,
        at: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        let job = &mut self.jobs[at.job];
        job.pieces -= 1;
        job.error = job.error.or(result.err());
        let last = job.pieces == 0 && job.issued;
        if job.read && result.is_ok() && !self.broken {
            self.answer_read(at.job, &request, last);
        } else if request.buf.len > 0 {
            self.release(core, request.buf);
        }
        if self.jobs[at.job].error.is_some() && !self.session.structured() {
            self.give_up_rest(at.job);
        }
        let job = &mut self.jobs[at.job];
        if job.pieces > 0 || !job.issued {
            return;
        }
        if job.then_flush && job.error.is_none() {
            job.then_flush = false;
            self.request(core, at.job, Op::Flush, (0, 0), Buf::default());
            return;
        }
        let job = self.jobs.remove(at.job);
        if job.read {
            self.exclusive = false;
        }
        if !self.broken {
            self.answer(core, &job);
        }
    }

    /// A read in turn that failed is not continued.
    fn give_up_rest(&mut self, job: usize) {
        if let Some(Current { job: current, transfer: NbdTransfer::Read { .. }, .. }) = self.current
            && current == job
        {
            self.current = None;
            self.jobs[job].issued = true;
        }
    }

    /// Puts the data of a read into the reply.
    fn answer_read(&mut self, index: usize, request: &Request, last: bool) {
        let job = &mut self.jobs[index];
        if self.session.structured() {
            let done = last && job.error.is_none();
            let offset = request.sector * SECTOR_BYTES - self.session.offset_bytes();
            put_data_chunk(&mut self.out.bytes, job.cookie, done, offset, request.buf.len);
        } else if !job.answering {
            put_simple_reply(&mut self.out.bytes, job.cookie, None);
        }
        job.answering = true;
        self.out.push(request.buf);
        if self.out.len_bytes() >= MESSAGE_BYTES {
            let next = self.spares.pop().unwrap_or_default();
            self.full.push_back(std::mem::replace(&mut self.out, next));
        }
    }

    /// Ends the reply to a command.
    fn answer(&mut self, core: &mut Core, job: &ServedCommand) {
        let structured = self.session.structured();
        match job.error {
            Some(_) if job.answering && !structured => {
                // The reply said that all was well; there is no way to take that back.
                self.break_off(core);
            }
            Some(error) => {
                let (number, message) = describe(error);
                self.session.refuse(job.cookie, number, &message, &mut self.out.bytes);
            }
            None if job.read => {}
            // Also in a conversation with structured replies a simple one will do here.
            None => put_simple_reply(&mut self.out.bytes, job.cookie, None),
        }
    }

    /// Sends pending replies, unless a send is in flight.
    pub(in super::super) fn flush(&mut self, core: &mut Core) {
        if self.sending || self.broken {
            return;
        }
        let speaks = self.tls.as_ref().is_some_and(|tls| tls.wants_to_send());
        let message = match self.full.pop_front() {
            Some(message) => message,
            None if self.out.is_empty() && !speaks => return,
            None => {
                let next = self.spares.pop().unwrap_or_default();
                std::mem::replace(&mut self.out, next)
            }
        };
        let message = if self.tls.is_some() { self.sealed(core, message) } else { message };
        self.progress_at = core.now;
        self.sending = true;
        let op = DriverOp::Send { socket: Arc::clone(&self.socket), message, sent: 0 };
        core.driver.start(self.token(SEND), op);
    }

    /// A message as it goes through TLS. Its buffers are free at once.
    fn sealed(&mut self, core: &mut Core, mut message: Box<OutgoingBytes>) -> Box<OutgoingBytes> {
        let Some(tls) = self.tls.as_mut() else { return message };
        if tls.skips() {
            return message;
        }
        let sealed = tls.seal(&mut message, core.arena.memory());
        self.empty(core, &mut message);
        self.keep(message);
        sealed
    }

    /// Takes the memory of a message's buffers back.
    fn empty(&mut self, core: &mut Core, message: &mut OutgoingBytes) {
        message.buffers().for_each(|buf| self.release(core, buf));
        message.clear();
    }

    fn keep(&mut self, message: Box<OutgoingBytes>) {
        if self.spares.len() < MAX_SPARES {
            self.spares.push(message);
        }
    }

    /// A send has ended.
    pub(in super::super) fn sent(
        &mut self,
        core: &mut Core,
        result: Result<u32, Errno>,
        mut message: Box<OutgoingBytes>,
    ) {
        self.sending = false;
        self.empty(core, &mut message);
        match &mut self.tls {
            Some(tls) => tls.keep(message),
            None => self.keep(message),
        }
        if result.is_err() {
            self.break_off(core);
        }
    }
}

/// Returns the protocol's error for ours, and its meaning.
fn describe(error: RequestError) -> (NbdError, String) {
    let number = match error {
        RequestError::OutOfRange | RequestError::Malformed => NbdError::Invalid,
        RequestError::ReadOnly => NbdError::NotPermitted,
        RequestError::NoSpace => NbdError::NoSpace,
        RequestError::Failed | RequestError::Medium | RequestError::BufferHeld => NbdError::Io,
    };
    (number, error.to_string())
}
