//! From a job to its plan: the geometry says where the strips lie, the member table who can be
//! read and who must be written, and the planners in [`crate::plan`] do the rest.

use super::Array;
use super::job::{Job, Kind};
use super::space;
use crate::action::Compute;
use crate::code::Cell;
use crate::keeper::Unit;
use crate::level::Level;
use crate::plan::parity::{self, Segment, Source, StripeView};
use crate::plan::parity_sync::{self, Target};
use crate::plan::{Place, Plan, RoleView, Rows, Taken, Unrecoverable, mirror};
use crate::{Buf, IoOp, MemberId, RequestError, SECTOR_BYTES};

impl Array {
    pub(crate) const fn has_parity(&self) -> bool {
        matches!(self.geometry.level(), Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    pub(crate) const fn is_mirror(&self) -> bool {
        matches!(self.geometry.level(), Level::Raid1 | Level::Raid10)
    }

    /// Roles without an in-sync member.
    pub(crate) fn degraded(&self) -> u16 {
        self.keeper.members().degraded()
    }

    pub(crate) fn is_redundant(&self) -> bool {
        self.keeper.is_redundant()
    }

    /// Height of a unit: it divides the chunk.
    pub(crate) fn unit_sectors(&self) -> u64 {
        space::unit_sectors(&self.geometry)
    }

    /// Where an array sector lies in sync space.
    pub(crate) fn sync_sector(&self, sector: u64) -> u64 {
        if self.has_parity() { self.parity_place(sector).1 } else { sector }
    }

    /// Data index and member sector of an array sector, for parity levels.
    pub(crate) fn parity_place(&self, sector: u64) -> (u32, u64) {
        let chunk = u64::from(self.geometry.chunk_sectors());
        let data_disks = u64::from(self.geometry.data_disks());
        let (number, within) = (sector / chunk, sector % chunk);
        ((number % data_disks) as u32, number / data_disks * chunk + within)
    }

    /// First array sector of a unit.
    pub(crate) fn array_sector(&self, unit: Unit) -> u64 {
        if !self.has_parity() {
            return unit.start;
        }
        let chunk = u64::from(self.geometry.chunk_sectors());
        let data_disks = u64::from(self.geometry.data_disks());
        unit.start / chunk * chunk * data_disks + unit.start % chunk
    }

    /// Strips of scratch a job may take.
    pub(crate) fn strips_needed(&self, kind: &Kind) -> usize {
        match kind {
            Kind::MirrorWrite { .. } | Kind::ZeroStripes { .. } => 0,
            Kind::Read { .. } if !self.has_parity() => 0,
            Kind::Rebuild { .. } | Kind::Mend { .. } if !self.has_parity() => 1,
            Kind::Verify { .. } if !self.has_parity() => 2,
            Kind::Verify { .. } => self.geometry.raid_disks() as usize + 1,
            Kind::Check { .. } if !self.has_parity() => self.geometry.copies() as usize,
            _ => self.geometry.raid_disks() as usize,
        }
    }

    pub(crate) fn stripe_view(&self, unit: Unit, avoid: &[MemberId]) -> StripeView {
        let stripe = unit.start / u64::from(self.geometry.chunk_sectors());
        let code = self.codes.of_stripe(&self.geometry, stripe);
        let sums = code.equations().iter().map(|equation| equation.parity);
        let cells = code.data().iter().copied().chain(sums);
        let (start, sectors) = (unit.start, u64::from(unit.sectors));
        let view = |cell: Cell| self.keeper.members().view(cell.node, start, sectors, avoid);
        let cells = cells.map(view).collect();
        let parity_valid = self.keeper.in_step(start, unit.end());
        let sums_count = parity_valid || self.keeper.is_vouched_for();
        StripeView { cells, code, parity_valid, sums_count }
    }

    /// The copies of a range of a mirror that does not cross a chunk.
    pub(crate) fn copies<'a>(
        &'a self,
        sector: u64,
        sectors: u64,
        avoid: &'a [MemberId],
    ) -> impl Iterator<Item = RoleView> + Clone + 'a {
        (0..self.geometry.copies()).map(move |copy| {
            let strip = self.geometry.copy(sector, copy);
            self.keeper.members().view(strip.role, strip.sector, sectors, avoid)
        })
    }

    pub(crate) fn lost(&self) -> RequestError {
        if self.keeper.has_failed() { RequestError::Failed } else { RequestError::Medium }
    }

    /// The plan of a job, from the state of the members now.
    pub(crate) fn make_plan(
        &mut self,
        index: usize,
        taken: &mut Taken,
    ) -> Result<Plan, RequestError> {
        let job = self.jobs.get(index);
        if self.keeper.has_failed() && !matches!(job.kind, Kind::Read { .. }) {
            return Err(RequestError::Failed);
        }
        let lost = self.lost();
        let lost = |Unrecoverable| lost;
        match &job.kind {
            Kind::Write { unit, segments, .. } => {
                let view = self.stripe_view(*unit, &job.avoid);
                let memory = self.spare_plans.pop().unwrap_or_default();
                let zero = self.pool.zero;
                parity::write(memory, &view, segments, zero, job.fua, taken).map_err(lost)
            }
            Kind::MirrorWrite { sector, sectors, source, .. } => {
                let memory = self.spare_plans.pop().unwrap_or_default();
                Ok(self.plan_mirror_write(memory, *sector, *sectors, *source, job.fua))
            }
            Kind::ZeroStripes { start, end, unmap, .. } => {
                Ok(self.plan_zero_stripes(*start, *end, *unmap, job.fua))
            }
            Kind::Read { sector, buf, prefer, .. } => {
                self.plan_read(*sector, *buf, *prefer, &job.avoid, taken).map_err(lost)
            }
            Kind::Rebuild { unit, targets, .. } => {
                self.plan_rebuild(*unit, targets, &job.avoid, taken).map_err(lost)
            }
            Kind::Mend { unit, target, .. } => {
                self.plan_rebuild(*unit, &[*target], &job.avoid, taken).map_err(lost)
            }
            Kind::Verify { unit, target } => self.plan_verify(*unit, *target, &job.avoid, taken),
            Kind::Check { .. } => self.plan_check(index, taken),
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
        for role in 0..self.geometry.raid_disks() as u16 {
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
        if self.has_parity() {
            let (index, row) = self.parity_place(sector);
            let unit = Unit { start: row, sectors: sectors as u32 };
            let view = self.stripe_view(unit, avoid);
            return parity::read(&view, index, Rows::new(0, unit.sectors), buf, taken);
        }
        let copies = self.copies(sector, sectors, avoid);
        let mut readers = copies.filter_map(|copy| copy.reader);
        let preferred = readers.clone().find(|place| Some(place.member) == prefer);
        let place = preferred.or_else(|| readers.next()).ok_or(Unrecoverable)?;
        let mut plan = Plan::default();
        plan.read_into(place, Rows::new(0, sectors as u32), buf);
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
        if self.has_parity() {
            let view = self.stripe_view(unit, avoid);
            let targets: Vec<Target> =
                targets.iter().filter_map(|id| self.target(&view, *id)).collect();
            return parity_sync::rebuild(&view, &targets, rows, taken);
        }
        let copies: Vec<RoleView> =
            self.copies(unit.start, u64::from(unit.sectors), avoid).collect();
        let places: Vec<Place> = copies
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
        let (place, told) = if self.has_parity() {
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
    ) -> Result<(Place, Option<(Plan, Buf)>), RequestError> {
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
    ) -> Result<(Place, Option<(Plan, Buf)>), RequestError> {
        let (rows, sectors) = (Rows::new(0, unit.sectors), u64::from(unit.sectors));
        let copies: Vec<RoleView> = self.copies(unit.start, sectors, unproven).collect();
        let of_target = |copy: &RoleView| {
            let mut writers = copy.writers.into_iter().flatten();
            Some((*copy, writers.find(|place| place.member == target)?))
        };
        let (own, place) = copies.iter().find_map(of_target).ok_or(RequestError::Failed)?;
        let in_step = self.keeper.in_step(unit.start, unit.end());
        let other = copies.iter().filter(|_| in_step).find_map(|copy| copy.reader);
        let told = own.reader.or(other).map(|source| {
            let (mut plan, held) = (Plan::default(), rows.of(taken.take()));
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

    /// What a job wrote to stripes has sums of all their data.
    pub(crate) fn note_fitting(&mut self, job: &Job) {
        if !self.has_parity() || !self.keeper.has_to_resync() {
            return;
        }
        match &job.kind {
            Kind::Write { unit, segments, .. } => {
                for Segment { rows, .. } in segments {
                    let (start, end) = (u64::from(rows.start), u64::from(rows.end));
                    self.keeper.note_fitting(unit.start + start, unit.start + end);
                }
            }
            Kind::ZeroStripes { start, end, .. } => self.keeper.note_fitting(*start, *end),
            _ => {}
        }
    }

    /// What a job wrote, data or parity, is no longer bad.
    pub(crate) fn note_rewritten(&mut self, job: &Job) {
        if !self.keeper.doubts_any() {
            return;
        }
        for io in &job.plan.writes {
            let (sector, sectors) = match io.op {
                IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len) / SECTOR_BYTES),
                IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors),
                IoOp::Read { .. } | IoOp::Discard { .. } | IoOp::Flush => continue,
            };
            self.keeper.note_rewritten(io.member, sector, sectors);
        }
    }

    /// The member to read a mirrored range from: one that is at hand and least busy.
    pub(crate) fn choose_copy(&self, sector: u64, sectors: u64) -> Option<Place> {
        let in_step = self.keeper.in_step(sector, sector + sectors);
        let mut best: Option<(u32, Place)> = None;
        for copy in 0..self.geometry.copies() {
            let strip = self.geometry.copy(sector, copy);
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
