//! What a client sends: received where it is to be, or opened first where it is sealed.

use std::io;
use std::sync::Arc;

use braid_array::Buf;
use rustix::io::Errno;

use super::super::tls::{Opened, Tls};
use super::{Connection, Current, RECEIVE, Transfer};
use crate::driver::Op as DriverOp;
use crate::engine::core::Core;

impl Connection {
    /// Moves what the input holds into a buffer; tells how much that was.
    pub(super) fn take_input(&mut self, core: &Core, to: Buf) -> u32 {
        let len = to.len.min(self.end - self.start);
        let memory = core.arena.memory();
        // SAFETY: no receive is in flight, so both buffers are this connection's alone, and they
        // are different allocations.
        let (from, to) = unsafe {
            (memory.bytes(self.input.slice(self.start, len)), memory.bytes_mut(to.slice(0, len)))
        };
        to.copy_from_slice(from);
        self.start += len;
        len
    }

    /// What is missing in the buffer being filled; empty when none is.
    pub(super) fn unfilled(&self) -> Buf {
        match self.current {
            Some(Current {
                transfer: Transfer::Write { filling: Some((buf, filled)), .. },
                ..
            }) => buf.slice(filled, buf.len - filled),
            _ => self.input.slice(0, 0),
        }
    }

    /// Receives: first what is missing in the buffer being filled, then more input. True when some
    /// of that has come already.
    pub(super) fn receive(&mut self, core: &mut Core) -> bool {
        let start = self.start as usize;
        let end = self.end as usize;
        if start > 0 {
            // SAFETY: no receive is in flight, the buffer is this connection's alone.
            let input = unsafe { core.arena.memory().bytes_mut(self.input) };
            input.copy_within(start..end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let missing = self.unfilled();
        let room = self.input.slice(self.end, self.input.len - self.end);
        let mut bufs = if missing.len > 0 { [missing, room] } else { [room, room.slice(0, 0)] };
        if let Some(tls) = &mut self.tls {
            match tls.open(core.arena.memory(), bufs) {
                Ok(Opened::Bytes(moved)) => {
                    self.took(moved);
                    return true;
                }
                Ok(Opened::NeedMore) => bufs = [tls.input(), room.slice(0, 0)],
                Ok(Opened::Over) => self.closing = true,
                Err(error) => self.refuse_tls(&error),
            }
            if self.closing {
                self.stop_reading(core);
                return false;
            }
        }
        self.receiving = true;
        let op = DriverOp::Receive { socket: Arc::clone(&self.socket), bufs };
        core.driver.start(self.token(RECEIVE), op);
        false
    }

    /// So much has come, first into the buffer being filled.
    fn took(&mut self, moved: u32) {
        let direct = moved.min(self.unfilled().len);
        self.end += moved - direct;
        if let Some(Current { transfer: Transfer::Write { filling, .. }, .. }) = &mut self.current
            && let Some((_, filled)) = filling
        {
            *filled += direct;
        }
    }

    /// What was answered so far goes out as it is, what has come behind the option is opened.
    pub(super) fn start_tls(&mut self, core: &mut Core) {
        self.full.push_back(std::mem::take(&mut self.out));
        let came = std::mem::take(&mut self.start)..std::mem::take(&mut self.end);
        let Some(input) = core.arena.allocate_input() else { return self.break_off(core) };
        let sealed = std::mem::replace(&mut self.input, input);
        let config = self.session.tls().expect("it is asked for where there is some");
        match Tls::new(config, (sealed, came), self.full.len()) {
            Ok(tls) => self.tls = Some(Box::new(tls)),
            Err(error) => {
                core.arena.release_input(sealed);
                self.refuse_tls(&io::Error::other(error));
                self.break_off(core);
            }
        }
    }

    /// Its certificate is not the right one, or it is no client at all.
    fn refuse_tls(&mut self, error: &io::Error) {
        tracing::warn!("NBD client {} refused: TLS: {error}", self.peer());
        self.closing = true;
    }

    /// Is it receiving, a command whose beginning has come?
    pub(in super::super) fn receives_write(&self) -> bool {
        self.receiving && (self.unfilled().len > 0 || self.end > self.start)
    }

    /// A receive has ended.
    pub(in super::super) fn received(&mut self, core: &mut Core, result: Result<u32, Errno>) {
        self.receiving = false;
        match result {
            Ok(0) => self.closing = true,
            Err(_) => self.break_off(core),
            Ok(moved) => {
                self.progress_at = core.now;
                match &mut self.tls {
                    Some(tls) => tls.received(moved),
                    None => self.took(moved),
                }
            }
        }
        if self.closing {
            self.stop_reading(core);
        }
    }
}
