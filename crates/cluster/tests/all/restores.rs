//! Chains that give a role its blocks back, carried out on bytes: of every code, for every role,
//! whichever others are missing, each block comes back as it was, and costs what it must.

use braid_array::Role;
use std::collections::{BTreeMap, BTreeSet};

use braid_array::code::{Cell, StripeCode};
use braid_array::level::{FarSets, Layout, Level, ParityLayout, Raid10Layout};
use braid_cluster::schedule::{ChainLink, Chains};
use braid_cluster::{Family, Roles};

/// Bytes of a block here.
const BLOCK_BYTES: usize = 16;

fn families() -> Vec<Family> {
    let default = |level| Family::Md { level, layout: Layout::default_for(level) };
    let copies = |near, far, offset| {
        let layout = Raid10Layout { near, far, offset, far_sets: FarSets::Original };
        Family::Md { level: Level::Raid10, layout: Layout::Raid10(layout) }
    };
    let mut families = vec![Family::Xor2d, default(Level::Raid1), default(Level::Raid4)];
    families.extend([copies(2, 1, false), copies(3, 1, false), copies(1, 2, true)]);
    for level in [Level::Raid5, Level::Raid6] {
        let layouts = ParityLayout::ALL.into_iter().filter(|layout| layout.fits(level));
        families.extend(layouts.map(|layout| Family::Md { level, layout: Layout::Parity(layout) }));
    }
    families
}

/// Every block of a stripe: data as they come, and the sums of them.
fn blocks(code: &StripeCode) -> BTreeMap<Cell, Vec<u8>> {
    let data = |index: u32| -> Vec<u8> {
        (0..BLOCK_BYTES as u32).map(|at| (index * 37 + at * 11 + 5) as u8).collect()
    };
    let content = |cell: Cell| {
        let mut sum = vec![0; BLOCK_BYTES];
        for (index, coef) in code.terms(cell).iter() {
            braid_parity::combine(&mut [&mut sum], &[coef], &[&data(index)], true);
        }
        (cell, sum)
    };
    code.cells().map(content).collect()
}

/// The rows that come back, by what the nodes send each other.
fn carry_out(links: &[ChainLink], blocks: &BTreeMap<Cell, Vec<u8>>) -> BTreeMap<u16, Vec<u8>> {
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut back = BTreeMap::new();
    for link in links {
        let mut sum = vec![0; BLOCK_BYTES];
        if let Some(before) = link.before {
            assert_eq!(links[before].to, link.from, "a node sends on what it got");
            sum.clone_from(&sent[before]);
        }
        for &(row, coef) in &link.own {
            let own = &blocks[&Cell { row, node: link.from }];
            braid_parity::combine(&mut [&mut sum], &[coef], &[own], true);
        }
        back.insert(link.row, sum.clone());
        sent.push(sum);
    }
    back
}

/// Checks all chains of a stripe to a role while others are missing.
fn check(family: Family, code: &StripeCode, role: Role, missing: Roles, turn: u16) -> Chains {
    let mut lost = missing;
    lost.insert(role);
    let recovery = family.recovery(code, lost).expect("it survives");
    let chains = Chains::new(code, &recovery, role, turn);
    let links = chains.links();
    let what = format!("{family:?}, role {role} of {} without {missing:?}", code.nodes());
    let blocks = blocks(code);
    let back = carry_out(links, &blocks);
    assert_eq!(back.len(), usize::from(code.rows()), "{what}");
    for (row, block) in back {
        assert_eq!(block, blocks[&Cell { row, node: role }], "row {row}: {what}");
    }
    for row in 0..code.rows() {
        let chain = || links.iter().filter(|link| link.row == row);
        let from: BTreeSet<Role> = chain().map(|link| link.from).collect();
        assert_eq!(from.len(), chain().count(), "nobody is twice in a chain: {what}");
        assert!(from.iter().all(|&node| !lost.contains(node)), "{what}");
        let last: Vec<&ChainLink> = chain().filter(|link| link.to == role).collect();
        assert_eq!(last.len(), 1, "each block arrives once: {what}");
        assert!(chain().all(|link| !link.own.is_empty()), "nobody only forwards: {what}");
    }
    chains
}

#[test]
fn every_role_comes_back_whoever_else_is_missing() {
    let mut checked = 0;
    for family in families() {
        for nodes in 2..=12 {
            let Ok(losses) = family.losses(nodes) else { continue };
            for stripe in 0..u64::from(family.period(nodes)) {
                let Ok(code) = family.code(nodes, stripe) else { continue };
                for (role, other) in
                    Role::all(nodes).flat_map(|a| Role::all(nodes).map(move |b| (a, b)))
                {
                    let missing: Roles =
                        [other].into_iter().filter(|&other| other != role).collect();
                    if losses.survives(|lost| lost == role || missing.contains(lost)) {
                        check(family, &code, role, missing, stripe as u16);
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 10_000, "{checked}");
}

#[test]
fn a_chain_that_leaves_a_term_out_does_not_bring_the_block_back() {
    for family in families() {
        let nodes = 6;
        let code = family.code(nodes, 0).expect("6 nodes suit every code");
        let chains = check(family, &code, Role(2), Roles::NONE, 0);
        let blocks = blocks(&code);
        for (number, link) in chains.links().iter().enumerate() {
            for term in 0..link.own.len() {
                let mut links = chains.links().to_vec();
                links[number].own.remove(term);
                let back = carry_out(&links, &blocks);
                assert_ne!(back[&link.row], blocks[&Cell { row: link.row, node: Role(2) }]);
            }
        }
    }
}

#[test]
fn the_role_gets_each_block_once_and_the_others_share_the_rest() {
    for nodes in 4..=12 {
        let code = Family::Xor2d.code(nodes, 0).expect("4 to 12 nodes");
        let rows = u32::from(code.rows());
        for role in 0..nodes {
            let chains = check(Family::Xor2d, &code, Role(role), Roles::NONE, 0);
            let count = |which: &dyn Fn(&ChainLink) -> bool| {
                chains.links().iter().filter(|link| which(link)).count() as u32
            };
            assert_eq!(count(&|link| link.to == Role(role)), rows);
            for node in (0..nodes).filter(|&node| node != role) {
                assert!(count(&|link| link.to == Role(node)) <= rows);
                assert!(count(&|link| link.from == Role(node)) <= rows);
            }
            let own = chains
                .links()
                .iter()
                .flat_map(|link| link.own.iter().map(|&(row, _)| Cell { row, node: link.from }));
            let reads: BTreeSet<Cell> = own.collect();
            let xor2d = braid_cluster::Xor2d::new(nodes.into()).expect("4 to 12 nodes");
            assert_eq!(reads, xor2d.fewest_reads(Role(role)).reads(), "{nodes} nodes, role {role}");
        }
    }
}
