//! What the exports of an engine share: the driver, the arena, and the requests on their way
//! through the machine.

use std::collections::VecDeque;

use braid_array::{BlockMachine, Buf, Instant, Op, Request, RequestId, SECTOR_BYTES};

use crate::arena::Arena;
use crate::driver::Driver;
use crate::token::{ExportId, Owner, Token};
use slab::Slab;

/// The driver, the arena, and the requests of all exports that the machine has not answered. An
/// export queues one with [`request`](Self::request); the engine [submits](Self::submit) the queue
/// in order until the machine is full, and takes a request out when it is
/// [`completed`](Self::completed), or asks for it [again](Self::ask_again) with another buffer. The
/// id of a request is its index here.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) driver: Driver<Token>,
    pub(crate) arena: Arena,
    requests: Slab<(Request, Owner)>,
    /// Requests the machine has not taken yet, in order.
    pending: VecDeque<usize>,
    /// The time of this turn of the loop.
    pub(crate) now: Instant,
}

impl Core {
    pub(crate) fn new(arena: Arena, driver: Driver<Token>) -> Self {
        let requests = Slab::default();
        let pending = VecDeque::new();
        Self { driver, arena, requests, pending, now: Instant::default() }
    }

    /// Queues a request for the machine; offsets in bytes, multiples of a sector.
    pub(crate) fn request(&mut self, op: Op, offset: u64, len: u64, buf: Buf, owner: Owner) {
        let sector = offset / SECTOR_BYTES;
        let sectors = len / SECTOR_BYTES;
        let request = Request { id: RequestId(0), op, sector, sectors, buf };
        let index = self.requests.insert((request, owner));
        self.requests[index].0.id = RequestId(index as u64);
        self.pending.push_back(index);
    }

    /// Offers the queued requests to the machine. True when it took one.
    pub(crate) fn submit(&mut self, machine: &mut dyn BlockMachine) -> bool {
        let before = self.pending.len();
        while let Some(&index) = self.pending.front() {
            if machine.submit(self.now, self.requests[index].0).is_err() {
                break;
            }
            self.pending.pop_front();
        }
        self.pending.len() < before
    }

    /// The buffer of a read is still in use: asks for it again with another one. False when there
    /// is none.
    pub(crate) fn ask_again(&mut self, id: RequestId) -> bool {
        let index = usize::try_from(id.0).expect("request ids are slab indices");
        let (request, _) = &mut self.requests[index];
        let Some(other) = self.arena.replace(request.buf) else { return false };
        request.buf = other;
        self.pending.push_back(index);
        true
    }

    /// Takes a completed request out.
    pub(crate) fn completed(&mut self, id: RequestId) -> (Request, Owner) {
        let index = usize::try_from(id.0).expect("request ids are slab indices");
        self.requests.remove(index)
    }

    /// Is something of an export's under way: an operation, or a request?
    pub(crate) fn serves(&self, id: ExportId) -> bool {
        let is_its = |token: &Token| matches!(token, Token::Export(of, _) if *of == id);
        let mut owners = self.requests.iter().map(|(_, (_, owner))| owner);
        self.driver.is_under_way(is_its)
            || owners.any(|owner| matches!(owner, Owner::Export(of, _) if *of == id))
    }

    /// Requests that have not completed.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }
}
