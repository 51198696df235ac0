//! Reads and writes of a stripe with sums of its data, of any code.
//!
//! A unit is a band of rows of one stripe. A write covers some rows of some data strips; the rows
//! are cut where the set of covered strips changes, and for each cut [`code`](crate::code) chooses
//! how its sums are made. Strips go by the numbers of their cells.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{MemberPlace, Plan, PlannedSum, RoleView, Rows, Taken, Unrecoverable, copied};
use crate::action::{Coefs, Compute, Inputs, Outputs};
use crate::code::{Cell, Equation, KnownCode, Strategy, StripeCode, Term, WriteChoice};
use crate::{Buf, IoOp, SECTOR_BYTES};

/// The number of sums that are formed at once at most.
const MAX_OUTPUTS: usize = 2;

/// With up to so many strips of data, a plan is made without an allocation.
const FEW: usize = 8;

/// New contents of the data strips of a unit, where there are any.
type Covered = SmallVec<[Option<Source>; FEW]>;

/// The strips of one unit.
#[derive(Clone, Debug)]
pub struct StripeView {
    /// Its code.
    pub code: Arc<KnownCode>,
    /// The view of each cell, by its number.
    pub cells: Vec<RoleView>,
    /// The sums are known to fit the data, so a delta may be applied to them.
    pub parity_valid: bool,
    /// The sums tell what lost data was: they fit, or somebody vouches for that.
    pub sums_count: bool,
    /// A log records writes with all sums, also those that nobody holds.
    pub recorded: bool,
}

impl StripeView {
    /// Strips of data; sums come after them.
    pub fn data_strips(&self) -> usize {
        self.code.data().len()
    }

    /// Returns whether the strip is one of data.
    #[must_use]
    pub fn is_data(&self, strip: usize) -> bool {
        strip < self.data_strips()
    }

    /// Returns how many sums a strip is part of.
    pub fn sums_of(&self, strip: usize) -> usize {
        self.code.involved(self.code.cell(strip)).len()
    }

    pub(super) fn of(&self, cell: Cell) -> &RoleView {
        &self.cells[self.code.number(cell)]
    }

    /// The strips that cannot be read.
    pub fn lost(&self) -> Vec<usize> {
        (0..self.cells.len()).filter(|&strip| self.cells[strip].reader.is_none()).collect()
    }

    /// Checks that lost data can be computed.
    ///
    /// # Errors
    /// [`Unrecoverable`] when some is lost, and the sums do not tell what it was.
    pub(super) fn data_can_be_computed(&self) -> Result<(), Unrecoverable> {
        let lost = self.cells[..self.data_strips()].iter().any(|strip| strip.reader.is_none());
        if lost && !self.sums_count { Err(Unrecoverable) } else { Ok(()) }
    }

    /// The equations whose sums somebody holds, or a log is to have.
    pub(super) fn held(&self) -> impl Iterator<Item = &Equation> {
        let held = |equation: &&Equation| self.recorded || self.of(equation.parity).writable();
        self.code.equations().iter().filter(held)
    }
}

/// Equations of a code.
type Equations<'a> = SmallVec<[&'a Equation; MAX_OUTPUTS]>;

/// Equations in sets that are made at once.
pub(super) fn sets<'a, 'b>(
    equations: &'a [&'b Equation],
) -> impl Iterator<Item = &'a [&'b Equation]> {
    equations.chunk_by(|a, b| alike(a, b)).flat_map(|set| set.chunks(MAX_OUTPUTS))
}

/// Returns whether these are sums of the same data.
fn alike(a: &Equation, b: &Equation) -> bool {
    a.terms.iter().map(|term| term.cell).eq(b.terms.iter().map(|term| term.cell))
}

/// New contents for some rows of one data strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The strip.
    pub index: u32,
    /// Its rows.
    pub rows: Rows,
    /// Their new contents.
    pub source: Source,
}

/// Source of new contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A buffer as long as the rows.
    Buf(Buf),
    /// Zeroes.
    Zeroes {
        /// Members may give the space back.
        unmap: bool,
    },
}

/// The strips of the unit in scratch memory, each taken when first needed.
pub(super) struct Slots<'a> {
    taken: &'a mut Taken,
    strips: SmallVec<[Option<Buf>; FEW + 2]>,
}

impl<'a> Slots<'a> {
    pub(super) fn new(view: &StripeView, taken: &'a mut Taken) -> Self {
        Self { taken, strips: SmallVec::from_elem(None, view.cells.len()) }
    }

    pub(super) fn get(&mut self, strip: usize) -> Buf {
        *self.strips[strip].get_or_insert_with(|| self.taken.take())
    }

    /// Takes a slot that belongs to no strip.
    pub(super) fn spare(&mut self) -> Buf {
        self.taken.take()
    }
}

/// Plans a write of one unit, in the memory of an empty `plan`. `zero` is a strip of zeroes.
///
/// # Errors
/// [`Unrecoverable`] when strips that are needed are lost beyond the redundancy.
pub fn write(
    mut plan: Plan,
    view: &StripeView,
    segments: &[Segment],
    zero: Buf,
    fua: bool,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut slots = Slots::new(view, taken);
    let ends = |segment: &Segment| [segment.rows.start, segment.rows.end];
    let mut cuts: SmallVec<[u32; 4 * FEW]> = segments.iter().flat_map(ends).collect();
    cuts.sort_unstable();
    cuts.dedup();
    for pair in cuts.windows(2) {
        let rows = Rows::new(pair[0], pair[1]);
        let covered = covered(view, segments, rows);
        if covered.iter().any(Option::is_some) {
            Cut { view, rows, covered, zero, fua }.plan(&mut plan, &mut slots)?;
        }
    }
    Ok(plan)
}

fn covered(view: &StripeView, segments: &[Segment], rows: Rows) -> Covered {
    let mut covered = Covered::from_elem(None, view.data_strips());
    for segment in segments {
        if segment.rows.start <= rows.start && rows.end <= segment.rows.end {
            let within = Rows::new(rows.start - segment.rows.start, rows.end - segment.rows.start);
            covered[segment.index as usize] = Some(match segment.source {
                Source::Buf(buf) => Source::Buf(within.of(buf)),
                zeroes @ Source::Zeroes { .. } => zeroes,
            });
        }
    }
    covered
}

/// Rows in which each data strip is covered wholly or not at all.
struct Cut<'a> {
    view: &'a StripeView,
    rows: Rows,
    covered: Covered,
    zero: Buf,
    fua: bool,
}

impl Cut<'_> {
    fn strategy(&self) -> Strategy {
        let view = self.view;
        let part = WriteChoice {
            code: &view.code,
            covered: &|index| self.covered[index].is_some(),
            readable: &|cell| view.of(cell).reader.is_some(),
            held: &|cell| view.recorded || view.of(cell).writable(),
            // A record of a write has its sums.
            noted: &|cell| !view.recorded && view.of(cell).noted,
            in_step: view.parity_valid,
        };
        part.strategy()
    }

    fn plan(&self, plan: &mut Plan, slots: &mut Slots) -> Result<(), Unrecoverable> {
        if self.zero_everything(plan) {
            return Ok(());
        }
        match self.strategy() {
            Strategy::FullStripe => self.encode(plan, slots),
            Strategy::ReconstructWrite => {
                self.read_uncovered(plan, slots);
                self.encode(plan, slots);
            }
            Strategy::ReadModifyWrite | Strategy::KnownSums => self.delta(plan, slots),
            Strategy::RecoverFirst => {
                self.recover_uncovered(plan, slots)?;
                self.read_uncovered(plan, slots);
                self.encode(plan, slots);
                self.write_recovered(plan, slots);
            }
        }
        self.write_data(plan);
        Ok(())
    }

    /// Zeroes over a whole stripe have zeroes for sums: nothing to compute or send.
    fn zero_everything(&self, plan: &mut Plan) -> bool {
        let Some(Source::Zeroes { unmap }) = self.covered[0] else { return false };
        if !self.covered.iter().all(|source| matches!(source, Some(Source::Zeroes { .. }))) {
            return false;
        }
        for strip in &self.view.cells {
            plan.zero(strip, self.rows, unmap, self.fua);
        }
        let sums = self.view.data_strips()..self.view.cells.len();
        if self.view.recorded {
            let source = Source::Zeroes { unmap };
            plan.sums.extend(sums.map(|strip| PlannedSum { strip, rows: self.rows, source }));
        }
        true
    }

    /// New contents of a strip, or what is in its slot.
    fn source(&self, index: usize, slots: &mut Slots) -> Buf {
        match self.covered.get(index).copied().flatten() {
            Some(Source::Buf(buf)) => buf,
            Some(Source::Zeroes { .. }) => self.zero.slice(0, self.rows.of(self.zero).len),
            None => self.rows.of(slots.get(index)),
        }
    }

    fn read_uncovered(&self, plan: &mut Plan, slots: &mut Slots) {
        for (index, source) in self.covered.iter().enumerate() {
            if source.is_none() {
                read_strip(self.view, index, self.rows, plan, slots);
            }
        }
    }

    /// The uncovered data strips that cannot be read.
    fn lost(&self) -> impl Iterator<Item = usize> {
        let lost = |index: &usize| {
            self.covered[*index].is_none() && self.view.cells[*index].reader.is_none()
        };
        (0..self.covered.len()).filter(lost)
    }

    /// Reads what the lost uncovered strips can be computed from, and computes them.
    fn recover_uncovered(&self, plan: &mut Plan, slots: &mut Slots) -> Result<(), Unrecoverable> {
        let lost: Vec<usize> = self.lost().collect();
        self.view.data_can_be_computed()?;
        let outputs: Vec<Buf> = lost.iter().map(|&strip| self.rows.of(slots.get(strip))).collect();
        recover(self.view, self.rows, &lost, &outputs, plan, slots)
    }

    /// Writes the strips that could not be read as the sums are now about them: should they not
    /// have fitted, they hold something else, and may be read again.
    fn write_recovered(&self, plan: &mut Plan, slots: &mut Slots) {
        for index in self.lost() {
            let role = &self.view.cells[index];
            if role.unreadable.is_some() {
                plan.write(role, self.rows, self.rows.of(slots.get(index)), self.fua);
            }
        }
    }

    /// Sums of the whole new stripe.
    fn encode(&self, plan: &mut Plan, slots: &mut Slots) {
        let held: Equations<'_> = self.view.held().collect();
        for set in sets(&held) {
            let compute = sum(&self.view.code, set, |strip| self.source(strip, slots));
            plan.computes.push_back(compute);
        }
        self.write_sums(plan, slots, &held);
    }

    /// Makes sums from their old values and the change of what is covered. Sums that cannot be read
    /// are noted as unknown, and stay so.
    fn delta(&self, plan: &mut Plan, slots: &mut Slots) {
        let code = &self.view.code;
        for index in 0..self.covered.len() {
            if self.covered[index].is_some() {
                read_strip(self.view, index, self.rows, plan, slots);
            }
        }
        let changes = |term: &&Term| self.covered[code.number(term.cell)].is_some();
        let known = self.view.held().filter(|sum| self.view.of(sum.parity).reader.is_some());
        let held: Equations<'_> =
            known.filter(|equation| equation.terms.iter().any(|term| changes(&term))).collect();
        for set in sets(&held) {
            let mut inputs = Inputs::new();
            for term in set[0].terms.iter().filter(changes) {
                let index = code.number(term.cell);
                inputs.push(self.rows.of(slots.get(index)));
                inputs.push(self.source(index, slots));
            }
            let mut coefs = Coefs::new();
            let mut outputs = Outputs::new();
            for equation in set {
                let strip = code.number(equation.parity);
                read_strip(self.view, strip, self.rows, plan, slots);
                outputs.push(self.rows.of(slots.get(strip)));
                let terms = equation.terms.iter().filter(changes);
                coefs.extend(terms.flat_map(|term| [term.coef; 2]));
            }
            plan.computes.push_back(Compute::Sum { inputs, coefs, outputs, accumulate: true });
        }
        self.write_sums(plan, slots, &held);
    }

    fn write_sums(&self, plan: &mut Plan, slots: &mut Slots, sums: &[&Equation]) {
        for equation in sums {
            let strip = self.view.code.number(equation.parity);
            let buf = self.rows.of(slots.get(strip));
            plan.write(&self.view.cells[strip], self.rows, buf, self.fua);
            if self.view.recorded {
                let source = Source::Buf(buf);
                plan.sums.push(PlannedSum { strip, rows: self.rows, source });
            }
        }
    }

    fn write_data(&self, plan: &mut Plan) {
        for (role, source) in self.view.cells.iter().zip(&self.covered) {
            match source {
                Some(Source::Buf(buf)) => plan.write(role, self.rows, *buf, self.fua),
                Some(Source::Zeroes { unmap }) => plan.zero(role, self.rows, *unmap, self.fua),
                None => {}
            }
        }
    }
}

/// Sums about the same data, from that data.
pub(super) fn sum(
    code: &StripeCode,
    set: &[&Equation],
    mut strip: impl FnMut(usize) -> Buf,
) -> Compute {
    let inputs = set[0].terms.iter().map(|term| strip(code.number(term.cell))).collect();
    let coefs = set.iter().flat_map(|equation| equation.terms.iter().map(|term| term.coef));
    let outputs = set.iter().map(|equation| strip(code.number(equation.parity))).collect();
    Compute::Sum { inputs, coefs: coefs.collect(), outputs, accumulate: false }
}

/// Reads a strip into its slot, if it can be read and is not being read yet. What is being read
/// into other memory is copied from there.
pub(super) fn read_strip(
    view: &StripeView,
    strip: usize,
    rows: Rows,
    plan: &mut Plan,
    slots: &mut Slots,
) {
    if let Some(place) = view.cells[strip].reader {
        let slot = slots.get(strip);
        match being_read(plan, place, rows) {
            None => plan.read(place, rows, slot),
            Some(held) if held == rows.of(slot) => {}
            // Before anything else is put there.
            Some(held) => plan.computes.push_front(copied(held, rows.of(slot))),
        }
    }
}

/// Returns the memory that these rows are being read into, if they are.
fn being_read(plan: &Plan, place: MemberPlace, rows: Rows) -> Option<Buf> {
    let first = place.sector + u64::from(rows.start);
    plan.reads.iter().filter(|io| io.member == place.member).find_map(|io| {
        let IoOp::Read { sector, buf } = io.op else { return None };
        let start = u32::try_from(first.checked_sub(sector)?).ok()?;
        let within = Rows::new(start, start + rows.sectors());
        (u64::from(within.end) <= u64::from(buf.len) / SECTOR_BYTES).then(|| within.of(buf))
    })
}

/// Reads what the `wanted` strips, which cannot be read, can be computed from into the strips'
/// slots, and computes them.
pub(super) fn recover(
    view: &StripeView,
    rows: Rows,
    wanted: &[usize],
    outputs: &[Buf],
    plan: &mut Plan,
    slots: &mut Slots,
) -> Result<(), Unrecoverable> {
    let answers = &mut slots.taken.answers;
    let all = answers.sums(&view.code, &view.lost(), wanted, MAX_OUTPUTS).ok_or(Unrecoverable)?;
    for (sums, outputs) in all.iter().zip(outputs.chunks(MAX_OUTPUTS)) {
        let mut inputs = Inputs::new();
        for &strip in &sums.inputs {
            read_strip(view, strip, rows, plan, slots);
            inputs.push(rows.of(slots.get(strip)));
        }
        let coefs = Coefs::from_slice(&sums.coefs);
        let outputs = Outputs::from_slice(outputs);
        plan.computes.push_back(Compute::Sum { inputs, coefs, outputs, accumulate: false });
    }
    Ok(())
}

/// Plans a read of rows of one data strip that has no reader of its own, or that failed.
///
/// # Errors
/// [`Unrecoverable`] when too many other strips are lost too, or the sums do not tell what it held.
pub fn read(
    view: &StripeView,
    index: u32,
    rows: Rows,
    buf: Buf,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    if let Some(place) = view.cells[index as usize].reader {
        plan.read_into(place, rows, buf);
        return Ok(plan);
    }
    view.data_can_be_computed()?;
    let mut slots = Slots::new(view, taken);
    recover(view, rows, &[index as usize], &[buf], &mut plan, &mut slots)?;
    Ok(plan)
}
