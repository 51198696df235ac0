//! Slice-sets of every code, schedule and strategy, in any order of events.

use braid_array::Role;
use braid_array::events::ArrayEvent;
use braid_array::level::Level;
use braid_cluster::Family;
use braid_cluster::ids::{Generation, Position, Slot, StripeNo};
use braid_cluster::schedule::Planner;
use braid_cluster::set::{Set, Touched, WriteStrategy};
use braid_cluster::wire::Message;

use super::array::{Array, CHUNK, ENCODER, md};

/// Families, numbers of nodes, and planners.
fn kinds() -> Vec<(Family, u16, Vec<Planner>)> {
    let usual = vec![ENCODER, Planner::Chain];
    let mut kinds = vec![(Family::Xor2d, 5, vec![Planner::Static])];
    for nodes in [4, 5, 6, 9] {
        kinds.push((Family::Xor2d, nodes, usual.clone()));
    }
    let levels = [
        (Level::Raid0, 3),
        (Level::Raid1, 3),
        (Level::Raid4, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
        (Level::Raid10, 4),
    ];
    kinds.extend(levels.map(|(level, nodes)| (md(level), nodes, usual.clone())));
    kinds
}

fn arrays(seed: u64) -> impl Iterator<Item = Array> {
    kinds().into_iter().flat_map(move |(family, nodes, planners)| {
        planners.into_iter().map(move |planner| Array::connected(family, nodes, planner, seed))
    })
}

/// Runs slice-sets for every half of every stripe, created by `make`, as many at a time as there
/// are positions.
fn write_all(array: &mut Array, make: impl Fn(&mut Array, u16, u64) -> Set) {
    let stripes = array.pipeline.params().stripes;
    let halves: Vec<(u64, u32)> = (0..stripes).flat_map(|s| [(s, 0), (s, CHUNK / 2)]).collect();
    for some in halves.chunks(usize::from(array.pipeline.positions())) {
        let mut sets = Vec::new();
        for (position, &(stripe, offset)) in some.iter().enumerate() {
            let mut set = make(array, position as u16, stripe);
            set.offset += offset;
            array.write(&set);
            sets.push(set);
        }
        array.run();
        array.expect_closed(&sets);
    }
    array.verify();
}

#[test]
fn full_stripes_come_out_as_a_direct_encoding() {
    for seed in 0..3 {
        for mut array in arrays(seed) {
            write_all(&mut array, Array::set);
        }
    }
}

#[test]
fn the_client_can_make_the_parities() {
    for mut array in arrays(10) {
        write_all(&mut array, |array, position, stripe| Set {
            planner: Planner::Client,
            ..array.set(position, stripe)
        });
    }
}

/// A part of a half block, some blocks of it.
fn small(array: &mut Array, position: u16, stripe: u64, strategy: WriteStrategy) -> Set {
    let from = array.world.random(8) as u32;
    let to = array.world.random(8) as u32;
    let offset = from.min(to) * 512;
    let len = (from.max(to) - from.min(to) + 1) * 512;
    let touched = array.some();
    Set { strategy, touched, offset, len, ..array.set(position, stripe) }
}

#[test]
fn small_writes_add_differences() {
    for seed in 20..24 {
        for mut array in arrays(seed) {
            write_all(&mut array, Array::set);
            write_all(&mut array, |array, position, stripe| {
                small(array, position, stripe, WriteStrategy::ReadModifyWrite)
            });
        }
    }
}

/// A lone block. If its home encodes it, that alone is told.
fn relayed(array: &mut Array, position: u16, stripe: u64) -> Set {
    let mut touched = Touched::none(array.pipeline.data_blocks());
    let mut set = array.set(position, stripe);
    let plan = array.pipeline.plan_of(&set).expect("it may be opened");
    let encoder = set.position.encoder(5);
    let own = plan.code.data().iter().position(|cell| cell.node == encoder);
    touched.insert(own.unwrap_or(0) as u32);
    set.relay = own.is_some();
    Set { strategy: WriteStrategy::ReadModifyWrite, touched, ..set }
}

#[test]
fn a_node_that_alone_gets_slices_tells_the_others() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 25);
    write_all(&mut array, Array::set);
    write_all(&mut array, relayed);
    // The client may say so as well, before or after: as when it does not rely on that node.
    let own = (0..5).find(|&position| relayed(&mut array, position, 0).relay);
    let position = own.expect("a node with data");
    for first in [true, false] {
        let set = relayed(&mut array, position, 0);
        let plan = array.pipeline.plan_of(&set).expect("it may be opened");
        let home = set.position.encoder(5);
        let others = plan.involved(set.strategy, &set.touched).into_iter();
        let others: Vec<Role> = others.filter(|&role| role != home).collect();
        assert_eq!(others.len(), 2);
        if first {
            others.iter().for_each(|&role| array.say(role, &set));
            array.world.run();
        }
        array.write(&set);
        if !first {
            array.world.run();
            others.iter().for_each(|&role| array.say(role, &set));
        }
        array.run();
        array.expect_closed(&[set]);
    }
    array.verify();
}

#[test]
fn large_writes_read_the_rest() {
    for seed in 30..33 {
        for mut array in arrays(seed) {
            write_all(&mut array, Array::set);
            write_all(&mut array, |array, position, stripe| {
                small(array, position, stripe, WriteStrategy::Reconstruct)
            });
        }
    }
}

#[test]
fn copies_need_no_old_content() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid10] {
        for planner in [ENCODER, Planner::Chain] {
            let mut array = Array::connected(md(level), 4, planner, 5);
            write_all(&mut array, |array, position, stripe| {
                small(array, position, stripe, WriteStrategy::FullStripe)
            });
        }
    }
}

#[test]
fn parities_are_made_right_again() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 6);
    write_all(&mut array, Array::set);
    // Node 4 of 5 holds parities only.
    array.world.disk(4, "v").image_mut()[16 * 512..].fill(0xaa);
    assert_ne!(array.wrong_rows(0, Role(4)), []);
    write_all(&mut array, |array, position, stripe| Set {
        strategy: WriteStrategy::Reconstruct,
        touched: Touched::none(array.pipeline.data_blocks()),
        ..array.set(position, stripe)
    });
}

#[test]
fn what_is_to_be_durable_is_written_so() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 7);
    let set = Set { fua: true, ..array.set(0, 3) };
    array.write(&set);
    array.run();
    array.expect_closed(&[set]);
    // Four rows on each node.
    assert!(array.world.sites().all(|site| array.world.counts(site).durable_writes == 4));
}

#[test]
fn a_lost_neighbour_ends_what_needs_it_and_reads_go_on() {
    for seed in 0..40 {
        let mut array = Array::connected(Family::Xor2d, 5, ENCODER, seed);
        let first: Vec<Set> = (0..5).map(|position| array.set(position, 1)).collect();
        for set in &first {
            array.write(set);
        }
        for _ in 0..array.world.random(100) {
            array.world.step();
        }
        array.world.break_link(0, 2);
        array.run();
        // A later one: its slices may be under way when the client hears of it.
        let later = array.set(5, 2);
        array.write(&later);
        array.run();
        let mut closed = Vec::new();
        for (_, message) in std::mem::take(&mut array.world.heard) {
            match message {
                Message::Finished { position, generation: Generation(1), .. } => {
                    closed.push(position);
                }
                Message::NeighbourLost { role } => assert!([0, 2].contains(&role.0)),
                other => panic!("{other:?}"),
            }
        }
        // All end at all nodes, and the one after the loss was not stored.
        for position in 0..6 {
            let here = closed.iter().filter(|&&at| at == Position(position));
            assert_eq!(here.count(), 5, "position {position}, seed {seed}");
        }
        let from = 16 * 512 + array.pipeline.member_byte(StripeNo(2), 0, 0) as usize;
        let stored = |volume: &[u8]| volume[from..].iter().any(|&byte| byte != 0);
        let mut sites = array.world.sites();
        assert!(!sites.any(|site| stored(array.world.volume(site, "v"))), "seed {seed}");
        assert!(array.world.all_idle());
        let peer = array.peers[0];
        array.world.send(peer, &Message::Read { slot: Slot(1), sector: 16, bytes: 512, to: 4096 });
        array.run();
        assert_eq!(array.world.placed, [(peer, 1)]);
    }
}

#[test]
fn a_store_that_fails_is_told_and_harms_no_parity() {
    for strategy in [WriteStrategy::FullStripe, WriteStrategy::ReadModifyWrite] {
        let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 8);
        write_all(&mut array, Array::set);
        array.world.disk(1, "v").break_sector(16);
        let mut touched = Touched::none(12);
        let code = Family::Xor2d.code(5, 0).expect("a code");
        let mine = |cell: &&braid_array::code::Cell| cell.node == Role(1) && cell.row == 0;
        let index = code.data().iter().position(|cell| mine(&cell)).expect("node 1 holds data");
        touched.insert(index as u32);
        let touched =
            if strategy == WriteStrategy::FullStripe { Touched::all(12) } else { touched };
        let set = Set { strategy, touched, ..array.set(0, 0) };
        array.write(&set);
        array.run();
        let heard = std::mem::take(&mut array.world.heard);
        let ok = |(peer, message): &(_, Message)| match message {
            Message::Finished { ok, .. } => (array.peers[1] == *peer, *ok),
            other => panic!("{other:?}"),
        };
        let told: Vec<(bool, bool)> = heard.iter().map(ok).collect();
        assert!(told.contains(&(true, false)), "{strategy:?}: {told:?}");
        let plan = array.pipeline.plan_of(&set).expect("a plan");
        assert_eq!(told.len(), plan.involved(strategy, &set.touched).len());
        if strategy == WriteStrategy::FullStripe {
            // All others are fine: the slice itself was there.
            assert!(told.iter().all(|&(own, ok)| own != ok));
            assert!((2..5).all(|node| array.wrong_rows(0, Role(node)).is_empty()));
        } else {
            // Nothing was added to any parity: the difference is not known.
            assert_eq!(told.iter().filter(|(_, ok)| *ok).count(), 0, "{told:?}");
        }
    }
}

#[test]
fn a_store_without_room_says_so() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 8);
    array.world.disk(1, "v").set_full(true);
    let set = array.set(0, 0);
    array.write(&set);
    array.run();
    let closed = |message: &Message| matches!(message, Message::Finished { ok: false, .. });
    let lost = array.world.heard.iter().filter(|(_, message)| closed(message));
    assert_eq!(lost.map(|(peer, _)| *peer).collect::<Vec<_>>(), [array.peers[1]]);
    let room = |event: &ArrayEvent| match event {
        ArrayEvent::Remark { kind: "storage", text } => text.contains("make room"),
        _ => false,
    };
    assert!(array.world.said(1).iter().any(room), "{:?}", array.world.said(1));
}

#[test]
fn every_slice_set_ends_at_every_node() {
    let mut bad = 0;
    for seed in 0..10 {
        for mut array in arrays(seed) {
            let nodes = u64::from(array.pipeline.params().nodes);
            let victim = array.world.random(nodes) as usize;
            for _ in 0..2 {
                let sector = 16 + array.world.random(2 * nodes * u64::from(CHUNK) / 512);
                array.world.disk(victim, "v").break_sector(sector);
            }
            let mut parts = 0;
            for position in 0..array.pipeline.positions() {
                let strategy = [WriteStrategy::ReadModifyWrite, WriteStrategy::Reconstruct]
                    [array.world.random(2) as usize];
                let set = small(&mut array, position, u64::from(position), strategy);
                array.write(&set);
                let plan = array.pipeline.plan_of(&set).expect("it may be opened");
                parts += plan.involved(strategy, &set.touched).len();
            }
            if array.world.random(2) == 0 {
                for _ in 0..array.world.random(300) {
                    array.world.step();
                }
                let other = (victim + 1 + array.world.random(nodes - 1) as usize) % nodes as usize;
                array.world.break_link(victim, other);
            }
            array.run();
            assert!(array.world.all_idle());
            for (peer, message) in std::mem::take(&mut array.world.heard) {
                match message {
                    Message::Finished { ok, .. } => bad += usize::from(!ok),
                    Message::NeighbourLost { .. } => continue,
                    other => panic!("{peer:?} says {other:?}"),
                }
                parts -= 1;
            }
            assert_eq!(parts, 0, "seed {seed}");
        }
    }
    assert!(bad > 400, "{bad}");
}
