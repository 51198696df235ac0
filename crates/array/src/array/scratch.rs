//! The machine's part of the arena, cut into strips for computing and pages for metadata.

use std::collections::VecDeque;

pub(crate) use crate::keeper::PAGE_BYTES;
use crate::keeper::UNIT_SECTORS;
use crate::plan::ScratchStrips;
use crate::{Buf, IoId};

/// A strip unit: the highest unit of parity work.
pub(crate) const UNIT_BYTES: u32 = UNIT_SECTORS * 512;

/// A machine's part of the executor's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// First byte in the arena; a multiple of 4096.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// The free part of the scratch.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) zero: Buf,
    strips: Vec<Buf>,
    /// Their number, with those that are taken.
    all_strips: u64,
    /// So many strips are left for destaging: what waits for that may have all others.
    kept: usize,
    pages: VecDeque<Buf>,
    /// Memory that I/O which was given up may still use, and the part of it that was given back
    /// meanwhile.
    lent: Vec<(IoId, Buf)>,
    parked: Vec<Buf>,
    /// The size of all pages and strips.
    bytes: u64,
}

impl Pool {
    /// Bytes for so many strips and pages.
    pub(crate) fn bytes(strips: usize, pages: usize) -> u64 {
        (strips as u64 + 1) * u64::from(UNIT_BYTES) + pages as u64 * u64::from(PAGE_BYTES)
    }

    /// Cuts `scratch` into pages, a strip of zeroes, and as many strips as fit.
    pub(crate) fn new(scratch: Scratch, pages: usize) -> Self {
        let mut offset = scratch.offset;
        let mut cut = |len: u32| {
            let buf = Buf { offset, len };
            offset += u64::from(len);
            buf
        };
        let pages: VecDeque<Buf> = (0..pages).map(|_| cut(PAGE_BYTES)).collect();
        let zero = cut(UNIT_BYTES);
        let used = pages.len() as u64 * u64::from(PAGE_BYTES) + u64::from(UNIT_BYTES);
        let strips = scratch.bytes.saturating_sub(used) / u64::from(UNIT_BYTES);
        let bytes = strips * u64::from(UNIT_BYTES) + pages.len() as u64 * u64::from(PAGE_BYTES);
        let all_strips = strips;
        let strips = (0..strips).map(|_| cut(UNIT_BYTES)).collect();
        Self {
            zero,
            strips,
            all_strips,
            kept: 0,
            pages,
            lent: Vec::new(),
            parked: Vec::new(),
            bytes,
        }
    }

    pub(crate) const fn all_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many strips there are in all.
    pub(crate) const fn all_strips(&self) -> u64 {
        self.all_strips
    }

    /// Counts the free bytes, with those that were given back and are lent.
    pub(crate) fn free_bytes(&self) -> u64 {
        let free = self.strips.iter().chain(&self.pages).chain(&self.parked);
        free.map(|buf| u64::from(buf.len)).sum()
    }

    /// Names what has no holder, and the zeroes. Memory that I/O may use which was given up is
    /// parked, and so not named.
    pub(crate) fn each_free(&self, found: &mut dyn FnMut(Buf)) {
        self.strips.iter().chain(&self.pages).for_each(|buf| found(*buf));
        found(self.zero);
    }

    /// Leaves so many strips for destaging.
    pub(crate) fn keep(&mut self, kept: usize) {
        self.kept = kept;
    }

    /// `count` strips, or none of them.
    pub(crate) fn take(&mut self, count: usize) -> Option<ScratchStrips> {
        let kept = if count == 0 { 0 } else { self.kept };
        if self.strips.len() < count + kept { None } else { self.take_to_destage(count) }
    }

    /// The same, to destage.
    pub(crate) fn take_to_destage(&mut self, count: usize) -> Option<ScratchStrips> {
        let rest = self.strips.len().checked_sub(count)?;
        Some(self.strips.drain(rest..).collect())
    }

    pub(crate) fn give(&mut self, bufs: impl Iterator<Item = Buf>) {
        for buf in bufs {
            if self.lent.iter().any(|(_, lent)| lent.overlaps(buf)) {
                self.parked.push(buf);
            } else if buf.len == PAGE_BYTES {
                self.pages.push_back(buf);
            } else {
                self.strips.push(buf);
            }
        }
    }

    /// A page. Where too many are set aside, a strip becomes pages for good.
    pub(crate) fn take_page(&mut self) -> Option<Buf> {
        if self.pages.is_empty() && !self.parked.is_empty() {
            let strip = self.strips.pop()?;
            self.all_strips -= 1;
            let pages = (0..UNIT_BYTES).step_by(PAGE_BYTES as usize);
            self.pages.extend(pages.map(|at| strip.slice(at, PAGE_BYTES)));
        }
        self.pages.pop_front()
    }

    pub(crate) fn give_page(&mut self, page: Buf) {
        self.give(std::iter::once(page));
    }

    /// An I/O that nobody waits for may use this until it is answered.
    pub(crate) fn lend(&mut self, io: IoId, buf: Buf) {
        self.lent.push((io, buf));
    }

    /// Returns whether such an I/O may use this.
    pub(crate) fn is_lent(&self, buf: Buf) -> bool {
        self.lent.iter().any(|(_, lent)| lent.overlaps(buf))
    }

    /// Returns whether anything is lent.
    pub(crate) const fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Takes back the memory of an I/O that is answered. True where any was lent to it.
    pub(crate) fn unlend(&mut self, io: IoId) -> bool {
        if self.lent.is_empty() {
            return false;
        }
        let before = self.lent.len();
        self.lent.retain(|(lent, _)| *lent != io);
        let parked = std::mem::take(&mut self.parked);
        self.give(parked.into_iter());
        self.lent.len() < before
    }
}
