//! Pages, through which the few bytes of a volume pass that messages carry: superblocks and the
//! like. When all are in use the next request waits.

use std::collections::VecDeque;

use braid_array::array::Scratch;
use braid_array::{Action, Buf, IoOp, MemberId};

use crate::node::ids::ClientId;
use crate::node::out::{Flight, NodeOut};

/// The most that a message carries.
pub(crate) const MAX_META_BYTES: u32 = 4096;
/// Pages.
const PAGES: u64 = 8;

/// Operation on metadata.
#[derive(Debug)]
pub(crate) enum MetaOp {
    /// Read this many bytes for a message.
    Read(u32),
    /// Read this many bytes to find the volume's array.
    Look(u32),
    /// Write these, durably.
    Write(Vec<u8>),
}

/// A request that waits for a page.
#[derive(Debug)]
pub(super) struct PageRequest {
    pub(super) client: ClientId,
    pub(super) tag: u32,
    pub(super) member: MemberId,
    pub(super) sector: u64,
    pub(super) op: MetaOp,
}

/// The pages that are free, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct RequestPages {
    free: Vec<Buf>,
    all: usize,
    waiting: VecDeque<PageRequest>,
}

impl RequestPages {
    /// Takes its pages from the front of a space.
    pub(super) fn new(space: &mut Scratch) -> Self {
        let pages = PAGES.min(space.bytes / u64::from(MAX_META_BYTES));
        let page = |number| {
            let offset = space.offset + number * u64::from(MAX_META_BYTES);
            Buf { offset, len: MAX_META_BYTES }
        };
        let free: Vec<Buf> = (0..pages).map(page).collect();
        let bytes = pages * u64::from(MAX_META_BYTES);
        *space = Scratch { offset: space.offset + bytes, bytes: space.bytes - bytes };
        Self { all: free.len(), free, waiting: VecDeque::new() }
    }

    /// Checks that every page is free, except for the `used` ones.
    pub(super) fn check(&self, used: usize) -> Result<(), String> {
        let pages = self.free.len() + used;
        if pages != self.all {
            return Err(format!("{pages} of {} pages", self.all));
        }
        Ok(())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops the waiting requests of a client that is gone, or has lost its volume.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.waiting.retain(|request| request.client != client);
    }

    pub(super) fn request(&mut self, request: PageRequest, out: &mut NodeOut) {
        self.waiting.push_back(request);
        self.run_ready(out);
    }

    /// Releases a page.
    pub(super) fn release(&mut self, page: Buf, out: &mut NodeOut) {
        self.free.push(page);
        self.run_ready(out);
    }

    fn run_ready(&mut self, out: &mut NodeOut) {
        while !self.waiting.is_empty()
            && let Some(page) = self.free.pop()
            && let Some(PageRequest { client, tag, member, sector, op }) = self.waiting.pop_front()
        {
            match op {
                MetaOp::Read(bytes) | MetaOp::Look(bytes) => {
                    let look = matches!(op, MetaOp::Look(_));
                    let flight = Flight::MetaRead { client, tag, page, bytes, look };
                    out.io(flight, member, IoOp::Read { sector, buf: page.slice(0, bytes) });
                }
                MetaOp::Write(bytes) => {
                    let buf = page.slice(0, bytes.len() as u32);
                    out.push(Action::Store { buf, bytes });
                    let flight = Flight::MetaWrite { client, tag, page, sector };
                    out.io(flight, member, IoOp::Write { sector, buf, fua: true, fill: false });
                }
            }
        }
    }
}
