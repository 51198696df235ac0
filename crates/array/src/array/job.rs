//! Planned operations: whatever needs a lock, a plan, scratch memory or metadata first.
//!
//! ```text
//!  Staged ─► Locking ─► Metadata ─► Scratch ─► Running ─► done
//!            (range of  (active,     ▲  (plan)    │  ▲ │
//!             sync      bitmap bits) │            │  ├─┘ check: a second plan without reads
//!             space)                 │            │  └─ Recording: before it writes, in the log
//!                                    └─ a read failed: plan again without that member
//! ```

use super::elders::Born;
use super::map::ArrayMap;
use super::mending;
use super::recording::{LogKind, Recorded, Way, recorded_strips};
use super::scratch::{PAGE_BYTES, UNIT_BYTES};
use crate::code::Answers;
use crate::events::Fault;
use crate::geometry::Geometry;
use crate::keeper::{BLOCK_SECTORS, Fix, Unit, Unread};
use crate::plan::mirror::HeldCopy;
use crate::plan::parity::{Segment, Source};
use crate::plan::{RoleView, Run, ScratchStrips, Taken};
use crate::{Buf, Instant, IoOp, MemberId, RequestError, SECTOR_BYTES};

/// Returns how many strips a move from one map to another takes: a whole stripe, and what strips
/// that are lost are computed from. These are in as many stripes of the old map as one of the new
/// one has parts in, or each in one of its own where chunks are of another size then.
pub(super) fn move_strips(old: &Geometry, new: &Geometry) -> usize {
    let roles = old.raid_disks().max(new.raid_disks()) as usize;
    let from = old.data_disks().max(1);
    let to = new.data_disks();
    if old.chunk_sectors() != new.chunk_sectors() {
        return roles.max(3) * roles;
    }
    let stripes = to.saturating_sub(2) / from + 2;
    (1 + stripes as usize) * roles
}

/// The purpose of a job.
#[derive(Clone, Debug)]
pub(crate) enum JobKind {
    /// New contents for parts of one unit of a stripe with parity.
    Write(UnitWrite),
    /// New contents for a range of a mirror.
    MirrorWrite { request: usize, sector: u64, sectors: u64, source: Source },
    /// Zeroes for whole stripes with parity.
    ZeroStripes { request: usize, start: u64, end: u64, unmap: bool },
    /// A read that needs reconstruction or another copy, within one unit. `sector` is of the array,
    /// `start` its place in sync space. A larger read failed on `prefer`: it is asked again, to
    /// find out which unit cannot be read.
    Read { request: usize, sector: u64, start: u64, buf: Buf, prefer: Option<MemberId> },
    /// Rebuild these members' strips of a unit.
    Rebuild { unit: Unit, targets: Vec<MemberId> },
    /// Rewrite a unit that a member holds and could not read, and read it again.
    Mend { unit: Unit, target: MemberId, fault: Fault },
    /// Compare what a member was given of a unit with what the others say.
    Verify { unit: Unit, target: MemberId },
    /// Compare a unit's redundancy with its data.
    Check(Check),
    /// Save the data of a unit of the map that they move to.
    Save { unit: Unit },
    /// Bring the data of a unit from the map that they lie by to the one that they move to: a unit
    /// of rows there with parity, of the array without.
    Move { unit: Unit },
}

/// A write of parts of one unit. The write grows until it is planned.
#[derive(Clone, Debug)]
pub(crate) struct UnitWrite {
    pub(crate) unit: Unit,
    pub(crate) segments: Vec<Segment>,
    pub(crate) requests: Vec<usize>,
    /// More of a sequential stream is likely to fill this unit until then.
    pub(crate) hold_until: Option<Instant>,
    /// A sequential stream writes this unit.
    pub(super) in_stream: bool,
    /// The unit was written not long ago.
    pub(super) seen: bool,
    /// When it asked members for what it reads.
    pub(super) read_at: Option<Instant>,
    /// The segments, made whole blocks of 4 KiB for a journal; or dirty pages.
    pub(super) whole_blocks: Option<Vec<Segment>>,
    pub(super) way: Way,
}

/// A comparison of a unit.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) unit: Unit,
    pub(crate) fix: Fix,
    /// The unit was made readable before.
    pub(crate) again: bool,
    pub(crate) state: Comparison,
}

impl Check {
    /// A comparison that is not begun.
    pub(super) const fn new(unit: Unit, fix: Fix) -> Self {
        Self { unit, fix, again: false, state: Comparison::None }
    }
}

/// The stage of a comparison.
#[derive(Clone, Debug, Default)]
pub(crate) enum Comparison {
    /// Nothing, or what brings the unit in line.
    #[default]
    None,
    /// The strips that were read are compared.
    Compares(Compared),
    /// The unit is made readable, to be compared then: these from parity that may not fit.
    Mends(Vec<Unread>),
    /// There is nothing to compare the unit with.
    Alone,
}

impl JobKind {
    /// The range of sync space a job locks.
    pub(super) fn range(&self) -> (u64, u64) {
        match *self {
            Self::Write(UnitWrite { unit, .. })
            | Self::Rebuild { unit, .. }
            | Self::Mend { unit, .. }
            | Self::Verify { unit, .. }
            | Self::Save { unit }
            | Self::Move { unit }
            | Self::Check(Check { unit, .. }) => (unit.start, unit.end()),
            Self::MirrorWrite { sector, sectors, .. } => (sector, sector + sectors),
            Self::ZeroStripes { start, end, .. } => (start, end),
            Self::Read { start, buf, .. } => (start, start + u64::from(buf.len) / SECTOR_BYTES),
        }
    }

    /// Returns how much of a strip a job of this kind uses at most, from the first byte on.
    fn part_bytes(&self) -> u32 {
        match self {
            Self::Read { buf, .. } => buf.len.next_multiple_of(PAGE_BYTES).min(UNIT_BYTES),
            _ => UNIT_BYTES,
        }
    }

    /// Strips of scratch a job of this kind may take.
    pub(super) fn strips_needed(&self, map: &ArrayMap, log: LogKind) -> usize {
        match self {
            Self::Write(UnitWrite { way: Way::Back(_), .. }) => 0,
            Self::Write(_) if log == LogKind::Journal => recorded_strips(map.roles()),
            Self::MirrorWrite { .. } | Self::ZeroStripes { .. } => 0,
            Self::Read { .. } if !map.has_parity() => 0,
            Self::Read { .. } => {
                let parts = UNIT_BYTES / self.part_bytes();
                map.roles().div_ceil(parts as usize)
            }
            Self::Rebuild { .. } | Self::Mend { .. } if !map.has_parity() => 1,
            Self::Verify { .. } if !map.has_parity() => 2,
            Self::Verify { .. } => map.roles() + 1,
            Self::Move { .. } if !map.has_parity() => 1,
            Self::Save { .. } | Self::Move { .. } => {
                move_strips(map.old().unwrap_or(&map.geometry), &map.geometry)
            }
            Self::Check { .. } if !map.has_parity() => map.geometry.copies() as usize,
            _ => map.roles(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobStage {
    Staged,
    Locking,
    /// The members are to know of this write.
    Metadata(u64),
    /// Dirty pages have to go in place first.
    Room,
    Scratch,
    /// Its plan is carried out.
    Running,
    /// The same, and what it writes is to be in the log first.
    Recording,
}

/// The way to go on after the comparison of a unit.
#[derive(Clone, Debug)]
pub(crate) enum Compared {
    /// `missing`: a strip that no member holds, computed from the first sum it is part of.
    Parity { strips: Vec<Buf>, missing: Option<usize> },
    /// A strip, by the number of its cell, was computed from one sum and compared with others.
    Vouched { strip: usize, strips: Vec<Buf> },
    /// `unread`: copies that a resync writes without having compared them.
    Mirror { copies: Vec<HeldCopy>, unread: Vec<RoleView> },
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) fua: bool,
    pub(crate) stage: JobStage,
    pub(crate) run: Run,
    pub(crate) taken: Option<Taken>,
    /// Members not to read from, and those of them whose medium failed and wants rewriting.
    pub(crate) avoid: Vec<MemberId>,
    pub(crate) unread: Vec<mending::UnreadMember>,
    pub(crate) write_failed: Option<RequestError>,
    /// Where in sync space background work has it in its books.
    pub(crate) place: u64,
    /// A read that was given up may still write into the buffer of the request.
    pub(crate) buffer_held: bool,
    pub(super) born: Born,
}

impl Job {
    pub(crate) fn new(kind: JobKind, fua: bool) -> Self {
        Self {
            kind,
            fua,
            stage: JobStage::Staged,
            run: Run::default(),
            taken: None,
            avoid: Vec::new(),
            unread: Vec::new(),
            write_failed: None,
            place: 0,
            buffer_held: false,
            born: Born::default(),
        }
    }

    /// The write of a unit that it is, if it is one.
    pub(super) const fn write(&self) -> Option<&UnitWrite> {
        if let JobKind::Write(write) = &self.kind { Some(write) } else { None }
    }

    /// The same, to be changed.
    pub(super) const fn write_mut(&mut self) -> Option<&mut UnitWrite> {
        if let JobKind::Write(write) = &mut self.kind { Some(write) } else { None }
    }

    /// Returns how it is carried out.
    pub(super) const fn way(&self) -> &Way {
        match &self.kind {
            JobKind::Write(write) => &write.way,
            _ => &Way::Through,
        }
    }

    /// Takes out the strips that were read of a unit and are compared now.
    pub(super) fn take_compared(&mut self) -> Option<Compared> {
        let JobKind::Check(check) = &mut self.kind else { return None };
        match std::mem::take(&mut check.state) {
            Comparison::Compares(compared) => Some(compared),
            state => {
                check.state = state;
                None
            }
        }
    }

    /// Returns the memory that a plan for it is made with, once it has these strips.
    pub(super) fn taken(&self, strips: ScratchStrips, answers: Answers) -> Taken {
        Taken::in_parts(strips, self.kind.part_bytes(), answers)
    }

    /// Changes user data, so the superblocks and the bitmap must say so first.
    pub(super) const fn writes_data(&self) -> bool {
        matches!(
            self.kind,
            JobKind::Write(_) | JobKind::MirrorWrite { .. } | JobKind::ZeroStripes { .. }
        )
    }

    /// Returns the changes that this log is to have before they are carried out.
    pub(super) fn recorded(&self, log: LogKind) -> Option<Recorded<'_>> {
        match (log, &self.kind) {
            (LogKind::PartialParity | LogKind::Journal, JobKind::Write(write)) => {
                let UnitWrite { unit, segments, whole_blocks, way, .. } = write;
                let segments = whole_blocks.as_ref().unwrap_or(segments);
                let sums = &self.run.plan().sums;
                Some(Recorded::Write { start: unit.start, segments, sums, way })
            }
            (
                LogKind::PartialParity | LogKind::Journal,
                &JobKind::ZeroStripes { start, end, .. },
            ) => Some(Recorded::Zeroes { start, end }),
            (LogKind::PartialParity, JobKind::Rebuild { targets, .. }) => {
                Some(Recorded::Rebuilt { targets })
            }
            _ => None,
        }
    }

    /// Returns whether its only purpose is to bring dirty pages in place.
    pub(super) fn only_destages(&self) -> bool {
        self.write().is_some_and(|write| write.segments.is_empty())
    }

    /// Returns whether the keeper's books have it as a write that has begun.
    pub(super) const fn write_begun(&self) -> bool {
        self.writes_data() && !matches!(self.stage, JobStage::Staged | JobStage::Locking)
    }

    /// Returns whether this is a unit that, not done as a whole, is done block by block.
    pub(super) fn goes_on_in_blocks(&self) -> bool {
        match self.kind {
            JobKind::Rebuild { unit, .. } | JobKind::Check(Check { unit, .. }) => {
                too_high_to_tell(unit)
            }
            _ => false,
        }
    }

    /// Returns whether this is a read into the buffer of a request.
    pub(super) fn reads_into(&self, op: IoOp) -> bool {
        match (&self.kind, op) {
            (JobKind::Read { buf, .. }, IoOp::Read { buf: to, .. }) => buf.overlaps(to),
            _ => false,
        }
    }

    /// New contents gathered so far, over all strips of the unit.
    pub(crate) fn gathered_sectors(&self) -> u64 {
        let segments = self.write().map_or(&[][..], |write| &write.segments);
        segments.iter().map(|segment| u64::from(segment.rows.sectors())).sum()
    }
}

/// Returns whether a unit holds more than is judged at once.
pub(super) fn too_high_to_tell(unit: Unit) -> bool {
    u64::from(unit.sectors) > BLOCK_SECTORS
}
