//! Check and repair against nodes that answer as the tests say.

use braid_array::events::{SyncAction, SyncEnd};
use braid_array::{Checked, Compute, IoId, Role};

use super::super::engine::{WantedBlock, Whom};
use super::*;
use crate::Set;
use crate::ids::{Slot, StripeNo};

/// Digests and contents that nodes were asked for, by role.
fn asked(actions: &[Action]) -> Vec<(u16, Slot)> {
    let digest = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => match Message::decode(bytes) {
            Ok((_, Message::Digest { slot, .. })) => Some((*peer, slot)),
            _ => None,
        },
        _ => None,
    };
    let all = actions.iter().filter_map(digest).chain(reads(actions));
    all.map(|(peer, slot)| (peer.0 as u16, slot)).collect()
}

/// Stripes and modes of the slice-sets that are opened.
fn opened(actions: &[Action]) -> Vec<Set> {
    let open = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { bytes, .. }) => match Message::decode(bytes) {
            Ok((_, Message::BeginSet { set })) => Some(set),
            _ => None,
        },
        _ => None,
    };
    let mut sets: Vec<Set> = actions.iter().filter_map(open).collect();
    sets.dedup();
    sets
}

/// Begins a check or repair. Returns its first actions.
fn scrub(client: &mut Client, repair: bool) -> Vec<Action> {
    let id = CommandId(1);
    let command = Command::Scrub { repair };
    client.handle(Instant(3), Event::Command { id, command });
    run(client, |_, _| false)
}

fn put_all(client: &mut Client, asked: &[(u16, Slot)]) {
    let of = |&(role, slot): &(u16, Slot)| (PeerId(role.into()), slot);
    placed(client, &asked.iter().map(of).collect::<Vec<_>>());
}

/// The comparisons that a batch asks for, and of how many bytes; everything else is done.
fn comparisons(client: &mut Client) -> (Vec<(IoId, u32)>, Vec<Action>) {
    let mut wanted = Vec::new();
    let mut rest = Vec::new();
    loop {
        let batch = run(client, |_, _| false);
        if batch.is_empty() {
            return (wanted, rest);
        }
        for action in batch {
            match action {
                Action::Compute { io, compute: Compute::Compare { a, b } } => {
                    assert_eq!(a.len, b.len);
                    wanted.push((io, a.len));
                }
                Action::Compute { io, compute: Compute::Check { data, p, .. } } => {
                    assert!(data.iter().all(|data| data.len == p.len));
                    wanted.push((io, p.len));
                }
                Action::Compute { io, compute: Compute::Sum { inputs, outputs, .. } } => {
                    assert!(inputs.iter().all(|input| input.len == outputs[0].len));
                    client.handle(Instant(4), Event::Done { io, result: Ok(Outcome::Done) });
                }
                action => rest.push(action),
            }
        }
    }
}

fn differs(client: &mut Client, io: IoId, p_differs: u64) {
    let outcome = Outcome::Checked(Checked { p_differs, ..Checked::default() });
    client.handle(Instant(4), Event::Done { io, result: Ok(outcome) });
}

/// Answers everything until nothing more comes, with parities that fit. Returns all actions.
fn goes_well(client: &mut Client, first: Vec<Action>) -> Vec<Action> {
    goes(client, first, &[])
}

/// The same, with these results of the first comparisons by their length, and parities that fit
/// otherwise.
fn goes(client: &mut Client, first: Vec<Action>, found: &[(u32, u64)]) -> Vec<Action> {
    let mut found: BTreeMap<u32, u64> = found.iter().copied().collect();
    let mut all = first;
    let mut seen = 0;
    loop {
        put_all(client, &asked(&all[seen..]));
        seen = all.len();
        let (wanted, rest) = comparisons(client);
        for &(io, len) in &wanted {
            differs(client, io, found.remove(&len).unwrap_or(0));
        }
        all.extend(rest);
        if seen == all.len() && wanted.is_empty() {
            return all;
        }
    }
}

/// Returns the reported mismatches: sector, sectors and member.
fn told(actions: &[Action]) -> Vec<(u64, u32, Option<MemberId>)> {
    let mismatch = |action: &Action| match action {
        Action::Notify(ArrayEvent::Mismatch { array_sector, sectors, member, .. }) => {
            Some((*array_sector, *sectors, *member))
        }
        _ => None,
    };
    actions.iter().filter_map(mismatch).collect()
}

fn ended(actions: &[Action]) -> Option<(SyncAction, u64, SyncEnd)> {
    actions.iter().find_map(|action| match action {
        Action::Notify(ArrayEvent::SyncFinished { action, mismatch_sectors, end }) => {
            Some((*action, *mismatch_sectors, end.clone()))
        }
        _ => None,
    })
}

#[test]
fn a_check_of_what_fits_asks_for_digests_and_gives_its_buffers_back() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let free = client.parts.shared.free_buffers();
    let begun = scrub(&mut client, false);
    assert!(client.parts.shared.free_buffers() < free);
    let all = goes_well(&mut client, begun);
    assert_eq!(asked(&all).len(), 30, "three blocks of each of ten stripes");
    assert_eq!(reads(&all), []);
    assert_eq!(ended(&all), Some((SyncAction::Check, 0, SyncEnd::Complete)));
    assert_eq!((client.parts.shared.free_buffers(), opened(&all).len()), (free, 0));
    assert!(client.parts.engine.compares_nothing());
}

#[test]
fn where_digests_do_not_fit_the_contents_are_read_and_say_what_is_true() {
    for (contents, expected) in [(0, 0), (1, 1)] {
        let mut client = client(Planner::Encoder { node: Role(0) });
        run(&mut client, |_, _| false);
        let free = client.parts.shared.free_buffers();
        let begun = scrub(&mut client, false);
        let all = goes(&mut client, begun, &[(64, 1), (4096, contents)]);
        assert_eq!((asked(&all).len(), reads(&all).len()), (33, 3));
        assert_eq!(told(&all).len(), expected);
        let sectors = 8 * expected as u64;
        assert_eq!(ended(&all), Some((SyncAction::Check, sectors, SyncEnd::Complete)));
        assert_eq!(client.parts.shared.free_buffers(), free);
    }
}

#[test]
fn a_node_lost_before_the_contents_are_read_ends_a_check() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let free = client.parts.shared.free_buffers();
    let begun = scrub(&mut client, false);
    put_all(&mut client, &asked(&begun));
    let (wanted, mut rest) = comparisons(&mut client);
    lose(&mut client, Role(1));
    wanted.iter().for_each(|&(io, _)| differs(&mut client, io, 1));
    rest.extend(run(&mut client, |_, _| false));
    let all = goes_well(&mut client, rest);
    assert_eq!((reads(&all), told(&all)), (vec![], vec![]));
    let (action, sectors, end) = ended(&all).expect("an end");
    assert_eq!((action, sectors), (SyncAction::Check, 0));
    assert!(matches!(end, SyncEnd::Interrupted { .. }), "{end:?}");
    assert_eq!(client.parts.shared.free_buffers(), free);
    assert!(client.parts.engine.compares_nothing());
}

#[test]
fn a_check_gets_the_buffers_of_what_is_kept_for_readers() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let room = 10;
    client.parts.shared.leave_buffers(room);
    // As when a node was away, which is back.
    for stripe in 0..10 {
        let whom = Whom::Request(RequestId(99));
        let wanted = vec![WantedBlock { index: 0, into: Buf { offset: 0, len: 4096 }, whom }];
        let (engine, mut cx) = client.parts.engine();
        engine.decode(&mut cx, (StripeNo(stripe), 0, 4096), wanted);
        let (_, rest) = compute(&mut client);
        placed(&mut client, &reads(&rest));
        compute(&mut client);
    }
    assert_eq!((client.parts.engine.kept_decodings(), client.parts.shared.free_buffers()), (10, 0));
    let begun = scrub(&mut client, false);
    let all = goes_well(&mut client, begun);
    assert_eq!(ended(&all), Some((SyncAction::Check, 0, SyncEnd::Complete)));
}

#[test]
fn a_write_waits_for_the_comparison_of_its_slice_alone() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let begun = scrub(&mut client, false);
    submit(&mut client, Op::Write { fua: false }, 0, STRIPE_SECTORS);
    assert_eq!(opened(&run(&mut client, |_, _| false)), []);
    let buf = Buf { offset: 1 << 16, len: 8192 };
    let op = Op::Write { fua: false };
    let id = RequestId(8);
    let sector = 9 * STRIPE_SECTORS;
    let request = Request { id, op, sector, sectors: STRIPE_SECTORS, buf };
    client.submit(Instant(2), request).expect("the array runs");
    let sets = opened(&run(&mut client, |_, _| false));
    assert_eq!(sets.iter().map(|set| set.stripe.0).collect::<Vec<_>>(), [9]);
    put_all(&mut client, &asked(&begun));
    let (wanted, mut rest) = comparisons(&mut client);
    wanted.iter().for_each(|&(io, _)| differs(&mut client, io, 0));
    rest.extend(run(&mut client, |_, _| false));
    assert!(
        opened(&rest)
            .iter()
            .any(|set| set.stripe == StripeNo(0) && set.strategy == WriteStrategy::FullStripe)
    );
}

#[test]
fn the_slice_set_of_a_repair_comes_before_a_write_that_waited() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let begun = scrub(&mut client, true);
    submit(&mut client, Op::Write { fua: false }, 0, STRIPE_SECTORS);
    // Two read slots at each node: digests of stripes 0 and 1, and of those after them.
    put_all(&mut client, &asked(&begun));
    let (wanted, rest) = comparisons(&mut client);
    differs(&mut client, wanted[0].0, 1);
    put_all(&mut client, &asked(&rest));
    let (others, rest) = comparisons(&mut client);
    others.iter().for_each(|&(io, _)| differs(&mut client, io, 0));
    assert_eq!(reads(&rest).len(), 3, "the contents of stripe 0");
    put_all(&mut client, &asked(&rest));
    let (wanted, _) = comparisons(&mut client);
    differs(&mut client, wanted[0].0, 1);
    let after = run(&mut client, |_, _| false);
    let sets = opened(&after);
    assert_eq!(sets.len(), 1, "{sets:?}");
    let stripe = sets[0].stripe.0;
    let strategy = sets[0].strategy;
    let touched = sets[0].touched.count();
    assert_eq!((stripe, strategy, touched), (0, WriteStrategy::Reconstruct, 0));
    assert_eq!(told(&after), [(0, 8, None)]);
    store(&mut client, (sets[0].position, sets[0].generation));
    let sets = opened(&run(&mut client, |_, _| false));
    assert!(
        sets.iter()
            .any(|set| set.stripe == StripeNo(0) && set.strategy == WriteStrategy::FullStripe),
        "{sets:?}"
    );
}

#[test]
fn what_cannot_be_read_is_told_and_the_check_goes_on() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let free = client.parts.shared.free_buffers();
    let begun = scrub(&mut client, false);
    let (bad, good): (Vec<_>, Vec<_>) = asked(&begun).into_iter().partition(|&(role, _)| role == 0);
    assert_eq!(bad.len(), 2, "of stripes 0 and 1");
    hear(&mut client, Role(0), &Message::ReadFailed { slot: bad[0].1 });
    put_all(&mut client, &bad[1..]);
    put_all(&mut client, &good);
    let all = goes_well(&mut client, Vec::new());
    let end = SyncEnd::Unread { sectors: 8 };
    assert_eq!(ended(&all), Some((SyncAction::Check, 0, end)));
    let places = client.status().unreadable;
    assert_eq!((places[0].array_sector, places[0].sectors), (0, 8));
    assert_eq!(places[0].members, [MemberId(0)]);
    assert_eq!(client.parts.shared.free_buffers(), free);
}

#[test]
fn a_node_lost_meanwhile_ends_a_check_and_keeps_nothing() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let free = client.parts.shared.free_buffers();
    let begun = scrub(&mut client, false);
    let others: Vec<_> = asked(&begun).into_iter().filter(|&(role, _)| role != 1).collect();
    lose(&mut client, Role(1));
    let next = run(&mut client, |_, _| false);
    put_all(&mut client, &others);
    let mut all = goes_well(&mut client, next.clone());
    all.extend(next);
    let (action, sectors, end) = ended(&all).expect("an end");
    assert_eq!((action, sectors), (SyncAction::Check, 0));
    assert!(matches!(end, SyncEnd::Interrupted { .. }), "{end:?}");
    assert_eq!(client.parts.shared.free_buffers(), free);
    assert!(client.parts.engine.compares_nothing());
}
