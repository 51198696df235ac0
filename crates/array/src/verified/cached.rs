//! Pages of tables in memory.

use std::collections::BTreeMap;

use super::known::KnownBlocks;
use crate::format::integrity::{PAGE_BLOCKS, TablePage};

/// A page, or that it is being read.
#[derive(Debug)]
enum Cached {
    Loading,
    Loaded {
        page: TablePage,
        /// It is not on the member as it is here.
        dirty: bool,
        /// The time of its last use: see [`CachedTable::clock`].
        used: u64,
    },
}

/// Presence of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Absent,
    Loading,
    Loaded,
}

/// The pages of one member's table that are in memory.
#[derive(Debug)]
pub(super) struct CachedTable {
    pages: BTreeMap<u64, Cached>,
    clock: u64,
    dirty: usize,
    known: KnownBlocks,
}

/// Page of a block, and the block's number in it.
const fn place(block: u64) -> (u64, usize) {
    (block / PAGE_BLOCKS, (block % PAGE_BLOCKS) as usize)
}

impl CachedTable {
    pub(super) const fn new(known: KnownBlocks) -> Self {
        Self { pages: BTreeMap::new(), clock: 0, dirty: 0, known }
    }

    /// The number of blocks whose checksums are known, once all pages were looked at.
    pub(super) fn known(&self) -> Option<u64> {
        self.known.count()
    }

    pub(super) fn presence(&self, page: u64) -> Presence {
        match self.pages.get(&page) {
            None => Presence::Absent,
            Some(Cached::Loading) => Presence::Loading,
            Some(Cached::Loaded { .. }) => Presence::Loaded,
        }
    }

    /// Number of pages in memory that were written to.
    pub(super) const fn dirty(&self) -> usize {
        self.dirty
    }

    pub(super) fn begin_load(&mut self, page: u64) {
        self.pages.insert(page, Cached::Loading);
    }

    /// Takes a page in. Where there are more than so many, some go that are on the member as they
    /// are here: those that were not used for longest.
    pub(super) fn loaded(&mut self, number: u64, page: TablePage, most: usize) {
        self.clock += 1;
        self.known.saw(number, page.count());
        self.pages.insert(number, Cached::Loaded { page, dirty: false, used: self.clock });
        if self.pages.len() <= most {
            return;
        }
        let unused = self.pages.iter().filter_map(|(number, cached)| match cached {
            Cached::Loaded { dirty: false, used, .. } => Some((*used, *number)),
            _ => None,
        });
        let mut unused: Vec<(u64, u64)> = unused.filter(|(_, other)| *other != number).collect();
        unused.sort_unstable();
        // Not one by one: all were looked at.
        for (_, number) in unused.into_iter().take(1 + most / 16) {
            self.pages.remove(&number);
        }
    }

    /// Returns what a block's checksum should be, if that is known; the page is in memory.
    pub(super) fn get(&mut self, block: u64) -> Option<u32> {
        let (number, block) = place(block);
        self.clock += 1;
        match self.pages.get_mut(&number) {
            Some(Cached::Loaded { page, used, .. }) => {
                *used = self.clock;
                page.get(block)
            }
            _ => None,
        }
    }

    /// Takes a block's checksum, or that it is not known; the page is in memory.
    pub(super) fn set(&mut self, block: u64, sum: Option<u32>) {
        let (number, block) = place(block);
        self.clock += 1;
        if let Some(Cached::Loaded { page, dirty, used }) = self.pages.get_mut(&number) {
            self.dirty += usize::from(!*dirty);
            *dirty = true;
            *used = self.clock;
            self.known.changed(page.get(block).is_some(), sum.is_some());
            page.set(block, sum);
        }
    }

    /// The page as it is to be written to the member, if it is not there as it is here. It counts
    /// as written.
    pub(super) fn write(&mut self, number: u64) -> Option<&TablePage> {
        match self.pages.get_mut(&number) {
            Some(Cached::Loaded { page, dirty, .. }) if *dirty => {
                self.dirty -= 1;
                *dirty = false;
                Some(page)
            }
            _ => None,
        }
    }

    /// The page is not on the member as it is here.
    pub(super) fn unwritten(&mut self, number: u64) {
        if let Some(Cached::Loaded { dirty, .. }) = self.pages.get_mut(&number) {
            self.dirty += usize::from(!*dirty);
            *dirty = true;
        }
    }
}
