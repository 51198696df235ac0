//! Slice-sets without some roles: all others hold the right content, the missing ones are left
//! alone, and their content can be decoded.

use braid_array::Role;
use braid_array::code::{Cell, Recovery, StripeCode};
use braid_array::level::{FarSets, Layout, Level, Raid10Layout};
use braid_cluster::Family;
use braid_cluster::ids::Position;
use braid_cluster::pipeline::{Knowledge, lost_blocks, write_strategy};
use braid_cluster::schedule::Planner;
use braid_cluster::set::{Roles, Set, Touched, WriteStrategy};

use super::array::{Array, CHUNK, RUBBISH, levels, md};

fn copies(near: u8) -> Family {
    let layout = Raid10Layout { near, far: 1, offset: false, far_sets: FarSets::Original };
    Family::Md { level: Level::Raid10, layout: Layout::Raid10(layout) }
}

/// Returns the sets of one or two roles that the array survives losing.
fn losses(array: &Array) -> Vec<Roles> {
    let params = array.pipeline.params();
    let losses = params.family.losses(params.nodes).expect("a code");
    let pairs = (0..params.nodes).flat_map(|a| (0..=a).map(move |b| [a, b]));
    let pairs = pairs.map(|pair| pair.into_iter().map(Role).collect::<Roles>());
    pairs.filter(|missing| losses.survives(|role| missing.contains(role))).collect()
}

/// Slice-sets at all positions that do not rest, each over another stripe.
fn write_without(array: &mut Array, missing: Roles) {
    let stripes = array.pipeline.params().stripes;
    let mut sets = Vec::new();
    let first = array.world.random(stripes);
    for position in 0..array.pipeline.positions() {
        let Some(planner) = array.pipeline.planner_without(Position(position), missing) else {
            continue;
        };
        let stripe = (first + u64::from(position)) % stripes;
        let code = code(array, stripe);
        let new = array.some();
        let Some((strategy, touched)) = pick(array, &code, &new, missing) else { continue };
        let by_client =
            strategy == WriteStrategy::FullStripe && touched.is_all() && array.world.random(2) == 0;
        let planner = if by_client { Planner::Client } else { planner };
        let from = array.world.random(8) as u32;
        let to = array.world.random(8) as u32;
        let offset = from.min(to) * 512;
        let len = (from.max(to) - from.min(to) + 1) * 512;
        let whole = array.set(position, stripe);
        let set = Set { strategy, touched, planner, offset, len, missing, ..whole };
        array.write_some(&set, &new);
        sets.push(set);
    }
    array.run();
    array.expect_closed(&sets);
}

/// Any of the ways that there are to give these blocks new content, and the blocks to be put.
fn pick(
    array: &mut Array,
    code: &StripeCode,
    new: &Touched,
    missing: Roles,
) -> Option<(WriteStrategy, Touched)> {
    let mut with_lost = new.clone();
    lost_blocks(code, missing).for_each(|index| with_lost.insert(index));
    match array.world.random(4) {
        0 => Some((WriteStrategy::FullStripe, Touched::all(new.blocks()))),
        1 => Some((WriteStrategy::Reconstruct, with_lost)),
        2 => (new.count() > 0).then(|| (WriteStrategy::ReadModifyWrite, new.clone())),
        _ => {
            let known = Knowledge { missing, unknown: &|_| false, in_step: true };
            let way = write_strategy(code, new, known);
            Some((way.strategy, way.put))
        }
    }
}

fn code(array: &Array, stripe: u64) -> StripeCode {
    let params = array.pipeline.params();
    params.family.code(params.nodes, stripe).expect("a code")
}

/// Fills all cells of the missing roles, with the right content or with rubbish.
fn fill(array: &mut Array, missing: Roles, rubbish: bool) {
    for stripe in 0..array.pipeline.params().stripes {
        let code = code(array, stripe);
        for cell in code.cells().filter(|cell| missing.contains(cell.node)) {
            let content = array.content(stripe, &code.terms(cell));
            let content = if rubbish { vec![RUBBISH; CHUNK as usize] } else { content };
            array.cell(stripe, cell).copy_from_slice(&content);
        }
    }
}

/// Checks that the missing blocks can be decoded from the others, and that nothing was written to
/// them.
fn expect_decodable(array: &mut Array, missing: Roles) {
    for stripe in 0..array.pipeline.params().stripes {
        let code = code(array, stripe);
        let lost: Vec<Role> = missing.iter().collect();
        let recovery = Recovery::plan(&code, &lost).expect("it survives");
        let mut known: Vec<(Cell, Vec<u8>)> = Vec::new();
        for step in recovery.steps() {
            let mut block = vec![0; CHUNK as usize];
            for term in &step.inputs {
                let found = known.iter().find(|(cell, _)| *cell == term.cell);
                let input = found.map(|(_, block)| block.clone());
                let input = input.unwrap_or_else(|| array.cell(stripe, term.cell).to_vec());
                braid_parity::combine(&mut [&mut block], &[term.coef], &[&input], true);
            }
            let must = array.content(stripe, &code.terms(step.cell));
            assert!(block == must, "{:?} of stripe {stripe} without {missing:?}", step.cell);
            assert!(array.cell(stripe, step.cell).iter().all(|&byte| byte == RUBBISH));
            known.push((step.cell, block));
        }
    }
}

fn survive_all_losses(mut array: Array, rounds: usize) {
    array.fill_all();
    for missing in losses(&array) {
        fill(&mut array, missing, true);
        for _ in 0..rounds {
            write_without(&mut array, missing);
        }
        array.verify_without(missing);
        expect_decodable(&mut array, missing);
        fill(&mut array, missing, false);
    }
    array.verify();
}

#[test]
fn diagonals_are_written_without_any_two_nodes() {
    for nodes in 4..=7 {
        let encoder = Planner::Encoder { node: Role(0) };
        survive_all_losses(Array::connected(Family::Xor2d, nodes, encoder, nodes.into()), 4);
    }
}

#[test]
fn levels_are_written_without_what_they_survive() {
    for (family, nodes) in levels().into_iter().chain([(copies(3), 4)]) {
        let array =
            Array::connected(family, nodes, Planner::Encoder { node: Role(0) }, nodes.into());
        assert!(!losses(&array).is_empty());
        survive_all_losses(array, 8);
    }
    let stripes = Array::connected(md(Level::Raid0), 3, Planner::Encoder { node: Role(0) }, 1);
    assert_eq!(losses(&stripes), []);
}

#[test]
fn pipelines_of_other_planners_have_encoders_for_that() {
    let arrays = [
        (Family::Xor2d, 5, Planner::Static),
        (Family::Xor2d, 6, Planner::Chain),
        (md(Level::Raid1), 3, Planner::Chain),
        (md(Level::Raid6), 5, Planner::Chain),
    ];
    for (family, nodes, planner) in arrays {
        survive_all_losses(Array::connected(family, nodes, planner, 50), 4);
    }
}
