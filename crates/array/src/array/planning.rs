//! From a job to its plan: the geometry says where the strips lie, the member table who can be
//! read and who must be written, and the planners in [`crate::plan`] do the rest.

use super::dirty::DirtyPages;
use super::job::{Job, JobKind, UnitWrite};
use super::map::{ArrayMap, data_sector, parity_place};
use super::recording::{LeftPage, LogKind, Way};
use super::scratch::PAGE_BYTES;
use super::spare::Spare;
use crate::action::{Compute, IoOp};
use crate::code::Cell;
use crate::format::backup::HEADER_SECTORS;
use crate::keeper::{KeeperView, Unit, Unread};
use crate::plan::parity::{self, Segment, Source, StripeView};
use crate::plan::parity_sync::{self, Target};
use crate::plan::whole;
use crate::plan::{MemberIo, MemberPlace, Plan, RoleView, Rows, Taken, Unrecoverable, mirror};
use crate::{Buf, MemberId, RequestError, Role, SECTOR_BYTES};

/// The inputs of plans: the members as they are now, and where bytes lie.
#[derive(Clone, Copy)]
pub(super) struct Planner<'a> {
    pub(super) keeper: KeeperView<'a>,
    pub(super) map: &'a ArrayMap,
    pub(super) dirty: &'a DirtyPages,
}

impl Planner<'_> {
    pub(super) fn stripe_view(&self, unit: Unit, avoid: &[MemberId]) -> StripeView {
        self.stripe_view_in(Vec::new(), unit, avoid)
    }

    /// The same, in the memory of an empty list of cells.
    fn stripe_view_in(
        &self,
        mut cells: Vec<RoleView>,
        unit: Unit,
        avoid: &[MemberId],
    ) -> StripeView {
        let code = self.map.code_at(unit.start);
        let sums = code.equations().iter().map(|equation| equation.parity);
        let numbered = code.data().iter().copied().chain(sums);
        let start = unit.start;
        let sectors = u64::from(unit.sectors);
        let view = |cell: Cell| self.keeper.members().view(cell.node, start, sectors, avoid);
        cells.extend(numbered.map(view));
        let parity_valid = self.keeper.in_step(start, unit.end());
        let sums_count = parity_valid || self.keeper.is_vouched_for();
        StripeView { cells, code, parity_valid, sums_count, recorded: false }
    }

    /// The stripe that a unit is to be in once data have moved there.
    fn moved_view(&self, unit: Unit) -> StripeView {
        let code = self.map.new_code_at(unit.start);
        let sums = code.equations().iter().map(|equation| equation.parity);
        let numbered = code.data().iter().copied().chain(sums);
        let view = |cell: Cell| self.keeper.members().moved_view(cell.node, unit.start);
        let cells = numbered.map(view).collect();
        StripeView { cells, code, parity_valid: true, sums_count: true, recorded: false }
    }

    /// Reads the data of a unit where they lie, and writes them as a whole stripe of the map that
    /// they move to. Behind the end of the array, where that grows, are zeroes.
    fn plan_move(
        &self,
        unit: Unit,
        avoid: &[MemberId],
        zero: Buf,
        taken: &mut Taken,
    ) -> Result<Plan, Unrecoverable> {
        if !self.map.has_parity() {
            return self.plan_copy_move(unit, avoid, taken);
        }
        let (plan, segments) = match self.map.saved_to() {
            Some(device) if avoid.contains(&device) => return Err(Unrecoverable),
            Some(device) => self.read_saved(unit, device, taken),
            None => self.read_moved(unit, avoid, taken)?,
        };
        parity::write(plan, &self.moved_view(unit), &segments, zero, false, taken)
    }

    /// Reads the data of a unit where they lie, and writes them where they are saved.
    fn plan_save(
        &self,
        unit: Unit,
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<Plan, Unrecoverable> {
        let member = self.map.saved_to().ok_or(Unrecoverable)?;
        let (mut plan, segments) = self.read_moved(unit, avoid, taken)?;
        for Segment { index, source, .. } in segments {
            let Source::Buf(buf) = source else { continue };
            let sector = self.saved_at(unit, index);
            let op = IoOp::Write { sector, buf, fua: false, fill: false };
            plan.writes.push(MemberIo { member, op });
        }
        Ok(plan)
    }

    /// The sector at which a strip of a unit is saved.
    fn saved_at(&self, unit: Unit, index: u32) -> u64 {
        HEADER_SECTORS + data_sector(&self.map.geometry, unit.start, index) - self.map.saved_from()
    }

    /// Reads the data of a unit where they were saved.
    fn read_saved(&self, unit: Unit, member: MemberId, taken: &mut Taken) -> (Plan, Vec<Segment>) {
        let rows = Rows::new(0, unit.sectors);
        let mut plan = Plan::default();
        let mut segments = Vec::new();
        for index in 0..self.map.geometry.data_disks() {
            let buf = rows.of(taken.take());
            let sector = self.saved_at(unit, index);
            plan.reads.push(MemberIo { member, op: IoOp::Read { sector, buf } });
            segments.push(Segment { index, rows, source: Source::Buf(buf) });
        }
        (plan, segments)
    }

    /// Reads the data of a unit of the map that they move to where they lie.
    fn read_moved(
        &self,
        unit: Unit,
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<(Plan, Vec<Segment>), Unrecoverable> {
        let old = self.map.old().ok_or(Unrecoverable)?;
        let rows = Rows::new(0, unit.sectors);
        let mut plan = Plan::default();
        let mut segments = Vec::new();
        for index in 0..self.map.geometry.data_disks() {
            let sector = data_sector(&self.map.geometry, unit.start, index);
            let source = if sector < old.array_sectors() {
                let buf = rows.of(taken.take());
                let (strip, row) = parity_place(old, sector);
                let view = self.stripe_view(Unit { start: row, ..unit }, avoid);
                let read = parity::read(&view, strip, rows, buf, taken)?;
                plan.reads.extend(read.reads);
                plan.computes.extend(read.computes);
                Source::Buf(buf)
            } else {
                Source::Zeroes { unmap: false }
            };
            segments.push(Segment { index, rows, source });
        }
        Ok((plan, segments))
    }

    /// Reads a unit of the array from one of its copies, and writes all that there are to be.
    fn plan_copy_move(
        &self,
        unit: Unit,
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<Plan, Unrecoverable> {
        let sectors = u64::from(unit.sectors);
        let rows = Rows::new(0, unit.sectors);
        let buf = rows.of(taken.take());
        let source = self.copies(unit.start, sectors, avoid).find_map(|copy| copy.reader);
        let mut plan = Plan::default();
        plan.read_into(source.ok_or(Unrecoverable)?, rows, buf);
        for copy in 0..self.map.geometry.copies() {
            let strip = self.map.moved_copy(unit.start, copy);
            let view = self.keeper.members().view(strip.role, strip.sector, sectors, &[]);
            plan.write(&view, rows, buf, false);
        }
        Ok(plan)
    }

    /// The sectors of the array that a move of a unit could not read.
    pub(super) fn unmoved(&self, job: &Job, unit: Unit) -> Vec<Unread> {
        let map = &self.map.geometry;
        let place = |array_sector| Unread {
            array_sector,
            sectors: unit.sectors.into(),
            members: job.avoid.clone(),
        };
        if !self.map.has_parity() {
            return vec![place(unit.start)];
        }
        let strips = (0..map.data_disks()).map(|index| data_sector(map, unit.start, index));
        strips.map(place).collect()
    }

    /// The copies of a range of a mirror that does not cross a chunk.
    pub(super) fn copies<'a>(
        &'a self,
        sector: u64,
        sectors: u64,
        avoid: &'a [MemberId],
    ) -> impl Iterator<Item = RoleView> + Clone + 'a {
        (0..self.map.geometry.copies()).map(move |copy| {
            let strip = self.map.copy(sector, copy);
            self.keeper.members().view(strip.role, strip.sector, sectors, avoid)
        })
    }

    /// The plan of a job, from the state of the members now; not that of a comparison, which
    /// [`check`](Self::check) makes. `memory`: of plans that are done with; `zero`: a strip of
    /// zeroes.
    pub(super) fn plan(
        &self,
        job: &mut Job,
        taken: &mut Taken,
        memory: &mut Spare,
        zero: Buf,
        log: LogKind,
    ) -> Result<Plan, RequestError> {
        let failed = self.keeper.has_failed();
        let lost = if failed { RequestError::Failed } else { RequestError::Medium };
        let lost = |Unrecoverable| lost;
        let Job { kind, avoid, fua, .. } = job;
        let fua = *fua;
        match kind {
            JobKind::Write(write) => {
                let UnitWrite { unit, segments, whole_blocks, way, .. } = write;
                let mut view = self.stripe_view_in(memory.cells(), *unit, avoid);
                view.recorded = match log {
                    LogKind::None => false,
                    // The log for the stripe is that of the member which holds its parity.
                    LogKind::PartialParity => view.cells.last().is_some_and(RoleView::writable),
                    LogKind::Journal => true,
                };
                let mut plan = memory.plan();
                *whole_blocks = match way {
                    Way::Back(pages) => return Ok(copy_pages(plan, segments, pages)),
                    Way::Destage => {
                        let pages = self.dirty.segments(*unit);
                        let strips = whole::whole_strips(&mut plan, &view, &pages, zero, taken);
                        Some(strips.map_err(lost)?)
                    }
                    Way::Through if log == LogKind::Journal => {
                        whole::whole_blocks(&mut plan, &view, segments, zero, taken)
                            .map_err(lost)?
                    }
                    Way::Through => None,
                };
                let segments = whole_blocks.as_ref().unwrap_or(segments);
                let plan = parity::write(plan, &view, segments, zero, fua, taken);
                memory.keep_cells(view.cells);
                plan.map_err(lost)
            }
            JobKind::MirrorWrite { sector, sectors, source, .. } => {
                Ok(self.plan_mirror_write(memory.plan(), *sector, *sectors, *source, fua))
            }
            JobKind::ZeroStripes { start, end, unmap, .. } => {
                Ok(self.plan_zero_stripes(*start, *end, *unmap, fua))
            }
            JobKind::Read { sector, buf, prefer, .. } => {
                self.plan_read(*sector, *buf, *prefer, avoid, taken).map_err(lost)
            }
            JobKind::Rebuild { unit, targets, .. } => {
                self.plan_rebuild(*unit, targets, avoid, taken).map_err(lost)
            }
            JobKind::Mend { unit, target, .. } => {
                self.plan_rebuild(*unit, &[*target], avoid, taken).map_err(lost)
            }
            JobKind::Move { unit } => self.plan_move(*unit, avoid, zero, taken).map_err(lost),
            JobKind::Save { unit } => self.plan_save(*unit, avoid, taken).map_err(lost),
            JobKind::Verify { unit, target } => self.plan_verify(*unit, *target, avoid, taken),
            JobKind::Check { .. } => Ok(Plan::default()),
        }
    }

    fn plan_mirror_write(
        &self,
        mut plan: Plan,
        sector: u64,
        sectors: u64,
        source: Source,
        fua: bool,
    ) -> Plan {
        let rows = Rows::new(0, sectors as u32);
        for copy in self.copies(sector, sectors, &[]) {
            match source {
                Source::Buf(buf) => plan.write(&copy, rows, buf, fua),
                Source::Zeroes { unmap } => plan.zero(&copy, rows, unmap, fua),
            }
        }
        plan
    }

    fn plan_zero_stripes(&self, start: u64, end: u64, unmap: bool, fua: bool) -> Plan {
        let mut plan = Plan::default();
        let rows = Rows::new(0, (end - start) as u32);
        for role in Role::all(self.map.at_row(start).raid_disks() as u16) {
            plan.zero(&self.keeper.members().view(role, start, end - start, &[]), rows, unmap, fua);
        }
        plan
    }

    fn plan_read(
        &self,
        sector: u64,
        buf: Buf,
        prefer: Option<MemberId>,
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<Plan, Unrecoverable> {
        let sectors = u64::from(buf.len) / SECTOR_BYTES;
        if self.map.has_parity() {
            return self.plan_stripe_read(sector, buf, avoid, taken);
        }
        let copies = self.copies(sector, sectors, avoid);
        let mut readers = copies.filter_map(|copy| copy.reader);
        let preferred = readers.clone().find(|place| Some(place.member) == prefer);
        let place = preferred.or_else(|| readers.next()).ok_or(Unrecoverable)?;
        let mut plan = Plan::default();
        plan.read_into(place, Rows::new(0, sectors as u32), buf);
        Ok(plan)
    }

    /// Reads what members hold, and puts over it what is newer and not in place.
    fn plan_stripe_read(
        &self,
        sector: u64,
        buf: Buf,
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<Plan, Unrecoverable> {
        let sectors = u64::from(buf.len) / SECTOR_BYTES;
        let (index, row) = self.map.parity_place(sector);
        let newer = || self.dirty.within(self.map, sector, sectors);
        let all_newer = newer().map(|(rows, _)| u64::from(rows.sectors())).sum::<u64>() == sectors;
        let mut plan = if all_newer {
            Plan::default()
        } else {
            let unit = Unit { start: row, sectors: sectors as u32 };
            let view = self.stripe_view(unit, avoid);
            parity::read(&view, index, Rows::new(0, unit.sectors), buf, taken)?
        };
        for (rows, page) in newer() {
            plan.copy(page, rows.of(buf));
        }
        Ok(plan)
    }

    fn plan_rebuild(
        &self,
        unit: Unit,
        targets: &[MemberId],
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<Plan, Unrecoverable> {
        let rows = Rows::new(0, unit.sectors);
        if self.map.has_parity() {
            let view = self.stripe_view(unit, avoid);
            let targets: Vec<Target> =
                targets.iter().filter_map(|id| self.target(&view, *id)).collect();
            return parity_sync::rebuild(&view, &targets, rows, taken);
        }
        let copies: Vec<RoleView> =
            self.copies(unit.start, u64::from(unit.sectors), avoid).collect();
        let places: Vec<MemberPlace> = copies
            .iter()
            .flat_map(|copy| copy.writers.into_iter().flatten())
            .filter(|place| targets.contains(&place.member))
            .collect();
        mirror::rebuild(&copies, &places, rows, taken)
    }

    /// Reads what a member was given of a unit, and compares it with what the others say, where
    /// they can: not what is being rebuilt as well, and not sums that may not fit.
    fn plan_verify(
        &self,
        unit: Unit,
        target: MemberId,
        avoid: &[MemberId],
        taken: &mut Taken,
    ) -> Result<Plan, RequestError> {
        if avoid.contains(&target) {
            return Err(RequestError::Medium);
        }
        let rebuilt =
            self.keeper.members().iter().filter(|(_, member)| member.state.is_rebuilding());
        let unproven: Vec<MemberId> =
            avoid.iter().copied().chain(rebuilt.map(|(id, _)| id)).collect();
        let (place, told) = if self.map.has_parity() {
            self.told_by_stripe(unit, target, &unproven, taken)?
        } else {
            self.told_by_copies(unit, target, &unproven, taken)?
        };
        let member = self.keeper.members().get(target).ok_or(RequestError::Failed)?;
        if member.bad_blocks.overlaps(place.sector, u64::from(unit.sectors)) {
            return Ok(Plan::default());
        }
        let rows = Rows::new(0, unit.sectors);
        let given = rows.of(taken.take());
        let Some((mut plan, told)) = told else {
            let mut plan = Plan::default();
            plan.read_into(place, rows, given);
            return Ok(plan);
        };
        plan.read_into(place, rows, given);
        plan.computes.push_back(Compute::Compare { a: given, b: told });
        Ok(plan)
    }

    /// Where a member holds its strip of a unit, and how the rest of the stripe tells what it is.
    fn told_by_stripe(
        &self,
        unit: Unit,
        target: MemberId,
        unproven: &[MemberId],
        taken: &mut Taken,
    ) -> Result<(MemberPlace, Option<(Plan, Buf)>), RequestError> {
        let view = self.stripe_view(unit, unproven);
        let Target { strip, place } = self.target(&view, target).ok_or(RequestError::Failed)?;
        let known = view.parity_valid || view.cells[strip].reader.is_some();
        let rows = Rows::new(0, unit.sectors);
        let told = known.then(|| parity_sync::fetch(&view, strip, rows, taken));
        Ok((place, told.and_then(Result::ok)))
    }

    /// The same of a mirror, where other copies tell it.
    fn told_by_copies(
        &self,
        unit: Unit,
        target: MemberId,
        unproven: &[MemberId],
        taken: &mut Taken,
    ) -> Result<(MemberPlace, Option<(Plan, Buf)>), RequestError> {
        let rows = Rows::new(0, unit.sectors);
        let sectors = u64::from(unit.sectors);
        let copies: Vec<RoleView> = self.copies(unit.start, sectors, unproven).collect();
        let of_target = |copy: &RoleView| {
            let mut writers = copy.writers.into_iter().flatten();
            Some((*copy, writers.find(|place| place.member == target)?))
        };
        let (own, place) = copies.iter().find_map(of_target).ok_or(RequestError::Failed)?;
        let in_step = self.keeper.in_step(unit.start, unit.end());
        let mut others = copies.iter().filter_map(|copy| copy.reader);
        let other = if in_step { others.next() } else { None };
        let told = own.reader.or(other).map(|source| {
            let mut plan = Plan::default();
            let held = rows.of(taken.take());
            plan.read_into(source, rows, held);
            (plan, held)
        });
        Ok((place, told))
    }

    /// The strip of a stripe that a member holds.
    fn target(&self, view: &StripeView, member: MemberId) -> Option<Target> {
        view.cells.iter().enumerate().find_map(|(strip, role)| {
            let mut writers = role.writers.into_iter().flatten();
            let place = writers.find(|place| place.member == member)?;
            Some(Target { strip, place })
        })
    }

    /// The member to read a mirrored range from: one that is at hand and least busy.
    pub(super) fn choose_copy(&self, sector: u64, sectors: u64) -> Option<MemberPlace> {
        let in_step = self.keeper.in_step(sector, sector + sectors);
        let mut best: Option<(u32, MemberPlace)> = None;
        for copy in 0..self.map.geometry.copies() {
            let strip = self.map.copy(sector, copy);
            let Some(place) =
                self.keeper.members().view(strip.role, strip.sector, sectors, &[]).reader
            else {
                continue;
            };
            // Copies that a resync has yet to bring in line may differ: always use the first.
            if !in_step {
                return Some(place);
            }
            let Some(member) = self.keeper.members().get(place.member) else { continue };
            let sequential = u32::from(member.last_end != place.sector);
            let score = member.in_flight * 2 + sequential;
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, place));
            }
        }
        best.map(|(_, place)| place)
    }
}

/// Copies new contents into the memory of pages that are left in the journal: all of them, in
/// order.
fn copy_pages(mut plan: Plan, segments: &[Segment], pages: &[LeftPage]) -> Plan {
    let parts = segments.iter().filter_map(|segment| match segment.source {
        Source::Buf(buf) => Some(buf),
        Source::Zeroes { .. } => None,
    });
    let parts = parts.flat_map(|buf| {
        (0..buf.len / PAGE_BYTES).map(move |number| buf.slice(number * PAGE_BYTES, PAGE_BYTES))
    });
    for (part, page) in parts.zip(pages) {
        plan.copy(part, page.buf);
    }
    plan
}
