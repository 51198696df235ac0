use braid_array::Role;
use std::collections::BTreeMap;

use braid_array::Buf;
use braid_array::level::{Layout, Level};

use super::*;
use crate::family::Family;
use crate::ids::{Epoch, Generation, Position, Slot, StripeNo};
use crate::program::{Destination, Output, ProgramStep};
use crate::set::Touched;

fn params(family: Family, nodes: u16, planner: Planner) -> Params {
    Params {
        session: 1,
        epoch: Epoch(1),
        family,
        nodes,
        chunk_bytes: 65536,
        stripes: 1000,
        planner,
        wide: Slots { count: 2 * nodes, bytes: 65536 },
        narrow: Slots { count: nodes + 1, bytes: 16384 },
        reads: Slots { count: 4, bytes: 65536 },
        silence_ms: 4000,
    }
}

fn md(level: Level) -> Family {
    Family::Md { level, layout: Layout::default_for(level) }
}

fn set(pipeline: &Pipeline, position: u16, stripe: u64) -> Set {
    let position = Position(position);
    Set {
        position,
        generation: Generation(0),
        number: 0,
        stripe: StripeNo(stripe),
        offset: 0,
        len: pipeline.position_bytes(position),
        strategy: WriteStrategy::FullStripe,
        planner: pipeline.planner(position),
        fua: false,
        touched: Touched::all(pipeline.data_blocks()),
        missing: Roles::NONE,
        log: true,
        relay: false,
    }
}

/// Every slot that the parts of a slice-set use, by node.
fn slots(pipeline: &mut Pipeline, set: &Set) -> BTreeMap<u16, Vec<Buf>> {
    let plan = pipeline.plan_of(set).expect("a slice-set a client may open");
    let mut slots: BTreeMap<u16, Vec<Buf>> = BTreeMap::new();
    for (number, transfer) in plan.schedule.transfers().iter().enumerate() {
        slots.entry(transfer.to.0).or_default().push(pipeline.arrival(&plan, set, number));
    }
    for node in 0..pipeline.params().nodes {
        let part = plan.part(Role(node), set.strategy, &set.touched);
        let fresh = part.steps().iter().filter(|step| step.output == Output::Fresh).count();
        let own = slots.entry(node).or_default();
        own.extend((0..fresh as u32).map(|number| pipeline.fresh(set, Role(node), number)));
        own.extend((0..pipeline.rows()).map(|row| pipeline.old(set, Role(node), row)));
    }
    slots
}

#[test]
fn no_two_slots_of_open_slice_sets_overlap() {
    let encoder = Planner::Encoder { node: Role(0) };
    let kinds = [
        (Family::Xor2d, 4, encoder),
        (Family::Xor2d, 5, encoder),
        (Family::Xor2d, 5, Planner::Chain),
        (Family::Xor2d, 6, Planner::Chain),
        (Family::Xor2d, 9, encoder),
        (Family::Xor2d, 5, Planner::Static),
        (md(Level::Raid0), 3, encoder),
        (md(Level::Raid1), 2, encoder),
        (md(Level::Raid4), 3, Planner::Chain),
        (md(Level::Raid5), 4, encoder),
        (md(Level::Raid5), 4, Planner::Chain),
        (md(Level::Raid6), 5, encoder),
        (md(Level::Raid10), 4, encoder),
    ];
    for (family, nodes, planner) in kinds {
        let mut pipeline = Pipeline::new(params(family, nodes, planner)).expect("a pipeline");
        let mut all: BTreeMap<u16, Vec<Buf>> = BTreeMap::new();
        for position in 0..pipeline.positions() {
            // By the client and by the nodes: the slots are the same room.
            let mut set = set(&pipeline, position, u64::from(position) % 7);
            let by_nodes = slots(&mut pipeline, &set);
            set.planner = Planner::Client;
            let by_client = slots(&mut pipeline, &set);
            for node in 0..nodes {
                let end = |slots: &[Buf]| slots.iter().map(|s| s.offset).max().unwrap_or(0);
                assert!(end(&by_client[&node]) <= end(&by_nodes[&node]));
            }
            for (node, slots) in by_nodes {
                all.entry(node).or_default().extend(slots);
            }
        }
        for (node, slots) in &mut all {
            slots.extend((0..4).map(|number| pipeline.read_slot(Role(*node), Slot(number))));
            slots.sort_by_key(|slot| slot.offset);
            for pair in slots.windows(2) {
                let end = pair[0].offset + u64::from(pair[0].len);
                assert!(end <= pair[1].offset, "{family:?} over {nodes}: {pair:?}");
            }
            let last = slots.last().expect("slots");
            assert_eq!(last.offset + u64::from(last.len), pipeline.ring_bytes(Role(*node)));
        }
    }
}

#[test]
fn sums_of_small_writes_have_room() {
    let kinds = [
        (Family::Xor2d, 5, Planner::Chain),
        (Family::Xor2d, 6, Planner::Encoder { node: Role(0) }),
        (Family::Xor2d, 5, Planner::Static),
        (md(Level::Raid6), 5, Planner::Chain),
        (md(Level::Raid6), 5, Planner::Encoder { node: Role(0) }),
    ];
    for (family, nodes, planner) in kinds {
        let mut pipeline = Pipeline::new(params(family, nodes, planner)).expect("a pipeline");
        let data = pipeline.data_blocks();
        let mut bits: u64 = 1;
        for round in 0..40 * nodes {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round.into());
            let mut touched = Touched::none(data);
            (0..data).filter(|i| bits >> (i + 20) & 1 == 1).for_each(|i| touched.insert(i));
            if touched.count() == 0 {
                continue;
            }
            let position = round % nodes;
            let set = Set {
                strategy: WriteStrategy::ReadModifyWrite,
                touched,
                ..set(&pipeline, position, 1)
            };
            let plan = pipeline.plan_of(&set).expect("a plan");
            for node in 0..nodes {
                let part = plan.part(Role(node), set.strategy, &set.touched);
                let fresh = part.steps().iter().filter(|step| step.output == Output::Fresh);
                let end = pipeline.fresh(&set, Role(node), fresh.count() as u32).offset;
                let old = pipeline.old(&set, Role(node), 0).offset;
                assert!(end <= old, "{family:?} by {planner:?}: {:?} at node {node}", set.touched);
            }
        }
    }
}

#[test]
fn slice_sets_without_some_roles_keep_to_the_same_slots() {
    let kinds = [
        (Family::Xor2d, 4, Planner::Encoder { node: Role(0) }),
        (Family::Xor2d, 6, Planner::Encoder { node: Role(0) }),
        (Family::Xor2d, 5, Planner::Chain),
        (Family::Xor2d, 5, Planner::Static),
        (md(Level::Raid1), 3, Planner::Chain),
        (md(Level::Raid6), 5, Planner::Encoder { node: Role(0) }),
        (md(Level::Raid10), 5, Planner::Encoder { node: Role(0) }),
    ];
    for (family, nodes, planner) in kinds {
        let mut pipeline = Pipeline::new(params(family, nodes, planner)).expect("a pipeline");
        for (a, b) in (0..nodes).flat_map(|a| (0..=a).map(move |b| (a, b))) {
            for position in 0..nodes {
                let missing = [a, b].into_iter().map(Role).collect();
                let planner = pipeline.planner_without(Position(position), missing);
                assert_eq!(planner.is_none(), missing.contains(Role(position)));
                let Some(planner) = planner else { continue };
                let set = Set { missing, planner, ..set(&pipeline, position, u64::from(b)) };
                let Some(plan) = pipeline.plan_of(&set) else {
                    assert!(!pipeline.losses.survives(|role| missing.contains(role)));
                    continue;
                };
                assert_eq!(
                    plan.involved(set.strategy, &set.touched).len() as u32,
                    u32::from(nodes) - missing.count()
                );
                for role in missing.iter() {
                    assert!(plan.part(role, set.strategy, &set.touched).steps().is_empty());
                }
                for node in (0..nodes).filter(|&node| !missing.contains(Role(node))) {
                    let sent = plan.schedule.transfers().iter().enumerate();
                    let sent = sent.filter(|(_, transfer)| transfer.to == Role(node));
                    let arrive = sent.map(|(number, _)| pipeline.arrival(&plan, &set, number));
                    let mut starts: Vec<u64> = arrive.map(|slot| slot.offset).collect();
                    let count = starts.len();
                    starts.sort_unstable();
                    starts.dedup();
                    assert_eq!(starts.len(), count, "{family:?} without {missing:?}");
                    let fresh = pipeline.fresh(&set, Role(node), 0).offset;
                    assert!(starts.last().is_none_or(|&last| last < fresh));
                    let part = plan.part(Role(node), set.strategy, &set.touched);
                    let sums = part.steps().iter().filter(|step| step.output == Output::Fresh);
                    let end = pipeline.fresh(&set, Role(node), sums.count() as u32).offset;
                    assert!(end <= pipeline.old(&set, Role(node), 0).offset);
                }
            }
        }
    }
}

#[test]
fn a_small_write_moves_what_it_must() {
    let mut pipeline = Pipeline::new(params(Family::Xor2d, 5, Planner::Encoder { node: Role(0) }))
        .expect("5 nodes");
    for index in 0..12 {
        let mut touched = Touched::none(12);
        touched.insert(index);
        let home = pipeline.plan(StripeNo(0), Planner::Client).expect("a plan").code.data()
            [index as usize];
        // The home of the block encodes: it sends the difference to both parities.
        let set = Set {
            strategy: WriteStrategy::ReadModifyWrite,
            touched,
            ..set(&pipeline, 10 + home.node.0, 3)
        };
        let plan = pipeline.plan_of(&set).expect("a plan");
        let mut stored = 0;
        let mut sent = 0;
        for node in plan.involved(set.strategy, &set.touched) {
            for step in plan.part(node, set.strategy, &set.touched).steps() {
                match step.destination {
                    Destination::Node { .. } => sent += 1,
                    Destination::Store { .. } => stored += 1,
                }
            }
        }
        assert_eq!((stored, sent), (3, 2), "block {index}");
    }
}

/// The blocks that nodes are counted to store are those that their programs store.
#[test]
fn blocks_stored_are_those_of_the_programs() {
    let kinds = [
        (Family::Xor2d, 5, Planner::Encoder { node: Role(0) }),
        (Family::Xor2d, 6, Planner::Chain),
        (md(Level::Raid5), 4, Planner::Client),
        (md(Level::Raid6), 6, Planner::Encoder { node: Role(2) }),
        (md(Level::Raid10), 4, Planner::Client),
    ];
    for (family, nodes, planner) in kinds {
        let mut pipeline = Pipeline::new(params(family, nodes, planner)).expect("parameters");
        let data = pipeline.data_blocks();
        for missing in [Roles::NONE, [Role(1)].into_iter().collect()] {
            let set = Set { missing, ..set(&pipeline, 0, 7) };
            let Some(plan) = pipeline.plan_of(&set) else { continue };
            let mut some = Touched::none(data);
            [0, data - 1].into_iter().for_each(|index| some.insert(index));
            for (strategy, touched) in [
                (WriteStrategy::FullStripe, Touched::all(data)),
                (WriteStrategy::ReadModifyWrite, some.clone()),
                (WriteStrategy::Reconstruct, some),
            ] {
                let stores = |node: Role| {
                    let part = plan.part(node, strategy, &touched);
                    let stores =
                        |step: &&ProgramStep| matches!(step.destination, Destination::Store { .. });
                    part.steps().iter().filter(stores).count() as u16
                };
                let expected: Vec<u16> = Role::all(nodes).map(stores).collect();
                assert_eq!(plan.stores(strategy, &touched), expected, "{family:?} {strategy:?}");
            }
        }
    }
}

#[test]
fn what_a_client_may_not_open_has_no_plan() {
    let mut pipeline = Pipeline::new(params(Family::Xor2d, 5, Planner::Encoder { node: Role(0) }))
        .expect("5 nodes");
    let good = set(&pipeline, 3, 9);
    assert!(pipeline.plan_of(&good).is_some());
    let mut some = Touched::none(12);
    some.insert(1);
    let bad = [
        Set { position: Position(200), ..good.clone() },
        Set { stripe: StripeNo(1000), ..good.clone() },
        Set { len: 65536 + 512, ..good.clone() },
        Set { offset: 512, ..good.clone() },
        Set { len: 100, ..good.clone() },
        Set { len: 0, ..good.clone() },
        Set { planner: Planner::Encoder { node: Role(1) }, ..good.clone() },
        Set { planner: Planner::Chain, ..good.clone() },
        Set { touched: Touched::all(13), ..good.clone() },
        Set { touched: some.clone(), ..good.clone() },
        Set {
            touched: Touched::none(12),
            strategy: WriteStrategy::ReadModifyWrite,
            ..good.clone()
        },
        Set {
            planner: Planner::Client,
            strategy: WriteStrategy::ReadModifyWrite,
            touched: some,
            ..good
        },
    ];
    for set in bad {
        assert!(pipeline.plan_of(&set).is_none(), "{set:?}");
    }
}

#[test]
fn roles_are_missing_only_where_the_rest_can_be_written() {
    let encoder = Planner::Encoder { node: Role(0) };
    let mut pipeline = Pipeline::new(params(Family::Xor2d, 5, encoder)).expect("5 nodes");
    let code = Family::Xor2d.code(5, 0).expect("5 nodes");
    let some = |indices: &[u32]| {
        let mut touched = Touched::none(12);
        indices.iter().for_each(|&index| touched.insert(index));
        touched
    };
    // Node 1 holds data blocks, node 4 none.
    let lost: Vec<u32> = lost_blocks(&code, Roles(1 << 1)).collect();
    let all_but_last = &lost[..lost.len() - 1];
    assert_eq!((lost.len(), lost_blocks(&code, Roles(1 << 4)).count()), (3, 0));
    let there = (0..12).find(|index| !lost.contains(index)).expect("nine of them");
    let whole = Set { missing: Roles(1 << 1), ..set(&pipeline, 3, 9) };
    let part =
        |strategy, indices: &[u32]| Set { strategy, touched: some(indices), ..whole.clone() };
    let good = [
        whole.clone(),
        Set { planner: Planner::Client, ..whole.clone() },
        Set { planner: Planner::Client, position: Position(1), ..whole.clone() },
        Set { missing: Roles(1 << 1 | 1 << 4), ..whole.clone() },
        part(WriteStrategy::ReadModifyWrite, &[there]),
        part(WriteStrategy::ReadModifyWrite, &[there, lost[0]]),
        part(WriteStrategy::Reconstruct, &lost),
        Set { missing: Roles(1 << 4), ..part(WriteStrategy::Reconstruct, &[]) },
        Set { missing: Roles(1 << 4), ..part(WriteStrategy::ReadModifyWrite, &lost) },
    ];
    for set in good {
        assert!(pipeline.plan_of(&set).is_some(), "{set:?}");
    }
    let bad = [
        Set { missing: Roles(1 << 5), ..whole.clone() },
        Set { missing: Roles(1 << 63), ..whole.clone() },
        Set { missing: Roles(0b111), ..whole.clone() },
        Set { missing: Roles(u64::MAX), ..whole.clone() },
        Set { missing: Roles(1 << 3), ..whole.clone() },
        part(WriteStrategy::ReadModifyWrite, &[]),
        part(WriteStrategy::Reconstruct, &[]),
        part(WriteStrategy::Reconstruct, all_but_last),
        part(WriteStrategy::FullStripe, &lost),
    ];
    for set in bad {
        assert!(pipeline.plan_of(&set).is_none(), "{set:?}");
    }
    let mut mirror = Pipeline::new(params(md(Level::Raid1), 2, encoder)).expect("2 nodes");
    let alone = Set { missing: Roles(1), ..set(&mirror, 1, 0) };
    assert!(mirror.plan_of(&alone).is_some());
    assert!(mirror.plan_of(&Set { missing: Roles(3), ..alone }).is_none());
    let mut stripes = Pipeline::new(params(md(Level::Raid0), 3, encoder)).expect("3 nodes");
    let alone = Set { missing: Roles(1), ..set(&stripes, 1, 0) };
    assert!(stripes.plan_of(&alone).is_none());
}

#[test]
fn plans_are_kept_for_a_few_sets_of_missing_roles() {
    let encoder = Planner::Encoder { node: Role(0) };
    let mut pipeline = Pipeline::new(params(Family::Xor2d, 9, encoder)).expect("9 nodes");
    for (a, b) in (1..9).flat_map(|a| (1..9).map(move |b| (a, b))) {
        let set = Set { missing: Roles(1 << a | 1 << b), ..set(&pipeline, 0, 0) };
        let plan = pipeline.plan_of(&set).expect("two may be missing");
        assert!(Arc::ptr_eq(&plan, &pipeline.plan_of(&set).expect("the same")));
        assert!(pipeline.plans.len() <= KEPT_PLANS);
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    let good = params(Family::Xor2d, 5, Planner::Encoder { node: Role(0) });
    let bad = [
        Params { nodes: 35, ..good },
        Params { nodes: 0, ..good },
        Params { chunk_bytes: 1000, ..good },
        Params { stripes: u64::MAX, ..good },
        Params { wide: Slots { count: 0, bytes: 65536 }, ..good },
        Params { wide: Slots { count: 1, bytes: 131_072 }, ..good },
        Params { narrow: Slots { count: 1020, bytes: 4096 }, ..good },
        Params { planner: Planner::Static, nodes: 9, ..good },
    ];
    for params in bad {
        assert!(Pipeline::new(params).is_err(), "{params:?}");
    }
}

#[test]
fn every_array_gets_a_pipeline_of_bounded_memory() {
    let encoder = Planner::Encoder { node: Role(0) };
    for nodes in 4..=34 {
        let chunk = Params::default_chunk_bytes(Family::Xor2d, nodes).expect("4 to 34 nodes");
        let params = Params::for_array(Family::Xor2d, nodes, chunk, 1000, encoder);
        let pipeline = Pipeline::new(params.expect("parameters")).expect("a pipeline");
        let ring = (0..nodes).map(|node| pipeline.ring_bytes(Role(node))).max().expect("nodes");
        assert!(ring < 64 << 20, "{ring} bytes at one of {nodes} nodes");
        // Every node encodes equally often.
        assert_eq!(pipeline.params().wide.count % nodes, 0);
    }
    let level = md(Level::Raid1);
    assert!(Params::for_array(level, 2, 4096, 10, encoder).is_ok());
}
