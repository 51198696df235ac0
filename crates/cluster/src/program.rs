//! The program of a node for a write of a stripe: its part of a schedule, as a list of sums.

use braid_array::Role;
use std::collections::BTreeMap;
use std::iter::{Chain, Copied};
use std::{option, slice};

use crate::schedule::{Endpoint, Input, Schedule, Transfer};
use braid_array::code::{Content, StripeCode};

/// Operation on the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Nothing: the one input goes on from the slot it came in.
    Forward,
    /// The inputs are multiplied with their coefficients and added up.
    Sum,
}

/// Slot of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The slot in which this transfer came. A sum may use it if the transfer has no other use, and
    /// its coefficient is 1.
    Received(usize),
    /// A free slot: every input is needed again.
    Fresh,
}

/// Destination of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a node, as the transfer with this number.
    Node {
        /// The node.
        node: Role,
        /// The transfer.
        transfer: usize,
    },
    /// Into a row of the stripe on this node.
    Store {
        /// The row.
        row: u16,
    },
}

/// A step of a node, which is done as soon as all inputs are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStep {
    /// Blocks that came, with their coefficients.
    pub inputs: Vec<Input>,
    /// Operation on the inputs.
    pub operation: Operation,
    /// Slot of the outcome.
    pub output: Output,
    /// Destination of the outcome.
    pub destination: Destination,
}

/// The steps of one node, those that can be done earlier first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    steps: Vec<ProgramStep>,
}

impl Program {
    /// Returns the part of `node` in a schedule of this code.
    #[must_use]
    pub fn of(schedule: &Schedule, code: &StripeCode, node: Role) -> Self {
        Self::partial(schedule, code, node, &|_| true, &|_| true)
    }

    /// Returns the part of a node when only the `live` transfers take place. Sums are those of live
    /// inputs, and only the `stored` data blocks, by index, are stored.
    pub(crate) fn partial(
        schedule: &Schedule,
        code: &StripeCode,
        node: Role,
        live: &dyn Fn(usize) -> bool,
        stored: &dyn Fn(u32) -> bool,
    ) -> Self {
        let live_inputs = |(inputs, destination): (Inputs<'_>, Destination)| {
            let inputs: Vec<Input> = inputs.filter(|input| live(input.transfer)).collect();
            if inputs.is_empty() { None } else { Some((inputs, destination)) }
        };
        let outcomes = outcomes(schedule, code, node, stored);
        let mut parts: Vec<(Vec<Input>, Destination)> = outcomes.filter_map(live_inputs).collect();
        let mut uses: BTreeMap<usize, u32> = BTreeMap::new();
        for input in parts.iter().flat_map(|(inputs, _)| inputs) {
            *uses.entry(input.transfer).or_default() += 1;
        }
        let stage = |input: &Input| schedule.transfers()[input.transfer].stage;
        // Stable: at the same stage blocks are stored before they are sent on.
        parts.sort_by_key(|(inputs, _)| inputs.iter().map(stage).max());
        let last_use = |input: &&Input| input.coef == 1 && uses[&input.transfer] == 1;
        let step = |(inputs, destination): (Vec<Input>, Destination)| {
            let (operation, output) = match &inputs[..] {
                [only] if only.coef == 1 => (Operation::Forward, Output::Received(only.transfer)),
                several => {
                    let free = several.iter().find(last_use);
                    let output = free.map_or(Output::Fresh, |i| Output::Received(i.transfer));
                    (Operation::Sum, output)
                }
            };
            ProgramStep { inputs, operation, output, destination }
        };
        Self { steps: parts.into_iter().map(step).collect() }
    }

    /// Returns the steps of the node. Steps depend on transfers only, never on each other, except
    /// that a sum overwrites the slot that it names as its output.
    #[must_use]
    pub fn steps(&self) -> &[ProgramStep] {
        &self.steps
    }
}

/// Inputs of an outcome: a block alone, or the terms of a sum.
type Inputs<'a> = Chain<option::IntoIter<Input>, Copied<slice::Iter<'a, Input>>>;

/// Returns whether a node has any step when only the `live` transfers take place, and only the
/// `stored` data blocks are stored.
pub(crate) fn does_anything(
    schedule: &Schedule,
    code: &StripeCode,
    node: Role,
    live: &dyn Fn(usize) -> bool,
    stored: &dyn Fn(u32) -> bool,
) -> bool {
    let mut outcomes = outcomes(schedule, code, node, stored);
    outcomes.any(|(mut inputs, _)| inputs.any(|input| live(input.transfer)))
}

/// Returns the outcomes for the node's own cells, by row, and then for its transfers.
fn outcomes<'a>(
    schedule: &'a Schedule,
    code: &'a StripeCode,
    node: Role,
    stored: &'a dyn Fn(u32) -> bool,
) -> impl Iterator<Item = (Inputs<'a>, Destination)> {
    let inputs = |alone: Option<Input>, terms: &'a [Input]| -> Inputs<'a> {
        alone.into_iter().chain(terms.iter().copied())
    };
    let own = code.cells().filter(move |cell| cell.node == node);
    let store = move |cell: braid_array::code::Cell| {
        let inputs = match code.content(cell) {
            Content::Data(index) if !stored(index) => return None,
            Content::Data(index) => inputs(Some(Input { transfer: index as usize, coef: 1 }), &[]),
            Content::Sum(number) => inputs(None, &schedule.sums()[number]),
        };
        Some((inputs, Destination::Store { row: cell.row }))
    };
    let sent = (0..).zip(schedule.transfers());
    let sent = sent.filter(move |(_, transfer)| transfer.from == Endpoint::Node(node));
    let send = move |(number, transfer): (usize, &'a Transfer)| {
        let to = Destination::Node { node: transfer.to, transfer: number };
        (inputs(None, &transfer.inputs), to)
    };
    own.filter_map(store).chain(sent.map(send))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Planner, Xor2d};

    #[test]
    fn the_encoder_adds_and_the_others_store_and_forward() {
        let xor2d = Xor2d::new(5).expect("5 nodes");
        let schedule = xor2d.schedule(Planner::Encoder { node: Role(0) }).expect("a node of 5");
        for node in Role::all(5) {
            let program = Program::of(&schedule, xor2d.code(), node);
            let sums = program.steps().iter().filter(|step| step.operation == Operation::Sum);
            let sent = program
                .steps()
                .iter()
                .filter(|step| matches!(step.destination, Destination::Node { .. }));
            let sums = sums.count();
            let sent = sent.count();
            // Three of four cells of nodes 1 to 3 are data, node 4 has parities only.
            assert_eq!((sums, sent), [(8, 7), (0, 3), (0, 3), (0, 3), (0, 0)][node.index()]);
            let stored = program.steps().iter().take_while(|step| step.inputs[0].transfer < 12);
            assert!(
                stored.count() > 0 || node == Role(4),
                "data is stored before anything arrives"
            );
        }
    }

    #[test]
    fn a_sum_takes_a_slot_only_when_nothing_else_needs_it() {
        let xor2d = Xor2d::new(5).expect("5 nodes");
        let schedule = xor2d.schedule(Planner::Chain).expect("every code has chains");
        let mut in_place = 0;
        for node in Role::all(5) {
            let program = Program::of(&schedule, xor2d.code(), node);
            for step in program.steps().iter().filter(|step| step.operation == Operation::Sum) {
                let Output::Received(slot) = step.output else { continue };
                in_place += 1;
                let needs = |other: &ProgramStep| other.inputs.iter().any(|i| i.transfer == slot);
                let users: Vec<&ProgramStep> =
                    program.steps().iter().filter(|s| needs(s)).collect();
                assert_eq!(users, [step]);
            }
        }
        // The last sums before each of the eight parities add to a partial sum.
        assert_eq!(in_place, 8);
    }
}
