//! Reads and writes of a stripe with parity (levels 4, 5, 6).
//!
//! A unit is a band of rows of one stripe. A write covers some rows of some data strips; the rows
//! are cut where the set of covered strips changes, and each cut chooses by counting reads:
//! full-stripe (nothing to read), reconstruct-write (read the uncovered strips) or
//! read-modify-write (read what is covered, and parity). When strips are lost so that neither
//! works, the lost ones are reconstructed first.

use super::{Plan, RoleView, Rows, Taken, Unrecoverable};
use crate::Buf;
use crate::action::Compute;
use crate::code::{self, StripName};

/// The strips of one unit.
#[derive(Clone, Debug)]
pub(crate) struct StripeView {
    /// Data strips, in array order.
    pub(crate) data: Vec<RoleView>,
    /// Coefficient of each data strip in Q; empty without Q.
    pub(crate) q_coefs: Vec<u8>,
    pub(crate) p: RoleView,
    pub(crate) q: Option<RoleView>,
    /// Parity is known to fit the data, so a delta may be applied to it.
    pub(crate) parity_valid: bool,
}

impl StripeView {
    pub(crate) fn strip(&self, name: StripName) -> &RoleView {
        match name {
            StripName::Data(index) => &self.data[index as usize],
            StripName::P => &self.p,
            StripName::Q => self.q.as_ref().expect("Q is named only where there is one"),
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = StripName> + '_ {
        (0..self.data.len() as u32)
            .map(StripName::Data)
            .chain(std::iter::once(StripName::P))
            .chain(self.q.iter().map(|_| StripName::Q))
    }

    /// The strips that can be read.
    pub(crate) fn available(&self) -> Vec<StripName> {
        self.names().filter(|name| self.strip(*name).reader.is_some()).collect()
    }

    /// The parity strips that somebody holds.
    pub(crate) fn parities(&self) -> impl Iterator<Item = StripName> + '_ {
        self.names()
            .filter(|name| !matches!(name, StripName::Data(_)))
            .filter(|name| self.strip(*name).writable())
    }

    /// The row of coefficients of a parity strip over all data strips.
    pub(crate) fn coefs(&self, parity: StripName) -> Vec<u8> {
        match parity {
            StripName::Q => self.q_coefs.clone(),
            _ => vec![1; self.data.len()],
        }
    }
}

/// New contents for some rows of one data strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) index: u32,
    pub(crate) rows: Rows,
    pub(crate) source: Source,
}

/// Where new contents come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A buffer as long as the rows.
    Buf(Buf),
    /// Zeroes; `unmap` lets members give the space back.
    Zeroes { unmap: bool },
}

/// How one cut of rows is written; md's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteStrategy {
    /// Every data strip is covered (or no parity is left to keep): nothing to read.
    FullStripe,
    /// Read the uncovered data strips.
    ReconstructWrite,
    /// Read the old contents of what is covered, and parity.
    ReadModifyWrite,
    /// An uncovered strip is lost and no delta can be made: reconstruct it first.
    RecoverThenWrite,
}

/// The strips of the unit in scratch memory, each taken when first needed.
pub(crate) struct Slots<'a> {
    taken: &'a mut Taken,
    data: Vec<Option<Buf>>,
    p: Option<Buf>,
    q: Option<Buf>,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(view: &StripeView, taken: &'a mut Taken) -> Self {
        Self { taken, data: vec![None; view.data.len()], p: None, q: None }
    }

    pub(crate) fn get(&mut self, name: StripName) -> Buf {
        let slot = match name {
            StripName::Data(index) => &mut self.data[index as usize],
            StripName::P => &mut self.p,
            StripName::Q => &mut self.q,
        };
        *slot.get_or_insert_with(|| self.taken.take())
    }
}

/// Plans a write of one unit. `zero` is a strip of zeroes.
///
/// # Errors
/// [`Unrecoverable`] when strips that are needed are lost beyond the redundancy.
pub(crate) fn write(
    view: &StripeView,
    segments: &[Segment],
    zero: Buf,
    fua: bool,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let mut cuts: Vec<u32> = segments.iter().flat_map(|s| [s.rows.start, s.rows.end]).collect();
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

fn covered(view: &StripeView, segments: &[Segment], rows: Rows) -> Vec<Option<Source>> {
    let mut covered = vec![None; view.data.len()];
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
    covered: Vec<Option<Source>>,
    zero: Buf,
    fua: bool,
}

impl Cut<'_> {
    fn strategy(&self) -> WriteStrategy {
        let readable = |index: usize| self.view.data[index].reader.is_some();
        let (covered, uncovered): (Vec<usize>, Vec<usize>) =
            (0..self.covered.len()).partition(|index| self.covered[*index].is_some());
        let parities: Vec<StripName> = self.view.parities().collect();
        if uncovered.is_empty() || parities.is_empty() {
            return WriteStrategy::FullStripe;
        }
        let delta = self.view.parity_valid
            && covered.iter().all(|index| readable(*index))
            && parities.iter().all(|name| self.view.strip(*name).reader.is_some());
        let reconstruct = uncovered.iter().all(|index| readable(*index));
        match (delta, reconstruct) {
            (false, false) => WriteStrategy::RecoverThenWrite,
            (true, false) => WriteStrategy::ReadModifyWrite,
            (false, true) => WriteStrategy::ReconstructWrite,
            (true, true) if covered.len() + parities.len() < uncovered.len() => {
                WriteStrategy::ReadModifyWrite
            }
            (true, true) => WriteStrategy::ReconstructWrite,
        }
    }

    fn plan(&self, plan: &mut Plan, slots: &mut Slots) -> Result<(), Unrecoverable> {
        if self.zero_everything(plan) {
            return Ok(());
        }
        match self.strategy() {
            WriteStrategy::FullStripe => self.encode(plan, slots),
            WriteStrategy::ReconstructWrite => {
                self.read_uncovered(plan, slots);
                self.encode(plan, slots);
            }
            WriteStrategy::ReadModifyWrite => self.delta(plan, slots),
            WriteStrategy::RecoverThenWrite => {
                self.recover_uncovered(plan, slots)?;
                self.read_uncovered(plan, slots);
                self.encode(plan, slots);
                self.write_recovered(plan, slots);
            }
        }
        self.write_data(plan);
        Ok(())
    }

    /// Zeroes over a whole stripe have zeroes for parity: nothing to compute or send.
    fn zero_everything(&self, plan: &mut Plan) -> bool {
        let Some(Source::Zeroes { unmap }) = self.covered[0] else { return false };
        if !self.covered.iter().all(|source| matches!(source, Some(Source::Zeroes { .. }))) {
            return false;
        }
        for name in self.view.names() {
            plan.zero(self.view.strip(name), self.rows, unmap, self.fua);
        }
        true
    }

    fn source(&self, index: usize, slots: &mut Slots) -> Buf {
        match self.covered[index] {
            Some(Source::Buf(buf)) => buf,
            Some(Source::Zeroes { .. }) => self.zero.slice(0, self.rows.of(self.zero).len),
            None => self.rows.of(slots.get(StripName::Data(index as u32))),
        }
    }

    fn read_uncovered(&self, plan: &mut Plan, slots: &mut Slots) {
        for (index, role) in self.view.data.iter().enumerate() {
            if let (None, Some(place)) = (self.covered[index], role.reader) {
                let slot = slots.get(StripName::Data(index as u32));
                if !reads_into(plan, self.rows.of(slot)) {
                    plan.read(place, self.rows, slot);
                }
            }
        }
    }

    /// Reads what the lost uncovered strips can be computed from, and computes them.
    fn recover_uncovered(&self, plan: &mut Plan, slots: &mut Slots) -> Result<(), Unrecoverable> {
        let lost: Vec<StripName> = (0..self.view.data.len())
            .filter(|i| self.covered[*i].is_none() && self.view.data[*i].reader.is_none())
            .map(|index| StripName::Data(index as u32))
            .collect();
        let bufs: Vec<Buf> = lost.iter().map(|name| self.rows.of(slots.get(*name))).collect();
        let sum = recover(self.view, self.rows, &lost, bufs, plan, slots)?;
        plan.computes.push(sum);
        Ok(())
    }

    /// Writes the strips that could not be read as parity is now about them: should it not have
    /// fitted, they hold something else, and may be read again.
    fn write_recovered(&self, plan: &mut Plan, slots: &mut Slots) {
        for (index, role) in self.view.data.iter().enumerate() {
            let lost = role.reader.is_none() && role.unreadable.is_some();
            if lost && self.covered[index].is_none() {
                let buf = self.rows.of(slots.get(StripName::Data(index as u32)));
                plan.write(role, self.rows, buf, self.fua);
            }
        }
    }

    /// Parity from the whole new stripe.
    fn encode(&self, plan: &mut Plan, slots: &mut Slots) {
        let parities: Vec<StripName> = self.view.parities().collect();
        if parities.is_empty() {
            return;
        }
        let inputs = (0..self.covered.len()).map(|index| self.source(index, slots)).collect();
        let coefs = parities.iter().flat_map(|name| self.view.coefs(*name)).collect();
        let outputs = parities.iter().map(|name| self.rows.of(slots.get(*name))).collect();
        plan.computes.push(Compute::Sum { inputs, coefs, outputs, accumulate: false });
        self.write_parities(plan, slots, &parities);
    }

    /// Parity from its old value and the change of what is covered.
    fn delta(&self, plan: &mut Plan, slots: &mut Slots) {
        let parities: Vec<StripName> = self.view.parities().collect();
        let covered: Vec<usize> =
            (0..self.covered.len()).filter(|index| self.covered[*index].is_some()).collect();
        let mut inputs = Vec::new();
        for index in &covered {
            let name = StripName::Data(*index as u32);
            let place = self.view.strip(name).reader.expect("the strategy asked for it");
            let slot = slots.get(name);
            plan.read(place, self.rows, slot);
            inputs.push(self.rows.of(slot));
            inputs.push(self.source(*index, slots));
        }
        let mut coefs = Vec::new();
        let mut outputs = Vec::new();
        for name in &parities {
            let place = self.view.strip(*name).reader.expect("the strategy asked for it");
            let slot = slots.get(*name);
            plan.read(place, self.rows, slot);
            outputs.push(self.rows.of(slot));
            let row = self.view.coefs(*name);
            coefs.extend(covered.iter().flat_map(|index| [row[*index]; 2]));
        }
        plan.computes.push(Compute::Sum { inputs, coefs, outputs, accumulate: true });
        self.write_parities(plan, slots, &parities);
    }

    fn write_parities(&self, plan: &mut Plan, slots: &mut Slots, parities: &[StripName]) {
        for name in parities {
            let buf = self.rows.of(slots.get(*name));
            plan.write(self.view.strip(*name), self.rows, buf, self.fua);
        }
    }

    fn write_data(&self, plan: &mut Plan) {
        for (role, source) in self.view.data.iter().zip(&self.covered) {
            match source {
                Some(Source::Buf(buf)) => plan.write(role, self.rows, *buf, self.fua),
                Some(Source::Zeroes { unmap }) => plan.zero(role, self.rows, *unmap, self.fua),
                None => {}
            }
        }
    }
}

/// Is this part of a slot already being read?
pub(crate) fn reads_into(plan: &Plan, buf: Buf) -> bool {
    plan.reads.iter().any(|io| match io.op {
        crate::IoOp::Read { buf: held, .. } => {
            held.offset <= buf.offset
                && buf.offset + u64::from(buf.len) <= held.offset + u64::from(held.len)
        }
        _ => false,
    })
}

/// Reads what `wanted` can be computed from into the strips' slots; the sum that computes them.
pub(crate) fn recover(
    view: &StripeView,
    rows: Rows,
    wanted: &[StripName],
    outputs: Vec<Buf>,
    plan: &mut Plan,
    slots: &mut Slots,
) -> Result<Compute, Unrecoverable> {
    let available = view.available();
    let data_disks = view.data.len() as u32;
    let solution =
        code::solve(data_disks, &view.q_coefs, &available, wanted).ok_or(Unrecoverable)?;
    let mut inputs = Vec::new();
    for input in solution.inputs {
        let name = available[input];
        let place = view.strip(name).reader.expect("available means readable");
        let slot = slots.get(name);
        if !reads_into(plan, rows.of(slot)) {
            plan.read(place, rows, slot);
        }
        inputs.push(rows.of(slot));
    }
    Ok(Compute::Sum { inputs, coefs: solution.coefs, outputs, accumulate: false })
}

/// Plans a read of rows of one data strip that has no reader of its own, or that failed.
///
/// # Errors
/// [`Unrecoverable`] when too many other strips are lost too.
pub(crate) fn read(
    view: &StripeView,
    index: u32,
    rows: Rows,
    buf: Buf,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    if let Some(place) = view.data[index as usize].reader {
        plan.read_into(place, rows, buf);
        return Ok(plan);
    }
    let mut slots = Slots::new(view, taken);
    let sum = recover(view, rows, &[StripName::Data(index)], vec![buf], &mut plan, &mut slots)?;
    plan.computes.push(sum);
    Ok(plan)
}
