//! Strips that are brought into memory and stay there, as others are made of them later.

use std::collections::{BTreeMap, BTreeSet};

use super::parity::StripeView;
use super::{Plan, Rows, Unrecoverable, form};
use crate::code::{Cell, DecodeStep, Recovery};
use crate::{Buf, MemberId};

/// Strips that are in memory, or will be.
pub type Held = BTreeMap<Cell, Buf>;

/// The way in which strips come into memory: some are read, then those that are lost are formed,
/// one after the other. [`new`](Self::new) finds the way, [`strips`](Self::strips) says how much
/// memory that takes, and [`plan`](Self::plan) uses it.
#[derive(Debug)]
pub struct Fetch {
    reads: BTreeSet<Cell>,
    steps: Vec<DecodeStep>,
}

impl Fetch {
    /// Finds how the `wanted` strips, by the numbers of their cells, are added to those that are
    /// held. With a choice of sums, it takes those for which least has to be read, from the members
    /// that have less to do by their `load`.
    ///
    /// # Errors
    /// [`Unrecoverable`] when more is lost than comes back, or the sums do not tell what it was.
    pub fn new(
        view: &StripeView,
        held: &Held,
        wanted: impl IntoIterator<Item = usize>,
        load: impl Fn(MemberId) -> usize,
    ) -> Result<Self, Unrecoverable> {
        let wanted = wanted.into_iter().map(|strip| view.code.cell(strip));
        let missing = wanted.filter(|cell| !held.contains_key(cell));
        let gone = |cell: &Cell| view.of(*cell).reader.is_none();
        let (lost, mut reads): (BTreeSet<Cell>, BTreeSet<Cell>) = missing.partition(gone);
        if !lost.is_empty() && !view.sums_count {
            return Err(Unrecoverable);
        }
        let known = |cell: &Cell| held.contains_key(cell) || reads.contains(cell);
        let recovery = recovery(view, &lost, known, load).ok_or(Unrecoverable)?;
        reads.extend(recovery.reads().into_iter().filter(|cell| !held.contains_key(cell)));
        Ok(Self { reads, steps: recovery.steps().to_vec() })
    }

    /// Returns how many strips come into memory.
    #[must_use]
    pub fn strips(&self) -> usize {
        self.reads.len() + self.steps.len()
    }

    /// Plans the reads and computations, in memory for so many strips. These are held from now on.
    pub fn plan(&self, view: &StripeView, rows: Rows, held: &mut Held, bufs: Vec<Buf>) -> Plan {
        let mut plan = Plan::default();
        let formed = self.steps.iter().map(|step| step.cell);
        held.extend(self.reads.iter().copied().chain(formed).zip(bufs));
        for cell in &self.reads {
            let place = view.of(*cell).reader.into_iter();
            place.for_each(|place| plan.read(place, rows, held[cell]));
        }
        let strip = |cell| rows.of(held[&cell]);
        let steps = self.steps.iter().map(|step| form(&step.inputs, strip, strip(step.cell)));
        plan.computes.extend(steps);
        plan
    }
}

/// Finds how these cells come back, which cannot be read.
fn recovery(
    view: &StripeView,
    lost: &BTreeSet<Cell>,
    known: impl Fn(&Cell) -> bool,
    load: impl Fn(MemberId) -> usize,
) -> Option<Recovery> {
    let code = &view.code;
    let gone: Vec<Cell> = view.lost().into_iter().map(|strip| code.cell(strip)).collect();
    if !lost.is_empty() && gone.iter().any(|cell| cell.node != gone[0].node) {
        let wanted: Vec<Cell> = lost.iter().copied().collect();
        return Recovery::of(code, &gone, &wanted).map(|all| all.only(lost, known));
    }
    // Each sum is of one strip of a node at most.
    let mut read = BTreeSet::new();
    let mut sums = Vec::new();
    for &cell in lost {
        let new = |number: usize| {
            let others = code.equations()[number].cells().filter(move |&other| other != cell);
            others.filter(|other| !known(other) && !read.contains(other)).collect::<Vec<_>>()
        };
        let work = |&number: &usize| {
            let new = new(number);
            let readers = new.iter().filter_map(|cell| view.of(*cell).reader);
            (new.len(), readers.map(|place| load(place.member)).sum::<usize>())
        };
        let number = code.involved(cell).iter().copied().min_by_key(work)?;
        let new = new(number);
        read.extend(new);
        sums.push((cell, number));
    }
    Some(Recovery::by_equations(code, &sums))
}
