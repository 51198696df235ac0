//! Schedules of every level, carried out by the programs of all nodes with symbols for bytes.

use braid_array::Role;
use std::collections::BTreeSet;

use braid_array::code::levels::stripe_code;
use braid_array::code::{Cell, StripeCode, Terms};
use braid_array::level::{FarSets, Layout, Level, ParityLayout, Raid10Layout};
use braid_cluster::program::{Destination, Operation, Output};
use braid_cluster::schedule::Endpoint;
use braid_cluster::{Planner, Program, Schedule, Xor2d};

#[test]
fn every_level_has_schedules_that_are_exact_and_programs_that_carry_them_out() {
    let mut codes = vec![Xor2d::new(5).expect("5").code().clone()];
    codes.push(Xor2d::new(8).expect("8").code().clone());
    let symmetric = Layout::Parity(ParityLayout::LeftSymmetric);
    for nodes in [4, 5, 8] {
        for stripe in 0..3 {
            codes.push(stripe_code(Level::Raid5, symmetric, nodes, stripe).expect("raid5"));
            codes.push(stripe_code(Level::Raid6, symmetric, nodes, stripe).expect("raid6"));
        }
        codes.push(stripe_code(Level::Raid0, Layout::None, nodes, 0).expect("raid0"));
        codes.push(stripe_code(Level::Raid1, Layout::None, nodes, 0).expect("raid1"));
        codes.push(stripe_code(Level::Raid4, Layout::None, nodes, 0).expect("raid4"));
        codes.push(stripe_code(Level::Raid10, raid10(3, 1), nodes, 0).expect("raid10"));
        codes.push(stripe_code(Level::Raid10, raid10(1, 2), nodes, 0).expect("raid10"));
    }
    for code in &codes {
        let mut planners = vec![Planner::Client, Planner::Chain];
        planners.extend((0..code.nodes()).map(|node| Planner::Encoder { node: Role(node) }));
        for planner in planners {
            let schedule = Schedule::plan(code, planner).expect("planned for every code");
            assert_eq!(schedule.verify(code), Ok(()), "{planner:?} of {code:?}");
            carry_out(&schedule, code);
        }
    }
}

/// One row of n blocks: n-1 transfers for a single parity; for P+Q the chain sends 2k-1 for k data
/// blocks, one encoder k+1.
#[test]
fn transfers_of_rows_are_as_few_as_the_bounds() {
    for nodes in 4..=12u32 {
        let count = |code: &StripeCode, planner| {
            Schedule::plan(code, planner).expect("planned for every code").node_transfers()
        };
        let raid4 = stripe_code(Level::Raid4, Layout::None, nodes, 0).expect("raid4");
        let symmetric = Layout::Parity(ParityLayout::LeftSymmetric);
        let raid6 = stripe_code(Level::Raid6, symmetric, nodes, 1).expect("raid6");
        let data = nodes as usize - 2;
        assert_eq!(count(&raid4, Planner::Chain), data + 1);
        assert_eq!(count(&raid6, Planner::Chain), 2 * data - 1);
        for node in 0..nodes as u16 {
            assert_eq!(count(&raid4, Planner::Encoder { node: Role(node) }), data + 1);
            assert_eq!(count(&raid6, Planner::Encoder { node: Role(node) }), data + 1);
        }
        let mirror = stripe_code(Level::Raid1, Layout::None, nodes, 0).expect("raid1");
        let chain = Schedule::plan(&mirror, Planner::Chain).expect("planned for every code");
        assert_eq!(chain.egress()[..3], [1, 1, 1], "copies travel from node to node");
        assert_eq!(chain.node_transfers(), data + 1);
    }
}

fn raid10(near: u8, far: u8) -> Layout {
    let offset = far > 1;
    Layout::Raid10(Raid10Layout { near, far, offset, far_sets: FarSets::Original })
}

/// Runs the programs of all nodes with symbols in their slots, overwriting what they may overwrite,
/// the steps in order of stage as they would become ready.
fn carry_out(schedule: &Schedule, code: &StripeCode) {
    let programs: Vec<Program> =
        (0..code.nodes()).map(|node| Program::of(schedule, code, Role(node))).collect();
    let mut slots: Vec<Option<Terms>> = schedule
        .transfers()
        .iter()
        .map(|transfer| (transfer.from == Endpoint::Client).then(|| transfer.terms.clone()))
        .collect();
    let mut stored = BTreeSet::new();
    let mut next = vec![0; programs.len()];
    let mut progress = true;
    while progress {
        progress = false;
        for (node, program) in programs.iter().enumerate() {
            let Some(step) = program.steps().get(next[node]) else { continue };
            if step.inputs.iter().any(|input| slots[input.transfer].is_none()) {
                continue;
            }
            (next[node], progress) = (next[node] + 1, true);
            let mut sum = Terms::default();
            for input in &step.inputs {
                let here = schedule.transfers()[input.transfer].to.index() == node;
                assert!(here, "an input that came to another node");
                sum.add(input.coef, slots[input.transfer].as_ref().expect("checked above"));
            }
            if let (Operation::Sum, Output::Received(slot)) = (step.operation, step.output) {
                slots[slot] = Some(Terms::default());
            }
            match step.destination {
                Destination::Node { transfer, .. } => slots[transfer] = Some(sum),
                Destination::Store { row } => {
                    let cell = Cell { row, node: Role(node as u16) };
                    assert_eq!(sum, code.terms(cell), "{cell:?} of {code:?}");
                    stored.insert(cell);
                }
            }
        }
    }
    assert!(stored.into_iter().eq(code.cells()), "every block is stored");
}
