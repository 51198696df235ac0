//! Pages of the table that are written to: a second granularity of write intent, by member.
//!
//! A page is marked before the first write to its blocks begins. While the array runs a page that
//! was marked by a write is as good as any other, for its checksums are in memory. A page that was
//! found marked proves nothing: all its entries are unknown, until it has been made anew.

use std::collections::BTreeSet;
use std::ops::Range;

use super::step::{IntegrityStep, IntegrityWrite, flushed};
use crate::format::integrity::{IntegrityArea, PageMarks};
use crate::regions::{CountedRegions, RegionMarks};

/// The marks of one member's table with what is in flight.
///
/// A write [begins](Self::begin), waits until the update of the ticket is [done](Self::told), and
/// [ends](Self::end). Marks are cleared in three steps: [`nominate`](Self::nominate), whose pages
/// of the table are written and flushed, and [`clear_nominated`](Self::clear_nominated).
#[derive(Clone, Debug)]
pub struct MarkedPages {
    area: IntegrityArea,
    marks: PageMarks,
    pages: CountedRegions,
}

impl RegionMarks for PageMarks {
    fn is_marked(&self, region: usize) -> bool {
        self.get(region)
    }

    fn mark(&mut self, region: usize) -> bool {
        self.set(region)
    }

    fn unmark(&mut self, region: usize) {
        self.clear(region);
    }

    fn page_of(&self, region: usize) -> usize {
        Self::marks_page_of(region)
    }
}

impl MarkedPages {
    /// Takes over marks as read: those that are set stay until their pages have been made anew.
    /// `ahead`: how many pages ahead of a sequential writer are marked early.
    #[must_use]
    pub fn new(area: IntegrityArea, marks: PageMarks, ahead: usize) -> Self {
        let pages = CountedRegions::new(marks.pages(), ahead, &marks, |page| marks.get(page));
        Self { area, marks, pages }
    }

    /// The marks.
    #[must_use]
    pub const fn marks(&self) -> &PageMarks {
        &self.marks
    }

    fn range(&self, sectors: Range<u64>) -> Range<usize> {
        let pages = self.area.pages_of(sectors);
        pages.start as usize..pages.end as usize
    }

    /// A write to these sectors of the member's data wants to begin. Pages of marks that must be
    /// written first are added to `pages`; `next` is the ticket of the update that will write them.
    /// Returned is the ticket that the write has to wait for.
    pub fn begin(&mut self, sectors: Range<u64>, next: u64, pages: &mut BTreeSet<usize>) -> u64 {
        let range = self.range(sectors);
        self.pages.begin(&mut self.marks, range, next, pages)
    }

    /// The updates up to this ticket are done.
    pub fn told(&mut self, done: u64) {
        self.pages.told(done);
    }

    /// A write is over. `keep`: its checksums are not known, and neither are those of its pages.
    pub fn end(&mut self, sectors: Range<u64>, keep: bool) {
        self.pages.end(self.range(sectors), keep);
    }

    /// Returns whether a page of the table says what it knows.
    #[must_use]
    pub fn proves(&self, page: usize) -> bool {
        !self.pages.is_needed(page)
    }

    /// The pages that prove nothing, and are to be made anew.
    pub fn unproved(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.pages.len()).filter(|page| self.pages.is_needed(*page))
    }

    /// A page was made anew: it knows what was confirmed, and nothing else.
    pub fn made_anew(&mut self, page: usize) {
        self.pages.release(page);
    }

    /// Returns whether there may be anything to clear. Called at every turn, so it looks at no
    /// page.
    #[must_use]
    pub const fn clearable(&self) -> bool {
        self.pages.clearable()
    }

    /// Makes the pages candidates for clearing that are idle now. Returned is what has to be
    /// written before: these pages of the table, and then a flush.
    pub fn nominate(&mut self) -> Vec<IntegrityStep> {
        self.pages.nominate(&self.marks, |_| false);
        let mut writes = self.pages.nominated().map(IntegrityWrite::Page).peekable();
        if writes.peek().is_none() {
            return Vec::new();
        }
        flushed(writes)
    }

    /// Makes no page a candidate any more.
    pub fn forget_nominated(&mut self) {
        self.pages.forget_nominated();
    }

    /// Clears the marks of the candidates that no write has touched since. Returned are the pages
    /// of marks to write; a power cut before they are durable costs nothing but work.
    pub fn clear_nominated(&mut self) -> Vec<IntegrityStep> {
        let mut pages = BTreeSet::new();
        self.pages.clear_nominated(&mut self.marks, &mut pages);
        pages.into_iter().map(|page| IntegrityStep::Write(IntegrityWrite::Marks(page))).collect()
    }

    /// The steps that make marks durable, before the writes that wait for them.
    #[must_use]
    pub fn marking(pages: BTreeSet<usize>) -> Vec<IntegrityStep> {
        flushed(pages.into_iter().map(IntegrityWrite::Marks))
    }

    /// Checks that exactly these writes are counted, and that marks are set for them.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, writes: &[Range<u64>]) -> Result<(), String> {
        let ranges = writes.iter().map(|sectors| self.range(sectors.clone()));
        self.pages.check(&self.marks, "table page", ranges)
    }
}
