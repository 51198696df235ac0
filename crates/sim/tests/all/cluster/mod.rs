//! Arrays over nodes: equal seeds give equal runs, mutations are detected; amounts of traffic, and
//! findings of checks.

use braid_array::Role;
use braid_array::events::ArrayEvent;
use braid_cluster::client::SPARE_PATIENCE_MS;
use braid_cluster::ids::Epoch;
use braid_cluster::pipeline::{Params, Slots};
use braid_cluster::{Family, Planner};
use braid_sim::cluster::run::run_seed;
use braid_sim::cluster::session::Session;
use braid_sim::fault::Mutation;
use braid_sim::oracle::Range;
use braid_sim::report::Options;
use braid_sim::workload::Kind;

mod scrub;

#[test]
fn a_seed_is_the_same_run_each_time() {
    let run = |seed| run_seed(seed, Options::default());
    let first: Vec<_> = (1000..1010).map(run).collect();
    let second: Vec<_> = (1000..1010).map(run).collect();
    assert_eq!(first, second);
    assert!(first.windows(2).any(|pair| pair[0] != pair[1]));
}

/// Faults that take many seeds, and from where on one notices.
const RARE: &[(&str, u64)] = &[
    ("ignore-fua", 44),
    ("unrecorded-over", 127),
    ("forget-views", 127),
    ("believe-records", 1315),
    ("lose-replay", 19),
];

#[test]
#[ignore = "long: scripts/test.sh sim"]
fn faults_of_the_world_are_noticed() {
    std::thread::scope(|scope| {
        for &(mutation, name) in Mutation::OVER_NODES {
            scope.spawn(move || {
                let options = Options { mutation: Some(mutation), verbose: false };
                let rare = RARE.iter().find(|(rare, _)| *rare == name);
                let first = rare.map_or(1, |(_, first)| *first);
                let mut seeds = first..first + 1000;
                let noticed = seeds.any(|seed| run_seed(seed, options).is_err());
                assert!(noticed, "{name} goes unnoticed");
            });
        }
    });
}

const CHUNK_BYTES: u64 = 16384;

/// A client of an array over `nodes`.
fn array(family: Family, nodes: u16, stripes: u64, slice_bytes: u32) -> Session {
    let slots = |bytes| Slots { count: 2 * nodes, bytes };
    let mut session = Session::calm(Params {
        session: 0,
        epoch: Epoch::BEFORE_ANY,
        family,
        nodes,
        chunk_bytes: CHUNK_BYTES as u32,
        stripes,
        planner: Planner::Encoder { node: Role(0) },
        wide: slots(slice_bytes),
        narrow: slots(4096),
        reads: slots(slice_bytes),
        silence_ms: 4000,
    });
    session.start_client(&[], false).expect("an array");
    session
}

/// Starts a client of an array of four stripes of xor2d, whose superblock already says active.
fn client(nodes: u16) -> Session {
    let mut session = array(Family::Xor2d, nodes, 4, CHUNK_BYTES as u32);
    write(&mut session, 0, 8);
    session
}

/// Writes and waits; a write that is not taken waits for the next event.
fn write(session: &mut Session, sector: u64, sectors: u64) {
    submit(session, Kind::Write { fua: false }, Range { sector, sectors });
}

fn submit(session: &mut Session, kind: Kind, range: Range) {
    while !session.submit_one(kind, range) {
        assert!(session.step().expect("no fault"), "nothing is due");
    }
    while session.in_flight() > 0 {
        session.step().expect("no fault");
    }
}

/// Bytes put by the client and by the nodes, and bytes of the client's messages, for each byte of
/// data written by these requests of so many sectors.
fn traffic(session: &mut Session, sectors: u64, starts: &[u64]) -> [f64; 3] {
    let count = |session: &Session| {
        let sent = |process| session.cluster.world.network.watch.sent(process);
        let nodes: u64 = session.cluster.nodes.iter().map(|&node| sent(node).put_bytes).sum();
        [sent(session.client).put_bytes, nodes, sent(session.client).message_bytes]
    };
    let before = count(session);
    starts.iter().for_each(|&start| write(session, start, sectors));
    let data = (sectors * 512 * starts.len() as u64) as f64;
    let after = count(session);
    std::array::from_fn(|i| (after[i] - before[i]) as f64 / data)
}

#[test]
fn a_full_stripe_is_sent_once_and_nodes_exchange_the_least_there_is() {
    for (nodes, rows, data) in [(4, 2, 4), (5, 4, 12), (6, 4, 16), (9, 8, 56)] {
        let mut session = client(nodes);
        let stripe = data * CHUNK_BYTES / 512;
        let whole: Vec<u64> = (1..4).map(|number| number * stripe).collect();
        let [client, between, messages] = traffic(&mut session, stripe, &whole);
        let least = f64::from(rows) * f64::from(nodes - 1) / data as f64;
        assert_eq!((client, between), (1.0, least), "{nodes} nodes");
        assert!(messages < 0.02, "{nodes} nodes: {messages} message bytes per byte");
    }
}

#[test]
fn a_small_write_is_sent_once_and_only_differences_travel_between_nodes() {
    for nodes in [4, 5, 8] {
        let mut session = client(nodes);
        let starts: Vec<u64> = (0..20).map(|i| i * 56 % 240 * 8).collect();
        let sectors = session.cluster.layout.sectors();
        let starts: Vec<u64> = starts.into_iter().filter(|start| start + 8 <= sectors).collect();
        // The first that its home cannot encode has the nodes grant a position for that.
        traffic(&mut session, 8, &starts);
        let [client, between, messages] = traffic(&mut session, 8, &starts);
        assert_eq!((client, between), (1.0, 2.0), "{nodes} nodes");
        assert!(messages < 0.1, "{nodes} nodes: {messages} message bytes per byte");
    }
}

/// Disconnects a node from the client, and waits until it is back and complete.
fn lose_and_take_back(session: &mut Session, role: Role) {
    let node = session.cluster.node(role);
    session.cluster.world.disconnect(node, session.client);
    session.promises.killed(role);
    let whole = |session: &mut Session| {
        session.cluster.world.processes[session.client].client().status().degraded == 0
    };
    while whole(session) {
        assert!(session.step().expect("no fault"), "the loss goes unnoticed");
    }
    while !whole(session) {
        assert!(session.step().expect("no fault"), "it does not come back");
    }
}

#[test]
fn a_node_gets_what_it_held_unless_a_chain_leaves_something_out() {
    for (mutation, same) in [(None, true), (Some(Mutation::ShortSum), false)] {
        let mut session = client(5);
        // With FUA: they are stored when they are answered.
        let stripes = (0..4).map(|number| Range { sector: number * 384, sectors: 384 });
        stripes.for_each(|stripe| submit(&mut session, Kind::Write { fua: true }, stripe));
        // What the superblock says changes; the data begin far behind it.
        let data = |session: &Session| {
            let image = session.cluster.disk(Role(1)).image();
            image[image.len() - 16 * CHUNK_BYTES as usize..].to_vec()
        };
        let before = data(&session);
        session.cluster.world.profile.mutation = mutation;
        lose_and_take_back(&mut session, Role(1));
        assert_eq!(data(&session) == before, same, "{mutation:?}");
    }
}

#[test]
fn a_node_gets_what_it_lacks_from_the_others_and_nothing_from_the_client() {
    for (nodes, rows, data) in [(4, 2, 4), (5, 4, 12), (8, 6, 36)] {
        let mut session = client(nodes);
        let stripe = data * CHUNK_BYTES / 512;
        (0..4).for_each(|number| write(&mut session, number * stripe, stripe));
        let sent = |session: &Session, process| {
            session.cluster.world.network.watch.sent(process).put_bytes
        };
        let before: Vec<u64> =
            session.cluster.nodes.iter().map(|&node| sent(&session, node)).collect();
        let client = sent(&session, session.client);
        lose_and_take_back(&mut session, Role(1));
        assert_eq!(sent(&session, session.client), client, "{nodes} nodes");
        let blocks = 4 * rows * CHUNK_BYTES;
        let mut all = 0;
        for (role, (&node, before)) in session.cluster.nodes.iter().zip(before).enumerate() {
            let put = sent(&session, node) - before;
            assert!(if role == 1 { put == 0 } else { put <= blocks }, "{nodes} nodes, {role}");
            all += put;
        }
        // Each block passes through all nodes of an equation but its own.
        assert_eq!(all, u64::from(nodes - 2) * blocks, "{nodes} nodes");
    }
}

/// Bytes that the nodes put and that all say, while a check or repair is under way; and how many
/// places it tells of.
fn scrub(session: &mut Session, repair: bool) -> (u64, u64, usize) {
    let sent = |session: &Session| {
        let all = session.cluster.nodes.iter().chain([&session.client]);
        let all = all.map(|&process| session.cluster.world.network.watch.sent(process));
        all.fold((0, 0), |(puts, said), sent| (puts + sent.put_bytes, said + sent.message_bytes))
    };
    let before = sent(session);
    session.scrub(repair);
    while session.syncing() {
        assert!(session.step().expect("no fault"), "a check stands still");
    }
    let after = sent(session);
    let differs = |event: &ArrayEvent| matches!(event, ArrayEvent::Mismatch { .. });
    let found = std::mem::take(&mut session.scrubs);
    let found = found.iter().filter(|event| differs(event)).count();
    (after.0 - before.0, after.1 - before.1, found)
}

#[test]
fn a_check_brings_digests_to_the_client_and_of_what_does_not_fit_the_contents() {
    for (nodes, rows, data) in [(4, 2, 4), (5, 4, 12), (8, 6, 36)] {
        let mut session = client(nodes);
        let stripe = data * CHUNK_BYTES / 512;
        for number in 0..4 {
            let range = Range { sector: number * stripe, sectors: stripe };
            submit(&mut session, Kind::Write { fua: true }, range);
        }
        let stripe_bytes = u64::from(nodes) * rows * CHUNK_BYTES;
        let digests = 4 * stripe_bytes / 64;
        let (puts, said, found) = scrub(&mut session, false);
        assert_eq!((puts, found), (digests, 0), "{nodes} nodes");
        // Superblocks come in messages.
        assert!(puts + said < 4 * stripe_bytes / 16, "{nodes} nodes: {said} bytes of messages");

        let node = session.cluster.nodes[1];
        let disk = &mut session.cluster.world.processes[node].devices[0].disk;
        let last = disk.sectors() - 65;
        let right = disk.image()[last as usize * 512..][..512].to_vec();
        let mut wrong = right.clone();
        wrong[77] ^= 4;
        disk.put(last, &wrong);
        let (puts, _, found) = scrub(&mut session, false);
        assert_eq!((puts, found), (digests + stripe_bytes, 1), "{nodes} nodes");
        assert_eq!(scrub(&mut session, true).2, 1);
        assert_eq!(session.cluster.disk(Role(1)).image()[last as usize * 512..][..512], right);
        let (puts, _, found) = scrub(&mut session, false);
        assert_eq!((puts, found), (digests, 0), "{nodes} nodes");
    }
}

#[test]
fn a_spare_has_the_role_of_a_member_that_stays_away_and_of_no_other() {
    let mut session = client(5);
    session.offer_spare();
    while session.cluster.world.processes[session.client].client().status().members.len() < 6 {
        assert!(session.step().expect("no fault"), "it is no member");
    }
    write(&mut session, 0, 384);
    lose_and_take_back(&mut session, Role(1));
    assert!(session.spare.is_some(), "the node came back within moments");
    session.cluster.world.kill(session.cluster.nodes[1]);
    session.promises.killed(Role(1));
    let patience = session.cluster.world.now().plus_millis(SPARE_PATIENCE_MS);
    while session.spare.is_some() {
        assert!(session.step().expect("no fault"), "the spare is not used");
    }
    assert!(session.cluster.world.now() >= patience && session.cluster.is_new(Role(1)));
    while session.syncing() {
        assert!(session.step().expect("no fault"), "a rebuild stands still");
    }
    assert_eq!(session.cluster.world.processes[session.client].client().status().degraded, 0);
}
