//! Clients whose array another client has taken over while they were at work, and which go on
//! trying.

use braid_array::events::ArrayEvent;
use braid_array::{Action, Buf, Op, Request, RequestId};

use super::session::{Flight, Session, Token};
use crate::oracle::Range;
use crate::stamp;
use crate::workload::Kind;
use crate::world::Failure;

/// Requests from here on are begun when the next client serves already.
const STRAY: u64 = 1 << 32;

/// A fenced client: another one has its array, or is about to. What it was answered before stays,
/// and nothing lands that it begins after that. [`Session::leave_running`] makes it of the client
/// that runs; it may write once more, which must not be answered well once its successor serves;
/// and it has to notice that it was taken over.
#[derive(Debug)]
pub(super) struct FencedClient {
    process: usize,
    /// What was under way.
    flights: Vec<Option<Flight>>,
    /// A write that nothing of may land is under way.
    strays: bool,
    /// It knows that the array is somebody else's.
    told: bool,
}

impl Session {
    /// The client goes on, and another one is about to take its array over. One that does not serve
    /// yet would take it back, as it may: that one is gone.
    pub fn leave_running(&mut self) {
        if !self.serves {
            return self.crash();
        }
        self.left = true;
        self.suspects.crash();
        let none = vec![None; self.flights.len()];
        let flights = std::mem::replace(&mut self.flights, none);
        self.world.note(&[54], || "TAKE OVER".to_owned());
        self.fenced.push(FencedClient {
            process: self.client,
            flights,
            strays: false,
            told: false,
        });
    }

    /// Clients whose array is somebody else's now lose power, too.
    pub fn kill_fenced(&mut self) {
        for fenced in std::mem::take(&mut self.fenced) {
            self.world.kill(fenced.process);
        }
    }

    /// One of them writes once more: before the next client serves as somebody who may be the one
    /// still, afterwards as somebody of whom nothing may land.
    pub fn write_as_fenced(&mut self, range: Range) {
        let Some(at) = self.fenced.len().checked_sub(1) else { return };
        let fenced = &self.fenced[at];
        let slot = fenced.flights.iter().position(Option::is_none);
        let Some(slot) = slot.filter(|_| !fenced.strays && !fenced.told) else { return };
        let process = fenced.process;
        let serial = self.oracle.new_serial();
        let Range { sector, sectors } = range;
        let buf = Buf { offset: slot as u64 * self.slot_bytes(), len: sectors as u32 * 512 };
        stamp::fill(self.world.processes[process].bytes(buf), sector, serial);
        let stray = if self.serves { STRAY } else { 0 };
        let (id, op) = (RequestId(slot as u64 + stray), Op::Write { fua: false });
        let request = Request { id, op, sector, sectors, buf };
        let now = self.world.now();
        if self.world.processes[process].client().submit(now, request).is_err() {
            return;
        }
        self.world.note(&[55, id.0, sector, sectors], || {
            format!("FENCED CLIENT WRITES {sector}+{sectors} serial {serial}, stray {}", stray > 0)
        });
        if stray > 0 {
            self.fenced[at].strays = true;
        } else {
            let kind = Kind::Write { fua: false };
            let token = Token::Write(self.oracle.write_submitted(range, serial));
            let write = self.suspects.begins(range);
            self.fenced[at].flights[slot] =
                Some(Flight { kind, range, token, write, equal: false });
        }
        self.world.drain(process);
    }

    /// What a client says whose array was taken over; false when it is none.
    ///
    /// # Errors
    /// It has written what it may not.
    pub fn fenced_says(&mut self, process: usize, action: &Action) -> Result<bool, Failure> {
        let fenced = self.fenced.iter_mut().find(|fenced| fenced.process == process);
        let Some(fenced) = fenced else { return Ok(false) };
        match action {
            Action::Notify(ArrayEvent::TakenOver) => fenced.told = true,
            Action::Complete { id, result } if id.0 >= STRAY => {
                fenced.strays = false;
                if result.is_ok() {
                    return Err(Failure("a write is answered after a takeover".to_owned()));
                }
            }
            Action::Complete { id, result } => {
                let flight = fenced.flights.get_mut(id.0 as usize).and_then(Option::take);
                let Some(Flight { kind, token, write, .. }) = flight else {
                    return Err(Failure(format!("request {} of a fenced client ends twice", id.0)));
                };
                self.world.note(&[56, id.0, u64::from(result.is_ok())], || {
                    format!("FENCED CLIENT'S #{} {kind:?}: {result:?}", id.0)
                });
                match token {
                    // It may have been old already.
                    Token::Read(moment) => self.oracle.read_abandoned(moment),
                    Token::Write(token) => {
                        let fua = matches!(
                            kind,
                            Kind::Write { fua: true } | Kind::Zeroes { fua: true, .. }
                        );
                        self.oracle.write_completed(token, result.is_ok(), fua);
                        self.suspects.ends(write, result.is_ok(), fua);
                    }
                    Token::Flush(moment) if result.is_ok() => {
                        self.oracle.flush_completed(moment);
                        self.suspects.flushed(write);
                    }
                    Token::Flush(_) => {}
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// All of them have heard that the array is somebody else's, once nothing is on its way.
    ///
    /// # Errors
    /// When one has not.
    pub fn fenced_know(&self) -> Result<(), Failure> {
        match self.fenced.iter().all(|fenced| fenced.told) {
            true => Ok(()),
            false => Err(Failure("a client does not hear that its array is taken".to_owned())),
        }
    }
}
