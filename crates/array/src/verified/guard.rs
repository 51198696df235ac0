//! A member whose data are verified: its superblocks, marks and table, and what is under way for
//! them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::cached::{CachedTable, Presence};
use super::course::Course;
use super::known::KnownBlocks;
use super::rot::Rot;
use crate::format::integrity::{AreaId, KnownCount, PAGE_BLOCKS, SuperblockDigest, TablePage};
use crate::integrity::found::AreaPlace;
use crate::integrity::{AcceptedSuperblocks, FoundArea, MarkedPages};
use crate::status::MemberIntegrity;
use crate::{Instant, IoError, MemberId, SECTOR_BYTES};

#[cfg(test)]
mod tests;

/// Pages ahead of a sequential writer that are marked before it gets there: 30 MiB of data.
const AHEAD: usize = 8;
/// Time for which marks stay set at least, as md has it for its bitmap.
const CLEAN_AFTER_MS: u64 = 5_000;
/// Pages of a table in memory: 16 MiB, for 15 GiB of data.
const CACHED_PAGES: usize = 4096;

/// A course of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CourseKind {
    /// Somebody else's superblock is taken over.
    Opening,
    /// A superblock is announced and written.
    Superblock,
    /// Pages are marked.
    Marking,
    /// Marks are cleared.
    Cleaning,
}

impl CourseKind {
    pub(super) const ALL: [Self; 4] =
        [Self::Opening, Self::Superblock, Self::Marking, Self::Cleaning];
}

/// Marks that are to be on the member before writes begin.
#[derive(Debug, Default)]
pub(super) struct Marking {
    /// Pages of marks for the next course.
    next: BTreeSet<usize>,
    course: Option<Course>,
    /// The pages of marks that it writes.
    running: BTreeSet<usize>,
    /// The last ticket whose marks are durable.
    done: u64,
    /// Marks could not be written: what waits for them fails. They are tried again for the next
    /// write.
    failure: Option<IoError>,
    stalled: bool,
}

/// Clearing of marks.
#[derive(Debug)]
enum Cleaning {
    Resting {
        until: Instant,
    },
    /// Pages of the table are written, and flushed.
    Pages(Course),
    /// That is done. Marks are written by one at a time: an older page must not land on a newer.
    Flushed,
    /// Pages of marks are written.
    Marks(Course),
}

/// Readiness of a write to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Waits,
    Ready,
    /// It cannot begin.
    Fails(IoError),
}

/// Duty of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardStanding {
    Guarding,
    /// The store has failed. Nothing is verified or noted, and what is not marked waits: first a
    /// superblock has to be on the member that the area accepts under no circumstances.
    Disowning,
    /// The same, and the array writes no superblocks any more.
    Stuck,
    /// Nothing is verified or noted any more, and nothing waits.
    Retired,
}

#[derive(Debug)]
pub(super) struct Guard {
    pub(super) place: AreaPlace,
    pub(super) area_id: AreaId,
    /// `None`: it is unknown which superblock is on the member, and none that is written from now
    /// on is accepted. All is marked then at the next start.
    pub(super) accepted: Option<AcceptedSuperblocks>,
    /// The same, as it was last known.
    doubted: Option<AcceptedSuperblocks>,
    pub(super) marks: MarkedPages,
    pub(super) table: CachedTable,
    opening: Option<Course>,
    superblock: Option<Course>,
    marking: Marking,
    cleaning: Cleaning,
    /// Superblocks that are to be written, by their operations.
    pub(super) superblocks: VecDeque<usize>,
    /// Operations under way.
    pub(super) ops: Vec<usize>,
    pub(super) rot: Rot,
    standing: GuardStanding,
    /// How much is known needs not be written.
    counted: bool,
}

impl Guard {
    /// Goes on with an area as it was found. With `read_only` nothing is written: an area that
    /// somebody else casts doubt on is of no use then.
    pub(super) fn new(found: FoundArea, read_only: bool) -> Option<Self> {
        let counted = found.counted();
        let FoundArea { place, header, on_disk, marks, foreign } = found;
        if foreign && read_only {
            return None;
        }
        let area_id = header.area_id;
        let known = KnownBlocks::new(counted, &marks);
        let marks = MarkedPages::new(place.area, marks, AHEAD);
        let (accepted, opening) = if foreign {
            let (accepted, steps) = AcceptedSuperblocks::taken_over(&header, on_disk, &marks);
            (accepted, Some(Course::of_durable(steps)))
        } else {
            (AcceptedSuperblocks::new(header, on_disk), None)
        };
        Some(Self {
            place,
            area_id,
            accepted: Some(accepted),
            doubted: None,
            marks,
            table: CachedTable::new(known),
            opening,
            superblock: None,
            marking: Marking::default(),
            cleaning: Cleaning::Resting { until: Instant::default() },
            superblocks: VecDeque::new(),
            ops: Vec::new(),
            rot: Rot::default(),
            standing: GuardStanding::Guarding,
            counted: read_only,
        })
    }

    /// The sectors of its data, counted from their first, that these sectors of the device are;
    /// `None` where they are none.
    pub(super) fn data(&self, sector: u64, sectors: u64) -> Option<Range<u64>> {
        let start = sector.checked_sub(self.place.data_offset)?;
        let end = start.checked_add(sectors)?;
        (start < end && end <= self.place.area.data_sectors()).then_some(start..end)
    }

    /// The sector of the device that has this byte of the area.
    pub(super) const fn sector(&self, byte: u64) -> u64 {
        self.place.start + byte / SECTOR_BYTES
    }

    /// Returns whether nothing is verified or noted any more.
    pub(super) const fn is_retired(&self) -> bool {
        !matches!(self.standing, GuardStanding::Guarding)
    }

    /// Returns whether nothing waits for anything, either.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.standing, GuardStanding::Retired)
    }

    /// Gives up an area whose store has failed. Returns whether a new superblock is to be written,
    /// which the area does not accept, before data may be written without marks.
    pub(super) fn disown(&mut self, closing: bool) -> bool {
        // All is marked while somebody else's superblock is taken over.
        if self.opening.is_some() || closing {
            self.leave();
            return false;
        }
        self.leave();
        self.standing = GuardStanding::Disowning;
        true
    }

    /// Returns whether the area waits for a superblock that it does not accept.
    pub(super) const fn is_disowning(&self) -> bool {
        matches!(self.standing, GuardStanding::Disowning)
    }

    /// Returns whether the area accepts this superblock under no circumstances.
    pub(super) fn is_disowned_by(&self, superblock: Option<SuperblockDigest>) -> bool {
        let may_accept =
            |digest| self.doubted.as_ref().is_some_and(|doubted| doubted.may_accept(&digest));
        superblock.is_some_and(|digest| !may_accept(digest))
    }

    /// Takes note that no superblock comes any more.
    pub(super) const fn writes_no_superblocks(&mut self) {
        if self.is_disowning() {
            self.standing = GuardStanding::Stuck;
        }
    }

    /// It becomes unknown which superblock is on the member.
    pub(super) fn doubt(&mut self) {
        self.doubted = self.accepted.take().or(self.doubted.take());
    }

    /// Gives the area up: nothing is verified from now on, and writes wait for nothing. Called only
    /// where the header accepts no superblock that is, or will be, on the member, or all is marked.
    pub(super) fn retire(&mut self) {
        self.standing = GuardStanding::Retired;
        self.doubt();
        if matches!(self.cleaning, Cleaning::Flushed) {
            // Nothing follows any more.
            self.cleaning = Cleaning::Resting { until: Instant::default() };
        }
    }

    pub(super) fn course(&mut self, kind: CourseKind) -> Option<&mut Course> {
        match kind {
            CourseKind::Opening => self.opening.as_mut(),
            CourseKind::Superblock => self.superblock.as_mut(),
            CourseKind::Marking => self.marking.course.as_mut(),
            CourseKind::Cleaning => match &mut self.cleaning {
                Cleaning::Resting { .. } | Cleaning::Flushed => None,
                Cleaning::Pages(course) | Cleaning::Marks(course) => Some(course),
            },
        }
    }

    /// Ends all that is under way: the member is gone, or goes.
    pub(super) fn leave(&mut self) {
        self.retire();
        self.opening = None;
        self.superblock = None;
        self.marking.course = None;
        self.cleaning = Cleaning::Resting { until: Instant::default() };
    }

    /// Begins the courses that are due.
    pub(super) fn begin_courses(&mut self, now: Instant, closing: bool) {
        if self.is_retired() || self.opening.is_some() {
            return;
        }
        if matches!(self.cleaning, Cleaning::Flushed) && self.marking.course.is_none() {
            let steps = self.marks.clear_nominated();
            self.cleaning = Cleaning::Marks(Course::flushing(steps));
        }
        let clears = matches!(self.cleaning, Cleaning::Marks(_)) && !crate::broken("mark-order");
        let Marking { next, course, running, stalled, .. } = &mut self.marking;
        if course.is_none() && !next.is_empty() && !*stalled && !clears {
            *running = std::mem::take(next);
            *course = Some(Course::of_durable(MarkedPages::marking(running.clone())));
        }
        let full = self.table.dirty() > CACHED_PAGES / 2;
        let due = |until| closing || full || until <= now;
        if matches!(self.cleaning, Cleaning::Resting { until } if due(until))
            && self.marks.clearable()
        {
            let steps = self.marks.nominate();
            self.cleaning = if crate::broken("table-first") {
                Cleaning::Flushed
            } else if steps.is_empty() {
                Self::rests(now)
            } else {
                Cleaning::Pages(Course::flushing(steps))
            };
        }
        if closing && !self.marks.clearable() && self.is_at_rest() {
            self.note_count();
        }
    }

    /// Writes how much is known, for the next start.
    fn note_count(&mut self) {
        let counted = std::mem::replace(&mut self.counted, true);
        if let (Some(blocks), Some(accepted), false) =
            (self.table.known(), &mut self.accepted, counted)
        {
            let marks = self.marks.marks().digest();
            let steps = accepted.counted(KnownCount { blocks, marks });
            self.superblock = Some(Course::flushing(steps));
        }
    }

    const fn rests(now: Instant) -> Cleaning {
        Cleaning::Resting { until: now.plus_millis(CLEAN_AFTER_MS) }
    }

    /// Ends a course that is over. Nothing is tried again for an array that has stopped.
    pub(super) fn end_course(&mut self, kind: CourseKind, now: Instant, closing: bool) {
        match kind {
            CourseKind::Opening => {
                if self.opening.take().is_some_and(|course| course.failure().is_some()) {
                    // Nothing is accepted, or all is marked.
                    self.retire();
                }
            }
            CourseKind::Superblock => self.superblock = None,
            CourseKind::Marking => {
                let Marking { next, course, running, done, failure, stalled } = &mut self.marking;
                *failure = course.take().and_then(|course| course.failure());
                *stalled = failure.is_some();
                if failure.is_some() {
                    next.append(running);
                } else {
                    *done += 1;
                    self.marks.told(*done);
                }
            }
            CourseKind::Cleaning => {
                self.cleaning = match std::mem::replace(&mut self.cleaning, Self::rests(now)) {
                    Cleaning::Pages(course) if course.failure().is_none() && !self.is_retired() => {
                        Cleaning::Flushed
                    }
                    Cleaning::Pages(_) => {
                        self.marks.forget_nominated();
                        if closing {
                            self.standing = GuardStanding::Retired;
                        }
                        Self::rests(now)
                    }
                    Cleaning::Marks(_) | Cleaning::Flushed | Cleaning::Resting { .. } => {
                        Self::rests(now)
                    }
                }
            }
        }
    }

    /// Begins to write a superblock that was announced.
    pub(super) fn begin_superblock(&mut self, course: Course) {
        self.superblock = Some(course);
    }

    /// Returns whether a superblock may be announced now.
    pub(super) const fn takes_superblock(&self) -> bool {
        self.superblock.is_none() && self.opening.is_none()
    }

    /// A write to these sectors of the data wants to begin: the ticket that it waits for.
    pub(super) fn begin_write(&mut self, sectors: Range<u64>) -> u64 {
        let Marking { next, course, done, stalled, .. } = &mut self.marking;
        *stalled = false;
        let ticket = *done + 1 + u64::from(course.is_some());
        self.marks.begin(sectors, ticket, next)
    }

    /// Returns whether a write may begin that waits for this ticket, and for what it touches to be
    /// in memory.
    pub(super) fn readiness(&mut self, ticket: u64, pages: Range<u64>) -> Readiness {
        if self.is_over() {
            Readiness::Ready
        } else if self.is_retired() {
            match self.standing {
                _ if ticket <= self.marking.done => Readiness::Ready,
                GuardStanding::Stuck => Readiness::Fails(IoError::GONE),
                _ if crate::broken("disown-first") => Readiness::Ready,
                _ => Readiness::Waits,
            }
        } else if self.opening.is_some() {
            Readiness::Waits
        } else if ticket > self.marking.done && !crate::broken("sum-mark") {
            // Where others have failed, this one tries again.
            self.marking.stalled &= self.marking.failure.is_some();
            self.marking.failure.map_or(Readiness::Waits, Readiness::Fails)
        } else if self.has(pages) {
            Readiness::Ready
        } else {
            Readiness::Waits
        }
    }

    /// What waited for marks that could not be written has failed.
    pub(super) const fn have_failed(&mut self) {
        self.marking.failure = None;
    }

    /// Returns whether these pages of the table are in memory.
    pub(super) fn has(&self, mut pages: Range<u64>) -> bool {
        pages.all(|page| self.table.presence(page) == Presence::Loaded)
    }

    /// Wants these pages of the table in memory. Returns those that are to be read.
    pub(super) fn want(&mut self, pages: Range<u64>) -> Vec<u64> {
        let mut absent: Vec<u64> = Vec::new();
        for page in pages {
            if self.table.presence(page) != Presence::Absent {
                continue;
            }
            if self.marks.proves(page as usize) {
                self.table.begin_load(page);
                absent.push(page);
            } else {
                self.loaded(page, TablePage::unknown());
            }
        }
        absent
    }

    pub(super) fn loaded(&mut self, number: u64, page: TablePage) {
        self.table.loaded(number, page, CACHED_PAGES);
    }

    /// The blocks of a write are neither what they were nor what they will be.
    pub(super) fn in_flux(&mut self, blocks: impl Iterator<Item = u64>, pages: Range<u64>) {
        for page in pages {
            if !self.marks.proves(page as usize) {
                // The one on the member tells what was.
                self.marks.made_anew(page as usize);
                self.table.unwritten(page);
            }
        }
        blocks.for_each(|block| self.table.set(block, None));
    }

    /// Returns whether the checksum of a block is known, or cannot be taken in.
    pub(super) fn needs_no_sum(&mut self, block: u64) -> bool {
        let page = block / PAGE_BLOCKS;
        self.is_retired() || !self.has(page..page + 1) || self.table.get(block).is_some()
    }

    /// Takes checksums of some of these blocks, which are on the member as they are to be. Its
    /// pages are marked as for a write, and nothing waits for the marks: a page that is torn knows
    /// nothing.
    pub(super) fn confirm(&mut self, blocks: Range<u64>, sums: impl Iterator<Item = (u64, u32)>) {
        let area = self.place.area;
        let sectors = area.block(blocks.start).start..area.block(blocks.end - 1).end;
        let pages = area.pages_of(sectors.clone());
        if self.is_retired() || !self.has(pages.clone()) {
            return;
        }
        self.begin_write(sectors.clone());
        self.in_flux(std::iter::empty(), pages);
        sums.for_each(|(block, sum)| self.table.set(block, Some(sum)));
        self.marks.end(sectors, false);
    }

    pub(super) fn status(&self, member: MemberId) -> MemberIntegrity {
        MemberIntegrity {
            member,
            blocks: self.place.area.blocks(),
            known_blocks: if self.is_retired() { None } else { self.table.known() },
            is_verified: !self.is_retired(),
            mismatches: self.rot.mismatches(),
            healed: self.rot.healed(),
        }
    }

    /// Returns when marks may be cleared.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match self.cleaning {
            Cleaning::Resting { until } if self.clears_marks() => Some(until),
            _ => None,
        }
    }

    fn clears_marks(&self) -> bool {
        self.marks.clearable() && !self.is_retired() && self.opening.is_none()
    }

    /// Returns whether nothing is under way, but for operations that were given up.
    pub(super) fn is_at_rest(&self) -> bool {
        let rests = matches!(self.cleaning, Cleaning::Resting { .. });
        let waits = !self.marking.next.is_empty() && !self.marking.stalled && !self.is_retired();
        rests
            && self.opening.is_none()
            && self.superblock.is_none()
            && !waits
            && self.marking.course.is_none()
    }

    /// Returns whether nothing is to be written any more, of an array that has stopped.
    pub(super) const fn is_clean(&self) -> bool {
        self.is_retired() || self.counted && !self.marks.clearable()
    }
}
