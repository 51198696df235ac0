//! Every loss that a code must survive, symbolically: what a recovery adds up must be what was
//! lost.

use braid_array::Role;
use std::collections::BTreeSet;

use braid_array::code::levels::{LevelError, stripe_code};
use braid_array::code::{
    BlockKind, Cell, Doubt, Losses, Misfit, Recovery, StripeCode, Terms, doubts,
};
use braid_array::level::{FarSets, Layout, Level, ParityLayout, Raid0Layout, Raid10Layout};
use braid_cluster::{Family, Xor2d};

/// The largest stripe has 32 rows over 32 data nodes.
const WORDS: usize = 32 * 32 / 64;

/// A sum of data blocks as a set; all coefficients are 1.
type Bits = [u64; WORDS];

#[test]
fn xor2d_gets_every_pair_of_nodes_back() {
    for nodes in 4..=34 {
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let code = xor2d.code();
        let place =
            |cell: Cell| usize::from(cell.row) * usize::from(code.nodes()) + cell.node.index();
        let blocks: Vec<Bits> = code.cells().map(|cell| bits(&code.terms(cell))).collect();
        let check = |plan: &Recovery, lost: &[Role]| {
            let mut there: Vec<Option<Bits>> = code
                .cells()
                .map(|cell| (!lost.contains(&cell.node)).then(|| blocks[place(cell)]))
                .collect();
            for step in plan.steps() {
                let mut sum = [0; WORDS];
                for term in &step.inputs {
                    assert_eq!(term.coef, 1);
                    let block = there[place(term.cell)].expect("an input that is there");
                    sum.iter_mut().zip(block).for_each(|(word, other)| *word ^= other);
                }
                there[place(step.cell)] = Some(sum);
            }
            let back = there.iter().zip(&blocks).all(|(there, block)| *there == Some(*block));
            assert!(back, "{nodes} nodes, {lost:?} lost");
            let lost_blocks = lost.len() * usize::from(code.rows());
            assert_eq!(plan.steps().len(), lost_blocks, "no block comes back twice");
        };
        for a in 0..code.nodes() {
            check(&Recovery::plan(code, &[Role(a)]).expect("one node"), &[Role(a)]);
            check(&xor2d.fewest_reads(Role(a)), &[Role(a)]);
            for b in 0..a {
                check(
                    &Recovery::plan(code, &[Role(a), Role(b)]).expect("two nodes"),
                    &[Role(a), Role(b)],
                );
            }
        }
    }
}

#[test]
fn levels_survive_what_they_promise_and_no_more() {
    for nodes in 4..=9 {
        for layout in ParityLayout::ALL {
            for stripe in 0..u64::from(nodes) {
                let raid6 = stripe_code(Level::Raid6, Layout::Parity(layout), nodes, stripe);
                let raid6 = raid6.expect("raid6 has every layout");
                survives(&raid6, &losses(Level::Raid6, Layout::Parity(layout), nodes), 2);
                let raid5 = stripe_code(Level::Raid5, Layout::Parity(layout), nodes, stripe);
                if let Ok(raid5) = raid5 {
                    survives(&raid5, &losses(Level::Raid5, Layout::Parity(layout), nodes), 1);
                }
            }
        }
        let check = |level, layout, most| {
            let code = stripe_code(level, layout, nodes, 3).expect("a level with stripes");
            survives(&code, &losses(level, layout, nodes), most);
        };
        check(Level::Raid4, Layout::None, 1);
        check(Level::Raid1, Layout::None, nodes as usize - 1);
        check(Level::Raid0, Layout::Raid0(Raid0Layout::Original), 0);
        for layout in ["n2", "n3", "o2", "o3"] {
            check(Level::Raid10, raid10(layout), if layout.ends_with('2') { 1 } else { 2 });
        }
        let both = Raid10Layout { near: 2, far: 2, offset: true, far_sets: FarSets::Original };
        match stripe_code(Level::Raid10, Layout::Raid10(both), nodes, 0) {
            Ok(code) => survives(&code, &losses(Level::Raid10, Layout::Raid10(both), nodes), 3),
            Err(error) => assert!(nodes % 2 == 1, "{nodes} nodes: {error}"),
        }
    }
}

#[test]
fn levels_without_stripes_are_refused() {
    let refused = |level, layout, nodes| stripe_code(level, layout, nodes, 0).err();
    assert_eq!(refused(Level::Linear, Layout::None, 3), Some(LevelError::Linear));
    assert_eq!(refused(Level::Raid10, raid10("f2"), 4), Some(LevelError::Far));
    assert!(matches!(
        refused(Level::Raid6, Layout::Parity(ParityLayout::LeftSymmetric), 3),
        Some(LevelError::Geometry(_))
    ));
    assert!(matches!(refused(Level::Raid1, Layout::None, u32::MAX), Some(LevelError::Geometry(_))));
    assert!(matches!(refused(Level::Raid10, Layout::None, 4), Some(LevelError::Geometry(_))));
}

fn raid10(name: &str) -> Layout {
    let copies = name[1..].parse().expect("a number of copies");
    let (near, far) = if name.starts_with('n') { (copies, 1) } else { (1, copies) };
    let far_sets = FarSets::Original;
    Layout::Raid10(Raid10Layout { near, far, offset: name.starts_with('o'), far_sets })
}

fn bits(terms: &Terms) -> Bits {
    let mut bits = [0; WORDS];
    for (index, coef) in terms.iter() {
        assert_eq!(coef, 1);
        bits[index as usize / 64] |= 1 << (index % 64);
    }
    bits
}

fn losses(level: Level, layout: Layout, nodes: u32) -> Losses {
    Losses::of(level, layout, nodes).expect("md has it")
}

/// Any `most` nodes come back; of any `most + 1` data is lost for at least one choice of them.
/// What comes back is what is said to.
fn survives(code: &StripeCode, losses: &Losses, most: usize) {
    let nodes = usize::from(code.nodes());
    let mut lost_for_good = 0;
    for set in 0..1u32 << nodes {
        let lost: Vec<Role> =
            Role::all(code.nodes()).filter(|node| set >> node.0 & 1 == 1).collect();
        let plan = Recovery::plan(code, &lost);
        assert_eq!(losses.survives(|node| lost.contains(&node)), plan.is_some(), "{lost:?}");
        match plan {
            Some(plan) => comes_back(code, &plan, &lost),
            None => {
                assert!(lost.len() > most, "{lost:?} of {code:?}");
                lost_for_good += usize::from(lost.len() == most + 1);
            }
        }
    }
    assert!(lost_for_good > 0, "{code:?} survives more than {most}");
}

fn comes_back(code: &StripeCode, plan: &Recovery, lost: &[Role]) {
    let mut there: BTreeSet<Cell> =
        code.cells().filter(|cell| !lost.contains(&cell.node)).collect();
    for step in plan.steps() {
        let mut sum = Terms::default();
        for term in &step.inputs {
            assert!(there.contains(&term.cell), "{:?} is not there", term.cell);
            sum.add(term.coef, &code.terms(term.cell));
        }
        assert_eq!(sum, code.terms(step.cell));
        there.insert(step.cell);
    }
    assert!(there.iter().copied().eq(code.cells()));
}

#[test]
fn one_lost_node_reads_rows_and_two_are_two_chains_side_by_side() {
    let xor2d = Xor2d::new(5).expect("5 nodes");
    let one = Recovery::plan(xor2d.code(), &[Role(2)]).expect("one node");
    assert_eq!(one.steps().len(), 4);
    assert_eq!(one.reads().len(), 12, "n-2 blocks in each of 4 rows");
    let two = Recovery::plan(xor2d.code(), &[Role(0), Role(1)]).expect("two nodes");
    let first: Vec<Role> = two.steps()[..2].iter().map(|step| step.cell.node).collect();
    assert_eq!(two.steps().len(), 8);
    assert!(two.reads().iter().all(|cell| cell.node > Role(1)));
    assert_ne!(first[0], first[1], "both ends of the path are peeled at once");
    assert!(
        Recovery::plan(xor2d.code(), &[Role(0), Role(1), Role(2)]).is_none(),
        "three nodes are too many"
    );
}

#[test]
fn a_single_wanted_block_needs_only_its_part_of_the_chain() {
    let xor2d = Xor2d::new(7).expect("7 nodes");
    let all = Recovery::plan(xor2d.code(), &[Role(0), Role(3)]).expect("two nodes");
    for step in all.steps() {
        let some = all.only(&[step.cell], |_| false);
        assert_eq!(some.steps().last().map(|last| last.cell), Some(step.cell));
        let mut there = some.reads();
        for step in some.steps() {
            assert!(step.inputs.iter().all(|term| there.contains(&term.cell)));
            there.insert(step.cell);
        }
        assert!(some.steps().len() < all.steps().len());
    }
    assert_eq!(all.only(&[], |_| false).steps(), []);
    let first = &all.steps()[0].cell;
    let last = &all.steps()[all.steps().len() - 1].cell;
    assert_eq!(all.only([first, last], |cell| cell == last).steps(), [all.steps()[0].clone()]);
}

#[test]
fn what_comes_back_of_xor2d_is_what_is_said_to() {
    for nodes in 4..=9 {
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let losses = Family::Xor2d.losses(nodes as u16).expect("4 to 34 nodes");
        survives(xor2d.code(), &losses, 2);
    }
}

/// The one cell whose change alone explains which equations do not hold.
fn to_blame(code: &StripeCode, differs: impl Fn(usize) -> bool) -> Option<Cell> {
    let numbers = 0..code.equations().len();
    let differs: Vec<u64> = numbers.map(|number| u64::from(differs(number))).collect();
    let misfits: Vec<Misfit> = doubts(code, &differs).iter().flat_map(Doubt::misfits).collect();
    match misfits[..] {
        [Misfit { wrong, .. }] => wrong,
        _ => None,
    }
}

#[test]
fn one_changed_block_of_xor2d_is_found() {
    for nodes in 4..=9 {
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let code = xor2d.code();
        for cell in code.cells() {
            let involved = code.involved(cell);
            assert_eq!(to_blame(code, |number| involved.contains(&number)), Some(cell), "{nodes}");
        }
        let two = [0, code.equations().len() - 1];
        let meet = code.data().iter().find(|&&cell| code.involved(cell) == two);
        assert_eq!(to_blame(code, |number| two.contains(&number)), meet.copied(), "{nodes}");
        assert_eq!(to_blame(code, |_| false), None);
        assert_eq!(to_blame(code, |_| true), None, "more than a row and a diagonal");
    }
}

#[test]
fn rows_and_diagonals_tell_every_cell() {
    for nodes in 4..=9 {
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let code = xor2d.code();
        for cell in code.cells() {
            // It alone is wrong, in the second block.
            let differs = |number| if code.involved(cell).contains(&number) { 2 } else { 0 };
            let differs: Vec<u64> = (0..code.equations().len()).map(differs).collect();
            let mut all = doubts(code, &differs);
            let wrong = |doubt: &Doubt| -> Vec<(Option<Cell>, u64)> {
                doubt.misfits().iter().map(|misfit| (misfit.wrong, misfit.blocks)).collect()
            };
            assert_eq!(all.len(), 1);
            assert_eq!(wrong(&all[0]), [(Some(cell), 2)]);
            let sums_of_data = code.kind(cell) == BlockKind::Data;
            assert_eq!(all[0].to_compare().len(), usize::from(sums_of_data));
            if sums_of_data {
                all[0].clear(0, 2);
                assert_eq!(wrong(&all[0]), [(None, 2)]);
            }
        }
    }
}

#[test]
fn of_p_and_q_only_parity_is_found_by_what_differs() {
    let layout = Layout::Parity(ParityLayout::LeftSymmetric);
    let code = stripe_code(Level::Raid6, layout, 5, 0).expect("raid6");
    assert_eq!(to_blame(&code, |number| number == 0), Some(code.equations()[0].parity));
    assert_eq!(to_blame(&code, |number| number == 1), Some(code.equations()[1].parity));
    assert_eq!(to_blame(&code, |_| true), None, "any of the data");
    let code = stripe_code(Level::Raid5, layout, 5, 0).expect("raid5");
    assert_eq!(to_blame(&code, |_| true), None, "any of the strips");
}
