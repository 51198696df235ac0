//! Slice-sets that restore a role's blocks, without a change to other roles.

use braid_array::Role;
use braid_array::code::Cell;
use braid_array::level::Level;
use braid_cluster::Family;
use braid_cluster::ids::Position;
use braid_cluster::pipeline::Params;
use braid_cluster::schedule::Planner;
use braid_cluster::set::{Roles, Set, Touched, WriteStrategy};

use super::array::{Array, CHUNK, RUBBISH, levels, md};

fn restore(array: &mut Array, (position, stripe): (u16, u64), role: Role, missing: Roles) -> Set {
    let touched = Touched::none(array.pipeline.data_blocks());
    let strategy = WriteStrategy::Restore(role);
    let planner = Planner::Chain;
    let whole = array.set(position, stripe);
    Set { strategy, planner, touched, missing, ..whole }
}

fn cells(array: &Array, roles: Roles) -> Vec<Cell> {
    let rows = 0..array.pipeline.rows();
    roles.iter().flat_map(|node| rows.clone().map(move |row| Cell { row, node })).collect()
}

fn fill(array: &mut Array, roles: Roles) {
    for stripe in 0..array.pipeline.params().stripes {
        cells(array, roles).into_iter().for_each(|cell| array.cell(stripe, cell).fill(RUBBISH));
    }
}

/// At all positions at once, every slice of every stripe.
fn restore_all(array: &mut Array, role: Role, missing: Roles) {
    let positions = array.pipeline.positions();
    let stripes = array.pipeline.params().stripes;
    let bytes = array.pipeline.position_bytes(Position(0));
    let slices: Vec<(u64, u32)> = (0..stripes)
        .flat_map(|stripe| (0..CHUNK / bytes).map(move |slice| (stripe, slice * bytes)))
        .collect();
    for slices in slices.chunks(positions.into()) {
        let mut sets = Vec::new();
        for (position, &(stripe, offset)) in (0..).zip(slices) {
            let set = restore(array, (position, stripe), role, missing);
            let set = Set { offset, len: bytes, ..set };
            array.write(&set);
            sets.push(set);
        }
        array.run();
        array.expect_closed(&sets);
    }
}

fn restore_each(mut array: Array) {
    let Params { family, nodes, stripes, .. } = *array.pipeline.params();
    let losses = family.losses(nodes).expect("a code");
    array.fill_all();
    array.verify();
    for (role, other) in
        Role::all(nodes).flat_map(|role| Role::all(nodes).map(move |other| (role, other)))
    {
        let missing: Roles = [other].into_iter().filter(|&other| other != role).collect();
        let lost: Roles = missing.iter().chain([role]).collect();
        if !losses.survives(|node| lost.contains(node)) {
            continue;
        }
        fill(&mut array, lost);
        restore_all(&mut array, role, missing);
        array.verify_without(missing);
        for stripe in 0..stripes {
            for cell in cells(&array, missing) {
                assert!(array.cell(stripe, cell).iter().all(|&byte| byte == RUBBISH));
            }
        }
        for other in missing.iter() {
            restore_all(&mut array, other, Roles::NONE);
        }
        array.verify();
    }
}

#[test]
fn each_node_of_a_code_of_diagonals_comes_back() {
    for nodes in 4..=7 {
        let encoder = Planner::Encoder { node: Role(0) };
        restore_each(Array::connected(Family::Xor2d, nodes, encoder, nodes.into()));
    }
    restore_each(Array::connected(Family::Xor2d, 5, Planner::Static, 1));
}

#[test]
fn each_node_of_a_level_comes_back() {
    for (family, nodes) in levels() {
        restore_each(Array::connected(
            family,
            nodes,
            Planner::Encoder { node: Role(0) },
            nodes.into(),
        ));
    }
    restore_each(Array::connected(md(Level::Raid6), 5, Planner::Chain, 2));
}

#[test]
fn what_cannot_be_restored_is_not_opened() {
    let mut array = Array::connected(Family::Xor2d, 5, Planner::Encoder { node: Role(0) }, 1);
    let ok = restore(&mut array, (0, 0), Role(1), Roles(1 << 3));
    let blocks = array.pipeline.data_blocks();
    let wrong = [
        Set { strategy: WriteStrategy::Restore(Role(5)), ..ok.clone() },
        Set { strategy: WriteStrategy::Restore(Role(u16::MAX)), ..ok.clone() },
        Set { missing: Roles(1 << 1), ..ok.clone() },
        Set { missing: Roles(1 << 5), ..ok.clone() },
        Set { missing: Roles(1 << 2 | 1 << 3), ..ok.clone() },
        Set { planner: Planner::Client, ..ok.clone() },
        Set { planner: Planner::Encoder { node: Role(0) }, ..ok.clone() },
        Set { touched: Touched::all(blocks), ..ok.clone() },
        Set { offset: CHUNK, ..ok.clone() },
    ];
    assert!(array.pipeline.plan_of(&ok).is_some());
    for set in wrong {
        assert!(array.pipeline.plan_of(&set).is_none(), "{set:?}");
    }
}
