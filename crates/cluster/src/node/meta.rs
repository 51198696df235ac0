//! Reads and writes of a few bytes of a volume, which messages carry: superblocks and the like.
//! They use pages of their own; when all are in use the next one waits.

use std::collections::VecDeque;

use braid_array::array::Scratch;
use braid_array::{Action, Buf, IoOp, Refusal};

use super::Node;
use super::STORAGE;
use super::ids::ClientId;
use super::out::Flight;
use super::session::Client;
use crate::wire::Message;

/// The most that a message carries.
pub(super) const MAX_META_BYTES: u32 = 4096;
/// Pages.
const PAGES: u64 = 8;

/// What is to be done.
#[derive(Debug)]
pub(super) enum MetaOp {
    /// Read so many bytes.
    Read(u32),
    /// Write these, durably.
    Write(Vec<u8>),
}

/// A request that waits for a page.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) client: ClientId,
    pub(super) tag: u32,
    pub(super) sector: u64,
    pub(super) op: MetaOp,
}

/// The pages that are free, and who waits for one.
#[derive(Debug)]
pub(super) struct Meta {
    free: Vec<Buf>,
    all: usize,
    waiting: VecDeque<Ask>,
}

impl Meta {
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

    /// Pages that nobody uses.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) const fn all(&self) -> usize {
        self.all
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A client is gone; what it still waits for is not done.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.waiting.retain(|ask| ask.client != client);
    }
}

impl Node {
    pub(super) fn ask_meta(&mut self, ask: Ask) {
        self.meta.waiting.push_back(ask);
        self.work_meta();
    }

    fn work_meta(&mut self) {
        while let Some(page) = self.meta.free.pop() {
            let Some(Ask { client, tag, sector, op }) = self.meta.waiting.pop_front() else {
                self.meta.free.push(page);
                return;
            };
            let volume = self.clients.get(&client).and_then(Client::volume);
            let Some(member) = volume.map(|volume| volume.member) else {
                self.meta.free.push(page);
                continue;
            };
            match op {
                MetaOp::Read(bytes) => {
                    let flight = Flight::MetaRead { client, tag, page, bytes };
                    self.out.io(flight, member, IoOp::Read { sector, buf: page.slice(0, bytes) });
                }
                MetaOp::Write(bytes) => {
                    let buf = page.slice(0, bytes.len() as u32);
                    self.out.push(Action::Store { buf, bytes });
                    let flight = Flight::MetaWrite { client, tag, page, sector };
                    self.out.io(flight, member, IoOp::Write { sector, buf, fua: true });
                }
            }
        }
    }

    fn give_page(&mut self, page: Buf) {
        self.meta.free.push(page);
        self.work_meta();
    }

    pub(super) fn meta_read(
        &mut self,
        (client, tag): (ClientId, u32),
        page: Buf,
        bytes: u32,
        ok: bool,
    ) {
        if ok && self.out.is_here(client) {
            self.out.load(Flight::MetaLoad { client, tag, page }, page.slice(0, bytes));
        } else if self.is_looking(client) {
            self.looked(client, None);
            self.give_page(page);
        } else {
            self.out.refuse(client, tag, Refusal::new("the volume cannot be read", STORAGE));
            self.give_page(page);
        }
    }

    pub(super) fn meta_loaded(&mut self, client: ClientId, tag: u32, page: Buf, bytes: Vec<u8>) {
        if self.is_looking(client) {
            self.looked(client, Some(&bytes));
        } else {
            self.out.answer(client, &Message::Meta { tag, bytes });
        }
        self.give_page(page);
    }

    pub(super) fn meta_written(
        &mut self,
        (client, tag): (ClientId, u32),
        page: Buf,
        sector: u64,
        ok: bool,
    ) {
        self.notice_write(client, sector);
        if ok {
            self.out.confirm(client, tag);
        } else {
            self.out.refuse(client, tag, Refusal::new("the volume cannot be written", STORAGE));
        }
        self.give_page(page);
    }
}
