//! A plan is data: what to read, what to compute from it, what to write. Planners are pure
//! functions from the shape of a stripe and the state of its members to a [`Plan`]; the machine
//! runs the three stages in order and knows nothing of levels.

mod fetch;
pub(crate) mod mirror;
pub mod parity;
pub mod parity_sync;
mod run;
pub(crate) mod whole;

pub use fetch::{Fetch, Held};
pub use run::{PlanNext, PlanStage, Run};

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

use crate::action::{Compute, IoOp};
use crate::code::{Answers, Cell, Term};
use crate::{Buf, MemberId, SECTOR_BYTES};

/// A place on a member: the absolute device sector at which row 0 of the planned unit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// Member.
    pub member: MemberId,
    /// Its sector.
    pub sector: u64,
}

/// The ways to read and write one role's strip in the unit being planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleView {
    /// Place from which valid contents can be read.
    pub reader: Option<MemberPlace>,
    /// The member that should have valid contents and cannot read them.
    pub unreadable: Option<MemberId>,
    /// Its bad-block log says of all of it that it cannot.
    pub noted: bool,
    /// Places that must be written: those of the role's holder and its replacement.
    pub writers: [Option<MemberPlace>; 2],
}

impl RoleView {
    /// Returns whether any member holds the strip, or should.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.writers.iter().any(Option::is_some)
    }
}

/// An I/O of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIo {
    /// Member.
    pub member: MemberId,
    /// The operation.
    pub op: IoOp,
}

/// Stages run in order: all reads, then each computation in turn, then all writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Side by side, before everything else.
    pub reads: Vec<MemberIo>,
    /// Computations, one after the other.
    pub computes: VecDeque<Compute>,
    /// Side by side, after everything else.
    pub writes: Vec<MemberIo>,
    /// The sums of a write that is to be recorded in a log, whoever holds them.
    pub sums: Vec<PlannedSum>,
}

/// New rows of a sum, as a write makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSum {
    /// Its cell, by number.
    pub strip: usize,
    /// The rows.
    pub rows: Rows,
    /// Source of the rows when all is computed.
    pub source: parity::Source,
}

/// More strips are unreadable than the redundancy covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecoverable;

/// Rows of a unit: sectors counted from its first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rows {
    /// The first sector.
    pub start: u32,
    /// The sector after the last.
    pub end: u32,
}

impl Rows {
    /// Returns the rows from `start` up to `end`, in sectors.
    #[must_use]
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// Returns the number of sectors.
    #[must_use]
    pub const fn sectors(self) -> u32 {
        self.end - self.start
    }

    /// Returns these rows of a buffer whose first byte is row 0.
    pub fn of(self, slot: Buf) -> Buf {
        let sector = SECTOR_BYTES as u32;
        slot.slice(self.start * sector, self.sectors() * sector)
    }
}

impl Plan {
    /// Empty, with its memory.
    pub fn cleared(mut self) -> Self {
        self.reads.clear();
        self.computes.clear();
        self.writes.clear();
        self.sums.clear();
        self
    }

    /// Adds a read of `rows` at `place` into the same rows of `slot`. Reads that adjoin or overlap
    /// grow: nothing is read twice.
    pub fn read(&mut self, place: MemberPlace, rows: Rows, slot: Buf) {
        self.read_into(place, rows, rows.of(slot));
    }

    /// Adds a read of `rows` at `place` into `buf`, which is as long as the rows.
    pub fn read_into(&mut self, place: MemberPlace, rows: Rows, buf: Buf) {
        let sector = place.sector + u64::from(rows.start);
        for io in &mut self.reads {
            if io.member == place.member
                && let IoOp::Read { sector: first, buf: held } = &mut io.op
                && let Some(both) = joined((*first, *held), (sector, buf))
            {
                (*first, *held) = both;
                return;
            }
        }
        self.reads.push(MemberIo { member: place.member, op: IoOp::Read { sector, buf } });
    }

    /// Adds writes of `buf` to `rows` at every writer of a role. Adjoining writes grow.
    pub fn write(&mut self, role: &RoleView, rows: Rows, buf: Buf, fua: bool) {
        for place in role.writers.iter().flatten() {
            self.write_at(*place, rows, buf, fua);
        }
    }

    /// Adds a write of `buf` to `rows` at one place of a member that is being rebuilt.
    pub fn fill_at(&mut self, place: MemberPlace, rows: Rows, buf: Buf) {
        let sector = place.sector + u64::from(rows.start);
        let op = IoOp::Write { sector, buf, fua: false, fill: true };
        self.writes.push(MemberIo { member: place.member, op });
    }

    /// Adds a write of `buf` to `rows` at one place.
    fn write_at(&mut self, place: MemberPlace, rows: Rows, buf: Buf, fua: bool) {
        let sector = place.sector + u64::from(rows.start);
        for io in &mut self.writes {
            if let IoOp::Write { sector: first, buf: held, .. } = &mut io.op
                && io.member == place.member
                && *first + u64::from(held.len) / SECTOR_BYTES == sector
                && held.offset + u64::from(held.len) == buf.offset
            {
                held.len += buf.len;
                return;
            }
        }
        let op = IoOp::Write { sector, buf, fua, fill: false };
        self.writes.push(MemberIo { member: place.member, op });
    }

    /// Adds the copying of a buffer into another one as long.
    pub fn copy(&mut self, from: Buf, to: Buf) {
        self.computes.push_back(copied(from, to));
    }

    /// Adds zeroing of `rows` at every writer of a role.
    pub fn zero(&mut self, role: &RoleView, rows: Rows, unmap: bool, fua: bool) {
        for place in role.writers.iter().flatten() {
            let sector = place.sector + u64::from(rows.start);
            let op = IoOp::WriteZeroes { sector, sectors: rows.sectors().into(), unmap, fua };
            self.writes.push(MemberIo { member: place.member, op });
        }
    }
}

/// Joins two reads of one member, if they lie in memory as they do there and leave no gap.
fn joined(a: (u64, Buf), b: (u64, Buf)) -> Option<(u64, Buf)> {
    let (first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let apart = (second.0 - first.0) * SECTOR_BYTES;
    let in_place = first.1.offset + apart == second.1.offset;
    let len = u64::from(first.1.len).max(apart + u64::from(second.1.len));
    let len = u32::try_from(len).ok()?;
    let touch = apart <= u64::from(first.1.len);
    (in_place && touch).then_some((first.0, Buf { len, ..first.1 }))
}

/// Returns the computation that copies a buffer into another one as long.
pub(crate) fn copied(from: Buf, to: Buf) -> Compute {
    Compute::Sum {
        inputs: smallvec![from],
        coefs: smallvec![1],
        outputs: smallvec![to],
        accumulate: false,
    }
}

/// Returns the computation that forms a sum of strips in memory.
fn form(terms: &[Term], strip: impl Fn(Cell) -> Buf, output: Buf) -> Compute {
    Compute::Sum {
        inputs: terms.iter().map(|term| strip(term.cell)).collect(),
        coefs: terms.iter().map(|term| term.coef).collect(),
        outputs: smallvec![output],
        accumulate: false,
    }
}

/// Strips of scratch: so many are held without an allocation.
pub type ScratchStrips = SmallVec<[Buf; 10]>;

/// Material of one plan: scratch strips, given back as a whole when the plan ends, and findings
/// about codes, while it is made.
#[derive(Debug, Default)]
pub struct Taken {
    /// Earlier findings how cells come back.
    pub answers: Answers,
    bufs: ScratchStrips,
    /// Number of parts that each strip is cut into, and the length of a part.
    parts: usize,
    part_bytes: u32,
    /// The first so many parts are free.
    free: usize,
}

impl Taken {
    /// Takes over free strips, of which none is taken yet.
    #[must_use]
    pub fn new(free: ScratchStrips, answers: Answers) -> Self {
        Self::in_parts(free, u32::MAX, answers)
    }

    /// Each strip serves as several, of which no more than the first `part_bytes` are used.
    #[must_use]
    pub fn in_parts(free: ScratchStrips, part_bytes: u32, answers: Answers) -> Self {
        let strip_bytes = free.first().map_or(0, |strip| strip.len);
        let part_bytes = part_bytes.min(strip_bytes);
        let parts = strip_bytes.checked_div(part_bytes).unwrap_or(1) as usize;
        Self { answers, free: free.len() * parts, bufs: free, parts, part_bytes }
    }

    /// Takes one more strip.
    ///
    /// # Panics
    /// When a planner takes more than one for each cell and one more: a planner bug.
    pub fn take(&mut self) -> Buf {
        let free = self.free.checked_sub(1);
        self.free = free.expect("a plan takes a strip for each cell and one more");
        let part = (self.free % self.parts) as u32;
        self.bufs[self.free / self.parts].slice(part * self.part_bytes, self.part_bytes)
    }

    /// Returns how many bytes were set aside.
    pub fn bytes(&self) -> u64 {
        self.bufs.iter().map(|buf| u64::from(buf.len)).sum()
    }

    /// All of them, taken or not.
    pub fn into_bufs(self) -> impl Iterator<Item = Buf> {
        self.bufs.into_iter()
    }
}
