//! The reads and writes of a job's plan, issued to members. Reads and writes of a write to stripes
//! go by the strips that are kept of their unit.

use std::ops::Range;

use super::io::Owner;
use super::job::{Job, JobKind, UnitWrite};
use super::lane::Lane;
use super::recording::LogKind;
use crate::keeper::Unit;
use crate::plan::{MemberIo, Rows, copied};
use crate::{IoOp, Outcome, SECTOR_BYTES};

/// Issues these reads of a job. Strips that are kept are copied instead.
pub(super) fn read(lane: &mut Lane, job: &mut Job, index: usize, which: Range<usize>) {
    let unit = written_unit(lane, job);
    if let Some(unit) = unit
        && lane.cache.reads_wait
    {
        let seen = lane.cache.see(unit);
        if let Some(write) = job.write_mut() {
            write.seen |= seen;
        }
    }
    for at in which {
        let io = job.run.plan().reads[at];
        match unit {
            Some(unit) => read_of_unit(lane, job, index, unit, io),
            None => lane.issue(io.member, io.op, Owner::Job(index)),
        }
    }
}

/// The unit of a write of which something may be kept: not with a journal, which has memory of its
/// own.
fn written_unit(lane: &Lane, job: &Job) -> Option<Unit> {
    match &job.kind {
        JobKind::Write(UnitWrite { unit, .. }) if lane.log != LogKind::Journal => Some(*unit),
        _ => None,
    }
}

/// Returns whether more of this unit is likely to be written soon.
fn is_kept(lane: &Lane, job: &Job) -> bool {
    lane.cache.reads_wait && job.write().is_some_and(|write| write.seen || write.in_stream)
}

/// One read of a write. For a stream, the rest of the strip is read along.
fn read_of_unit(lane: &mut Lane, job: &mut Job, index: usize, unit: Unit, io: MemberIo) {
    let MemberIo { member, op } = io;
    if let IoOp::Read { sector, buf } = op
        && let Some(rows) = rows_of(lane, unit, io)
    {
        let key = (unit.start, member);
        if let Some(kept) = lane.cache.find(index, key, rows) {
            return lane.issue_compute(copied(kept, buf), Owner::Job(index));
        }
        if let Some(coming) = lane.cache.coming(index, key, rows) {
            job.run.compute_first(copied(coming, buf));
            return job.run.answered(Outcome::Done);
        }
        let is_whole = lane.keeper().members().degraded() == 0 && !lane.keeper().doubts_any();
        let in_stream = job.write().is_some_and(|write| write.in_stream);
        let rest = if in_stream && is_whole { unit.sectors } else { rows.end };
        let wide = Rows::new(rows.start, rest);
        if is_kept(lane, job)
            && let Some(to) = lane.cache.keep(&mut lane.pool, index, key, wide, true)
        {
            job.run.compute_first(copied(to.slice(0, buf.len), buf));
            let op = IoOp::Read { sector, buf: to };
            note_read(lane, job);
            return lane.issue(member, op, Owner::Job(index));
        }
    }
    note_read(lane, job);
    lane.issue(member, op, Owner::Job(index));
}

/// Notes when a write asks members for what it reads.
fn note_read(lane: &Lane, job: &mut Job) {
    if let Some(write) = job.write_mut() {
        write.read_at = Some(lane.keeper().now());
    }
}

/// Notes that the data a write reads have come.
pub(super) fn has_read(lane: &mut Lane, job: &mut Job) {
    if let Some(asked) = job.write_mut().and_then(|write| write.read_at.take()) {
        lane.cache.reads_wait = lane.keeper().now() > asked;
    }
}

/// Issues the writes of a job to those members that have not failed.
pub(super) fn write(lane: &mut Lane, job: &mut Job, index: usize) {
    let unit = written_unit(lane, job);
    if unit.is_none() {
        let (start, end) = job.kind.range();
        let first = start - start % lane.map.unit_sectors();
        lane.cache.forget_units(&mut lane.pool, first, end);
    }
    for at in 0..job.run.plan().writes.len() {
        let io = job.run.plan().writes[at];
        if !lane.takes_io(io.member) {
            job.run.answered(Outcome::Done);
            continue;
        }
        if let Some(unit) = unit {
            keep_written(lane, job, index, unit, io);
        }
        lane.issue(io.member, io.op, Owner::Job(index));
    }
}

/// Copies what a write of a part of stripes writes, for the next one.
fn keep_written(lane: &mut Lane, job: &mut Job, index: usize, unit: Unit, io: MemberIo) {
    let Some(rows) = rows_of(lane, unit, io) else { return };
    let key = (unit.start, io.member);
    let IoOp::Write { buf, .. } = io.op else { return lane.cache.forget(key, rows) };
    let new = is_kept(lane, job) && job.run.has_read();
    if let Some(to) = lane.cache.keep(&mut lane.pool, index, key, rows, new) {
        job.run.one_more();
        lane.issue_compute(copied(buf, to), Owner::Job(index));
    }
}

/// The rows of its unit that an I/O is about.
fn rows_of(lane: &Lane, unit: Unit, io: MemberIo) -> Option<Rows> {
    let (sector, sectors) = match io.op {
        IoOp::Read { sector, buf } | IoOp::Write { sector, buf, .. } => {
            (sector, u64::from(buf.len) / SECTOR_BYTES)
        }
        IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors),
        IoOp::Discard { .. } | IoOp::Flush => return None,
    };
    let first = lane.keeper().members().get(io.member)?.absolute(unit.start);
    let start = u32::try_from(sector.checked_sub(first)?).ok()?;
    let end = start.checked_add(u32::try_from(sectors).ok()?)?;
    (end <= unit.sectors).then(|| Rows::new(start, end))
}
