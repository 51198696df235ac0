//! The superblocks that the header of an area accepts, and who writes when.

use super::marked::MarkedPages;
use super::step::{IntegrityStep, IntegrityWrite, flushed};
use crate::format::integrity::{COPY_BYTES, IntegrityHeader, KnownCount, SuperblockDigest};

/// The header of an area that is in use, and the superblock of its member.
///
/// It comes from a [trusted](Self::new) table, from one that somebody else's superblock
/// [casts doubt](Self::taken_over) on, or from one that is [made](Self::made). Then each superblock
/// is announced [before](Self::before_superblock) it is written, and
/// [confirmed](Self::superblock_written) after that.
#[derive(Clone, Debug)]
pub struct AcceptedSuperblocks {
    header: IntegrityHeader,
    /// The other copy, as far as it may count.
    before: Option<IntegrityHeader>,
    /// The superblock on the member.
    on_disk: SuperblockDigest,
    /// The superblock that is about to be written.
    next: Option<SuperblockDigest>,
}

impl AcceptedSuperblocks {
    /// Goes on with a header that accepts the superblock of its member: there is nothing to write.
    #[must_use]
    pub const fn new(header: IntegrityHeader, on_disk: SuperblockDigest) -> Self {
        Self { header, before: None, on_disk, next: None }
    }

    /// Takes a superblock over that the header does not accept. All pages are marked before: these
    /// are the marks.
    #[must_use]
    pub fn taken_over(
        header: &IntegrityHeader,
        on_disk: SuperblockDigest,
        marks: &MarkedPages,
    ) -> (Self, Vec<IntegrityStep>) {
        let header = header.next([on_disk, on_disk]);
        let mut steps = all_marks(marks);
        steps.extend(flushed([written(&header)]));
        (Self { header, before: None, on_disk, next: None }, steps)
    }

    /// Makes a new area with this header, which accepts the superblock on the member, and with
    /// these marks, all of which are set. Whatever lies there does not count any more before
    /// anything else is written.
    #[must_use]
    pub fn made(
        header: IntegrityHeader,
        on_disk: SuperblockDigest,
        marks: &MarkedPages,
    ) -> (Self, Vec<IntegrityStep>) {
        let mut steps = flushed([wipe(0), wipe(1)]);
        steps.extend(all_marks(marks));
        steps.extend(flushed([written(&header)]));
        (Self { header, before: None, on_disk, next: None }, steps)
    }

    /// The steps that put an end to the area. Data may be written without a mark after them. The
    /// older copy goes first: alone it would not accept the superblock, and cost the table.
    #[must_use]
    pub fn wiped(&self) -> Vec<IntegrityStep> {
        let newest = self.header.copy();
        let mut steps = flushed([wipe(1 - newest)]);
        steps.extend(flushed([wipe(newest)]));
        steps
    }

    /// A superblock is to be written: the header accepts it first, and still the one that is there.
    ///
    /// # Panics
    /// When it is unknown whether the last one was written: a member that fails to take a
    /// superblock is given up, and its header stays as it is.
    pub fn before_superblock(&mut self, next: SuperblockDigest) -> Vec<IntegrityStep> {
        assert!(self.next.is_none(), "a superblock is being written");
        self.next = Some(next);
        let header = self.header.next([self.on_disk, next]);
        self.before = Some(std::mem::replace(&mut self.header, header));
        let mut steps = flushed([written(&self.header)]);
        steps.extend(flushed([IntegrityWrite::Superblock]));
        steps
    }

    /// The steps that note how much is known, of an array that has stopped, once the marks that
    /// were cleared last are durable.
    ///
    /// # Panics
    /// When a superblock is being written.
    pub fn counted(&mut self, count: KnownCount) -> Vec<IntegrityStep> {
        assert!(self.next.is_none(), "a superblock is being written");
        self.header = self.header.with_count(count);
        let mut steps = vec![IntegrityStep::Flush];
        steps.extend(flushed([written(&self.header)]));
        steps
    }

    /// The superblock that was announced is on the member, durably.
    pub fn superblock_written(&mut self) {
        if let Some(next) = self.next.take() {
            self.on_disk = next;
        }
    }

    /// Returns whether the area may accept this superblock, also where the last writes of the
    /// header have failed and may be there or not.
    #[must_use]
    pub fn may_accept(&self, superblock: &SuperblockDigest) -> bool {
        let headers = std::iter::once(&self.header).chain(&self.before);
        headers.into_iter().any(|header| header.accepts(superblock))
    }

    /// The header as it was written last.
    #[must_use]
    pub const fn header(&self) -> &IntegrityHeader {
        &self.header
    }
}

fn written(header: &IntegrityHeader) -> IntegrityWrite {
    IntegrityWrite::Header { copy: header.copy(), bytes: header.encode() }
}

fn wipe(copy: usize) -> IntegrityWrite {
    IntegrityWrite::Header { copy, bytes: vec![0; COPY_BYTES] }
}

fn all_marks(marks: &MarkedPages) -> Vec<IntegrityStep> {
    flushed((0..marks.marks().marks_pages()).map(IntegrityWrite::Marks))
}
