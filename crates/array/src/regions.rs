//! Regions in which writes are counted: a region is marked, durably, before the first write in it
//! begins, and cleared lazily.
//!
//! The marks themselves belong to the owner, and lie on the members in pages: the write-intent
//! bitmap, with chunks of sync space as regions, and the marks of an integrity area, with pages of
//! the table. A mark is cleared after a flush, when no write is in flight in its region and nothing
//! needs it: [`nominate`](CountedRegions::nominate) before the flush,
//! [`clear_nominated`](CountedRegions::clear_nominated) after it; a write that comes between takes
//! its region out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The count of writes in a region, of which more are counted beside.
pub(crate) const COUNT: u16 = 0x1fff;
/// Flag of a region whose mark is needed until something has been done about it.
const NEEDED: u16 = 0x8000;
/// Idle when the flush before the clearing began.
const NOMINATED: u16 = 0x4000;

/// The marks of all regions, by their numbers.
pub(crate) trait RegionMarks {
    /// Returns whether a region is marked.
    fn is_marked(&self, region: usize) -> bool;
    /// Marks a region; false when it was marked.
    fn mark(&mut self, region: usize) -> bool;
    /// Takes the mark of a region away.
    fn unmark(&mut self, region: usize);
    /// The page that has the mark of a region.
    fn page_of(&self, region: usize) -> usize;
}

/// The number of writes in each region, and what its mark waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedRegions {
    regions: Vec<u16>,
    /// Writes in a region beyond [`COUNT`].
    beyond: BTreeMap<usize, u64>,
    /// Marks that are not on the members yet, and the metadata update that puts them there.
    unwritten: BTreeMap<usize, u64>,
    /// Number of regions ahead of a sequential writer that are marked before it gets there.
    ahead: usize,
    /// Regions have become idle since candidates for clearing were last looked for.
    idled: bool,
}

impl CountedRegions {
    /// Takes over marks as read, of which some are `needed`. `ahead`: how many regions ahead of a
    /// sequential writer are marked early.
    pub(crate) fn new(
        count: usize,
        ahead: usize,
        marks: &impl RegionMarks,
        needed: impl Fn(usize) -> bool,
    ) -> Self {
        let regions = (0..count).map(|region| if needed(region) { NEEDED } else { 0 }).collect();
        let idled = (0..count).any(|region| marks.is_marked(region));
        Self { regions, beyond: BTreeMap::new(), unwritten: BTreeMap::new(), ahead, idled }
    }

    /// Number of regions.
    pub(crate) const fn len(&self) -> usize {
        self.regions.len()
    }

    /// Number of regions that are marked early.
    pub(crate) const fn ahead(&self) -> usize {
        self.ahead
    }

    /// A write in these regions wants to begin. Pages of marks that must be written first are added
    /// to `pages`; `next` is the ticket of the update that will write them. Returned is the ticket
    /// that the write has to wait for.
    pub(crate) fn begin(
        &mut self,
        marks: &mut impl RegionMarks,
        regions: Range<usize>,
        next: u64,
        pages: &mut BTreeSet<usize>,
    ) -> u64 {
        let mut ticket = 0;
        for region in regions {
            let count = self.regions[region] & COUNT;
            let flags = self.regions[region] & !COUNT & !NOMINATED;
            self.regions[region] = flags | (count + 1).min(COUNT);
            if count == COUNT {
                *self.beyond.entry(region).or_default() += 1;
            }
            self.mark(marks, region, next, pages);
            ticket = ticket.max(self.unwritten.get(&region).copied().unwrap_or(0));
            self.mark_ahead(marks, region, next, pages);
        }
        ticket
    }

    fn mark(
        &mut self,
        marks: &mut impl RegionMarks,
        region: usize,
        next: u64,
        pages: &mut BTreeSet<usize>,
    ) {
        if marks.mark(region) {
            self.unwritten.insert(region, next);
            pages.insert(marks.page_of(region));
        }
    }

    /// Marks regions ahead of a sequential writer, which may be at work where the region before is
    /// marked, too: as soon as half of those ahead are used up, so that nobody waits for them.
    fn mark_ahead(
        &mut self,
        marks: &mut impl RegionMarks,
        region: usize,
        next: u64,
        pages: &mut BTreeSet<usize>,
    ) {
        let last = (region + self.ahead).min(self.regions.len().saturating_sub(1));
        let middle = (region + self.ahead.div_ceil(2)).min(last);
        let alone = region > 0 && !marks.is_marked(region - 1);
        if alone || marks.is_marked(middle) {
            return;
        }
        for ahead in region + 1..=last {
            self.mark(marks, ahead, next, pages);
        }
        self.idled = true;
    }

    /// The updates up to this ticket are done.
    pub(crate) fn told(&mut self, done: u64) {
        self.unwritten.retain(|_, ticket| *ticket > done);
    }

    /// A write is over. `keep`: the marks must outlive it.
    pub(crate) fn end(&mut self, regions: Range<usize>, keep: bool) {
        for region in regions {
            let is_beyond = self.end_beyond(region);
            let state = &mut self.regions[region];
            let count = (*state & COUNT).saturating_sub(u16::from(!is_beyond));
            *state = (*state & !COUNT) | count | if keep { NEEDED } else { 0 };
            self.idled |= *state & (COUNT | NEEDED) == 0;
        }
    }

    /// Counts a write off that is counted beside, if there is one in this region.
    fn end_beyond(&mut self, region: usize) -> bool {
        let Some(more) = self.beyond.get_mut(&region) else { return false };
        *more -= 1;
        if *more == 0 {
            self.beyond.remove(&region);
        }
        true
    }

    /// Returns whether the mark of a region is needed.
    pub(crate) fn is_needed(&self, region: usize) -> bool {
        self.regions[region] & NEEDED != 0
    }

    /// Has the mark of a region stay until it is not needed any more. The owner sets it.
    pub(crate) fn need(&mut self, region: usize) {
        self.regions[region] |= NEEDED;
    }

    /// Marks are not needed any more, but for those of regions where something is `left`.
    pub(crate) fn need_no_more(&mut self, left: impl Fn(usize) -> bool) {
        for (region, state) in self.regions.iter_mut().enumerate() {
            if !left(region) {
                *state &= !NEEDED;
            }
        }
        self.idled = true;
    }

    /// The same for one region.
    pub(crate) fn release(&mut self, region: usize) {
        self.regions[region] &= !NEEDED;
        self.idled = true;
    }

    /// Returns whether there may be anything to clear. Called at every turn, so it looks at no
    /// region.
    pub(crate) const fn clearable(&self) -> bool {
        self.idled
    }

    /// Looks for regions to clear again: some that had to stay marked may not have to any more.
    pub(crate) const fn look_again(&mut self) {
        self.idled = true;
    }

    /// Makes the regions candidates for clearing that are idle now, and not marked ahead of a write
    /// under way, but for those that somebody `lacks`.
    pub(crate) fn nominate(&mut self, marks: &impl RegionMarks, lacks: impl Fn(usize) -> bool) {
        self.forget_nominated();
        self.idled = false;
        let mut busy_until = 0;
        for (region, state) in self.regions.iter_mut().enumerate() {
            if *state & COUNT != 0 {
                busy_until = region + 1 + self.ahead;
            }
            let idle = *state & (COUNT | NEEDED) == 0 && region >= busy_until;
            if idle && marks.is_marked(region) && !lacks(region) {
                *state |= NOMINATED;
            }
        }
    }

    /// The candidates.
    pub(crate) fn nominated(&self) -> impl Iterator<Item = usize> + '_ {
        let states = self.regions.iter().enumerate();
        states.filter(|(_, state)| **state & NOMINATED != 0).map(|(region, _)| region)
    }

    /// Makes no region a candidate any more.
    pub(crate) fn forget_nominated(&mut self) {
        self.regions.iter_mut().for_each(|state| *state &= !NOMINATED);
        self.idled = true;
    }

    /// Clears the marks of the candidates that no write has touched since.
    pub(crate) fn clear_nominated(
        &mut self,
        marks: &mut impl RegionMarks,
        pages: &mut BTreeSet<usize>,
    ) {
        for (region, state) in self.regions.iter_mut().enumerate() {
            if *state & NOMINATED != 0 {
                *state &= !NOMINATED;
                marks.unmark(region);
                self.unwritten.remove(&region);
                pages.insert(marks.page_of(region));
            }
        }
    }

    /// Checks that exactly these writes are counted, each with its regions, and that marks are set
    /// for them.
    ///
    /// # Errors
    /// The first thing that is wrong; `what` names a region.
    pub(crate) fn check(
        &self,
        marks: &impl RegionMarks,
        what: &str,
        writes: impl Iterator<Item = Range<usize>>,
    ) -> Result<(), String> {
        let counted = |(region, state): (usize, &u16)| {
            u64::from(state & COUNT) + self.beyond.get(&region).copied().unwrap_or(0)
        };
        let mut counts: Vec<u64> = self.regions.iter().enumerate().map(counted).collect();
        for region in writes.flatten() {
            counts[region] = counts[region].wrapping_sub(1);
        }
        if let Some(region) = counts.iter().position(|count| *count != 0) {
            return Err(format!("writes in {what} {region} are off by {}", counts[region] as i64));
        }
        let is_told =
            |region: usize| self.regions[region] & !NOMINATED == 0 || marks.is_marked(region);
        if let Some(region) = (0..self.regions.len()).find(|region| !is_told(*region)) {
            return Err(format!("{what} {region} is in use without its mark"));
        }
        Ok(())
    }
}
