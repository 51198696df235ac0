//! The comparison of a unit: which plan, and what its outcome asks for.
//!
//! A unit of which something cannot be read is taken apart into blocks, so that what is still
//! readable in it counts. In a block, check and repair first rewrite what could not be read from
//! the rest, then compare. A resync must not: where parity may not fit, it does not tell what a
//! strip held. Such a strip is left as it is, unless a second parity vouches for what the first
//! says.

use super::job::{Check, Compared, Comparison, Job, JobKind, too_high_to_tell};
use super::planning::Planner;
use crate::action::Checked;
use crate::keeper::{BLOCK_SECTORS, Fix, Unit, Unread};
use crate::plan::parity::StripeView;
use crate::plan::parity_sync::{self, Target};
use crate::plan::{MemberPlace, Plan, RoleView, Rows, Taken, Unrecoverable, mirror};
use crate::{MemberId, RequestError, SECTOR_BYTES};

/// The way to treat a unit.
pub(super) enum ComparisonStep {
    Compare(Plan, Compared),
    /// There is nothing to compare; this brings it in line.
    Write(Plan),
    /// There is nothing to compare it with.
    Alone,
    /// This makes it readable again; then it is to be compared. The list names sectors that parity
    /// alone tells, which may not fit.
    MendFirst(Plan, Vec<Unread>),
}

impl ComparisonStep {
    /// Begins the comparison of a job with this step.
    pub(super) fn begin(self, job: &mut Job) -> Plan {
        let (plan, state) = match self {
            Self::Compare(plan, compared) => (plan, Comparison::Compares(compared)),
            Self::Write(plan) => (plan, Comparison::None),
            Self::MendFirst(plan, trusted) => (plan, Comparison::Mends(trusted)),
            Self::Alone => (Plan::default(), Comparison::Alone),
        };
        if let JobKind::Check(check) = &mut job.kind {
            check.state = state;
        }
        plan
    }
}

/// Cannot be done as asked, but perhaps block by block.
const UNREAD: RequestError = RequestError::Medium;

/// Result of a comparison, and the plan that is to follow.
pub(super) struct ComparisonOutcome {
    /// The difference, where that is told.
    pub(super) mismatch: Option<Mismatch>,
    /// Its repair, if that is asked for.
    pub(super) plan: Option<Plan>,
}

impl ComparisonOutcome {
    const fn plan(plan: Option<Plan>) -> Self {
        Self { mismatch: None, plan }
    }
}

/// Sectors of the array that do not fit, and the member that is wrong, where that can be told.
#[derive(Clone, Copy)]
pub(super) struct Mismatch {
    pub(super) array_sector: u64,
    pub(super) sectors: u32,
    pub(super) wrong: Option<MemberId>,
}

impl Planner<'_> {
    /// Returns the first step of a job that compares a unit.
    pub(super) fn check(
        &self,
        job: &Job,
        taken: &mut Taken,
    ) -> Result<ComparisonStep, RequestError> {
        let JobKind::Check(check) = &job.kind else { return Ok(ComparisonStep::Alone) };
        if self.map.has_parity() {
            self.check_stripe(job, check, taken)
        } else {
            self.check_copies(job, check, taken)
        }
    }

    fn check_stripe(
        &self,
        job: &Job,
        check: &Check,
        taken: &mut Taken,
    ) -> Result<ComparisonStep, RequestError> {
        let Check { unit, fix, again, .. } = *check;
        let rows = Rows::new(0, unit.sectors);
        let mut view = self.stripe_view(unit, &job.avoid);
        let lost = view.lost();
        if lost.is_empty() {
            let check = parity_sync::check(&view, rows, taken);
            let compared = Compared::Parity { strips: check.strips, missing: None };
            return Ok(ComparisonStep::Compare(check.plan, compared));
        }
        if too_high(unit, view.cells.iter()) {
            return Err(UNREAD);
        }
        if fix == Fix::Resync {
            return self.resync_stripe(&view, rows, taken);
        }
        let unread = |Unrecoverable| UNREAD;
        let is_data = |strip: &usize| view.is_data(*strip);
        let unreadable = |strip: &usize| view.cells[*strip].unreadable.is_some();
        if let [strip] = lost[..]
            && !unreadable(&strip)
            && view.code.equations().len() > 1
        {
            let check = parity_sync::vouch(&view, strip, rows, taken).map_err(unread)?;
            let compared = Compared::Parity { strips: check.strips, missing: Some(strip) };
            return Ok(ComparisonStep::Compare(check.plan, compared));
        }
        let untold = !self.keeper.in_step(unit.start, unit.end()) && lost.iter().any(is_data);
        if again || untold && fix == Fix::Nothing {
            return Err(UNREAD);
        }
        if let [strip] = lost[..]
            && untold
            && view.sums_of(strip) > 1
        {
            return vouch(&view, strip, rows, taken);
        }
        // Who asks for it takes the word of the only parity that is left for what a member that is
        // there cannot read.
        let sums_count = lost.iter().all(unreadable);
        let targets: Vec<Target> = lost
            .iter()
            .filter(|strip| unreadable(strip))
            .flat_map(|&strip| view.cells[strip].writers.map(|place| (strip, place)))
            .filter_map(|(strip, place)| Some(Target { strip, place: place? }))
            .collect();
        view.sums_count |= sums_count;
        let trusted = if untold { self.unread_of(job, unit) } else { Vec::new() };
        let plan = parity_sync::rebuild(&view, &targets, rows, taken).map_err(unread)?;
        Ok(ComparisonStep::MendFirst(plan, trusted))
    }

    /// Returns the first step for a unit of which something is lost.
    fn resync_stripe(
        &self,
        view: &StripeView,
        rows: Rows,
        taken: &mut Taken,
    ) -> Result<ComparisonStep, RequestError> {
        let lost = view.lost();
        let held = |strip: &usize| {
            !self.keeper.is_vouched_for() || view.cells[*strip].unreadable.is_some()
        };
        let data = lost.iter().copied().filter(|strip| view.is_data(*strip));
        let untold: Vec<usize> = data.filter(held).collect();
        match untold[..] {
            [] => {
                let plan = parity_sync::resync_degraded(view, rows, taken);
                plan.map(ComparisonStep::Write).map_err(|Unrecoverable| UNREAD)
            }
            [strip] if lost.len() == 1 && view.sums_of(strip) > 1 => {
                vouch(view, strip, rows, taken)
            }
            _ => Err(UNREAD),
        }
    }

    fn check_copies(
        &self,
        job: &Job,
        check: &Check,
        taken: &mut Taken,
    ) -> Result<ComparisonStep, RequestError> {
        let Check { unit, fix, again, .. } = *check;
        let rows = Rows::new(0, unit.sectors);
        let copies: Vec<RoleView> =
            self.copies(unit.start, u64::from(unit.sectors), &job.avoid).collect();
        let nothing = copies.iter().all(|copy| copy.reader.is_none());
        if nothing || too_high(unit, copies.iter()) {
            return Err(UNREAD);
        }
        let unread: Vec<MemberPlace> = copies
            .iter()
            .filter(|copy| copy.reader.is_none() && copy.unreadable.is_some())
            .flat_map(|copy| copy.writers.into_iter().flatten())
            .collect();
        if fix != Fix::Resync && !unread.is_empty() {
            if again {
                return Err(UNREAD);
            }
            let plan = mirror::rebuild(&copies, &unread, rows, taken);
            let plan = plan.map_err(|Unrecoverable| UNREAD)?;
            return Ok(ComparisonStep::MendFirst(plan, Vec::new()));
        }
        // Which of several copies is wrong can only be told of all pairs.
        let pairs = fix != Fix::Resync && u64::from(unit.sectors) <= BLOCK_SECTORS;
        Ok(match mirror::check(&copies, rows, pairs, taken) {
            Some(check) => {
                let compared = Compared::Mirror { copies: check.copies, unread: check.unread };
                ComparisonStep::Compare(check.plan, compared)
            }
            None if fix == Fix::Resync => ComparisonStep::Write(Plan::default()),
            None => ComparisonStep::Alone,
        })
    }

    /// A unit was compared: what differs, and the plan of its repair if that is asked for.
    pub(super) fn compared(
        &self,
        job: &Job,
        compared: Compared,
    ) -> Result<ComparisonOutcome, RequestError> {
        let JobKind::Check(Check { unit, fix, .. }) = job.kind else {
            return Ok(ComparisonOutcome::plan(None));
        };
        let differing: u64 =
            job.run.checked().iter().fold(0, |all, checked| all | checked.differs());
        let rows = Rows::new(0, unit.sectors);
        let checked = job.run.checked();
        let (wrong, plan) = match compared {
            Compared::Vouched { .. } if differing != 0 => return Err(UNREAD),
            Compared::Vouched { strip, strips } => {
                let view = self.stripe_view(unit, &job.avoid);
                let plan = parity_sync::restore(&view, strip, rows, &strips);
                return Ok(ComparisonOutcome::plan(Some(plan)));
            }
            Compared::Parity { .. } if differing == 0 => return Ok(ComparisonOutcome::plan(None)),
            Compared::Parity { strips, missing } => {
                let view = self.stripe_view(unit, &job.avoid);
                if fix == Fix::Repair && missing.is_some_and(|strip| view.is_data(strip)) {
                    // The parities say two things of data that nobody holds.
                    return Err(UNREAD);
                }
                let all = missing.is_none();
                let wrong = all.then(|| parity_sync::wrong_strip(&view.code, checked)).flatten();
                let located = wrong.filter(|&strip| fix == Fix::Repair && view.is_data(strip));
                let reader = wrong.and_then(|strip| view.cells[strip].reader);
                let member = reader.map(|place| place.member);
                (member, parity_sync::mend(&view, rows, &strips, located))
            }
            Compared::Mirror { copies, unread } if differing == 0 => {
                let write = fix == Fix::Resync && !unread.is_empty();
                let plan = write.then(|| mirror::mend(copies[0].buf, &unread, rows));
                return Ok(ComparisonOutcome::plan(plan));
            }
            Compared::Mirror { copies, .. }
                if fix != Fix::Resync && copies.len() > 2 && too_high_to_tell(unit) =>
            {
                return Err(UNREAD);
            }
            Compared::Mirror { copies, unread } => {
                let verdict = mirror::verdict(copies.len(), checked);
                let wrong = verdict.wrong.and_then(|at| copies[at].role.reader);
                let mut behind: Vec<RoleView> =
                    verdict.differing.iter().map(|at| copies[*at].role).collect();
                if fix == Fix::Resync {
                    behind.extend(unread);
                }
                let plan = mirror::mend(copies[verdict.right].buf, &behind, rows);
                (wrong.map(|place| place.member), plan)
            }
        };
        let mismatch = Mismatch {
            array_sector: self.map.array_sector(unit),
            sectors: differing.count_ones() * Checked::BLOCK_BYTES / SECTOR_BYTES as u32,
            wrong,
        };
        Ok(ComparisonOutcome {
            mismatch: (fix != Fix::Resync).then_some(mismatch),
            plan: (fix != Fix::Nothing).then_some(plan),
        })
    }

    /// Lists the sectors of the array in a unit that cannot be read, and where they lie. `job` has
    /// tried.
    pub(super) fn unread_of(&self, job: &Job, unit: Unit) -> Vec<Unread> {
        let sectors = u64::from(unit.sectors);
        let views: Vec<RoleView> = if self.map.has_parity() {
            self.stripe_view(unit, &job.avoid).cells
        } else {
            self.copies(unit.start, sectors, &job.avoid).collect()
        };
        let mut members: Vec<_> = views.iter().filter_map(|view| view.unreadable).collect();
        members.sort_unstable();
        let lost: Vec<u64> = if self.map.has_parity() {
            let data = 0..self.map.at_row(unit.start).data_disks() as usize;
            let lost = data.filter(|index| views[*index].reader.is_none());
            lost.map(|index| self.map.strip_sector(unit, index as u64)).collect()
        } else {
            vec![unit.start]
        };
        // Parity that was not written is of no sector of the array: the first of its stripe.
        let first = lost.is_empty().then(|| self.map.array_sector(unit));
        let place = |array_sector| Unread { array_sector, sectors, members: members.clone() };
        lost.into_iter().chain(first).map(place).collect()
    }
}

/// A strip that several sums are about: only where these agree it is known what it held.
fn vouch(
    view: &StripeView,
    strip: usize,
    rows: Rows,
    taken: &mut Taken,
) -> Result<ComparisonStep, RequestError> {
    let check = parity_sync::vouch(view, strip, rows, taken).map_err(|Unrecoverable| UNREAD)?;
    Ok(ComparisonStep::Compare(check.plan, Compared::Vouched { strip, strips: check.strips }))
}

/// Something in a unit cannot be read, and it may be as little as a block of it.
fn too_high<'a>(unit: Unit, mut strips: impl Iterator<Item = &'a RoleView>) -> bool {
    too_high_to_tell(unit) && strips.any(|strip| strip.unreadable.is_some())
}
