//! The simulated fabric under small scripted machines: it keeps its guarantees and no others, and
//! detects machines that rely on more.

mod mirrors;

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId, VolumeOp};
use braid_array::{Action, Buf, IoId, IoOp};

use super::World;
use super::process::POISON;
use super::script::{self, Heard};
use crate::disk::Disk;
use crate::fault::FaultProfile;
use crate::rng::Rng;
use crate::trace::Trace;

const PEER: PeerId = PeerId(7);

fn world(seed: u64) -> World {
    let profile = FaultProfile {
        disk_nanos: 100_000,
        net_nanos: 50_000,
        compute_nanos: 10_000,
        slow_permille: 20,
        ..FaultProfile::CALM
    };
    World::new(Rng::new(seed), profile, Trace::new(false))
}

fn start(
    world: &mut World,
    name: &str,
    begin: Vec<Action>,
    rule: impl FnMut(&Event) -> Vec<Action> + Send + 'static,
) -> (usize, Heard) {
    script::start(world, name, 64 << 10, begin, rule)
}

fn connect() -> Vec<Action> {
    vec![Action::Fabric(FabricOp::Connect { peer: PEER, address: "b".to_owned() })]
}

const fn at(offset: u64) -> Buf {
    Buf { offset, len: 4096 }
}

fn put(io: u64, from: u64, to: u64, imm: u32) -> Action {
    Action::Fabric(FabricOp::Put { io: IoId(io), peer: PEER, from: at(from), to, imm })
}

fn fill(byte: u8, offset: u64) -> Action {
    Action::Store { buf: at(offset), bytes: vec![byte; 4096] }
}

fn say(peer: PeerId, word: u8) -> Action {
    Action::Fabric(FabricOp::Send { peer, bytes: vec![word] })
}

fn is_done(event: &Event, wanted: u64) -> bool {
    matches!(event, Event::Done { io, .. } if io.0 == wanted)
}

fn run(world: &mut World) {
    while world.step() {
        assert!(world.steps < 10_000, "no end");
    }
}

const fn connected(event: &Event) -> bool {
    matches!(event, Event::Fabric(FabricEvent::Connected { .. }))
}

/// Returns the immediate values of the puts announced to the receiver.
fn arrivals(heard: &Heard) -> Vec<u32> {
    let imm = |event: &Event| match event {
        Event::Fabric(FabricEvent::Placed { imm, .. }) => Some(*imm),
        _ => None,
    };
    heard.lock().unwrap().iter().filter_map(imm).collect()
}

#[test]
fn puts_arrive_whole_in_any_order_and_messages_in_theirs() {
    let mut orders = Vec::new();
    let mut before = 0;
    let mut after = 0;
    for seed in 0..200 {
        let mut world = world(seed);
        let (b, heard) = start(&mut world, "b", Vec::new(), |_| Vec::new());
        let begin = [fill(1, 0), fill(2, 4096)].into_iter().chain(connect()).collect();
        let (_, told) = start(&mut world, "a", begin, |event| {
            if connected(event) {
                vec![
                    put(1, 0, 8192, 11),
                    put(2, 4096, 12288, 12),
                    say(PEER, 1),
                    say(PEER, 2),
                    say(PEER, 3),
                ]
            } else {
                Vec::new()
            }
        });
        run(&mut world);
        assert!(world.faults.iter().all(|fault| fault.contains("says")), "{:?}", world.faults);
        assert_eq!(world.processes[b].bytes(at(8192)), [1; 4096]);
        assert_eq!(world.processes[b].bytes(at(12288)), [2; 4096]);
        orders.push(arrivals(&heard));
        let words: Vec<u8> = heard.lock().unwrap().iter().filter_map(word).collect();
        assert_eq!(words, [1, 2, 3]);
        assert!(matches!(heard.lock().unwrap()[0], Event::Fabric(FabricEvent::Accepted { .. })));
        let done = told.lock().unwrap().iter().filter(|event| is_done(event, 1)).count();
        assert_eq!(done, 1);
        let first = heard.lock().unwrap().iter().position(|event| word(event).is_some());
        let placed = |event: &Event| matches!(event, Event::Fabric(FabricEvent::Placed { .. }));
        let placed = heard.lock().unwrap().iter().position(placed);
        before += usize::from(first < placed);
        after += usize::from(placed < first);
    }
    assert!(orders.contains(&vec![11, 12]) && orders.contains(&vec![12, 11]));
    assert!(before > 10 && after > 10, "{before} {after}");
}

fn word(event: &Event) -> Option<u8> {
    match event {
        Event::Fabric(FabricEvent::Message { bytes, .. }) => Some(bytes[0]),
        _ => None,
    }
}

/// Runs seeds of a pair of scripts; how many end with a fault that says this.
fn caught(what: &str, begin: &[Action], rule: fn(&Event) -> Vec<Action>) -> usize {
    let mut caught = 0;
    for seed in 0..50 {
        let mut world = world(seed);
        start(&mut world, "b", Vec::new(), |_| Vec::new());
        let begin = begin.iter().cloned().chain(connect()).collect();
        start(&mut world, "a", begin, rule);
        run(&mut world);
        caught += usize::from(world.faults.iter().any(|fault| fault.contains(what)));
    }
    caught
}

#[test]
fn a_source_reused_before_its_put_is_answered_is_noticed() {
    let early = caught("a put of 0+4096 is not done", &[fill(1, 0)], |event| {
        if connected(event) { vec![put(1, 0, 8192, 1), fill(2, 0)] } else { Vec::new() }
    });
    assert_eq!(early, 50);
    let in_time = caught("", &[fill(1, 0)], |event| match event {
        event if connected(event) => vec![put(1, 0, 8192, 1)],
        event if is_done(event, 1) => vec![fill(2, 0)],
        _ => Vec::new(),
    });
    assert_eq!(in_time, 0);
}

#[test]
fn puts_over_each_other_outside_or_to_nobody_are_noticed() {
    let over = caught("a put's arrival", &[], |event| {
        if connected(event) { vec![put(1, 0, 8192, 1), put(2, 4096, 10240, 2)] } else { Vec::new() }
    });
    assert_eq!(over, 50);
    let outside = caught("outside the arena", &[], |event| {
        if connected(event) { vec![put(1, 0, 62 << 10, 1)] } else { Vec::new() }
    });
    assert_eq!(outside, 50);
    let nobody = caught("not connected", &[put(1, 0, 0, 1)], |_| Vec::new());
    assert_eq!(nobody, 50);
}

#[test]
fn a_target_holds_poison_until_it_is_placed() {
    let mut seen = 0;
    for seed in 0..50 {
        let mut world = world(seed);
        let (b, heard) = start(&mut world, "b", vec![fill(9, 8192)], |_| Vec::new());
        let begin = [fill(1, 0)].into_iter().chain(connect()).collect();
        start(&mut world, "a", begin, |event| {
            if connected(event) { vec![put(1, 0, 8192, 1)] } else { Vec::new() }
        });
        while world.step() {
            if arrivals(&heard).is_empty() {
                seen += usize::from(world.processes[b].bytes(at(8192))[0] == POISON);
            }
        }
        assert_eq!(world.processes[b].bytes(at(8192)), [1; 4096]);
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_loss_comes_once_and_after_the_answers_to_puts() {
    for seed in 0..200 {
        let mut world = world(seed);
        let (b, _) = start(&mut world, "b", Vec::new(), |_| Vec::new());
        let (_, heard) = start(&mut world, "a", connect(), |event| match event {
            event if connected(event) => (0..8).map(|i| put(i, i << 12, i << 12, 0)).collect(),
            _ => Vec::new(),
        });
        for _ in 0..seed % 20 {
            world.step();
        }
        world.kill(b);
        run(&mut world);
        let heard = heard.lock().unwrap();
        let lost = |event: &Event| matches!(event, Event::Fabric(FabricEvent::Lost { .. }));
        assert_eq!(heard.iter().filter(|event| lost(event)).count(), 1);
        assert!(heard.last().is_some_and(lost));
        let done = heard.iter().filter(|event| matches!(event, Event::Done { .. })).count();
        assert_eq!(done, if heard.iter().any(connected) { 8 } else { 0 });
    }
}

#[test]
fn after_a_hang_up_what_was_sent_arrives_and_nothing_comes_back() {
    for seed in 0..100 {
        let mut world = world(seed);
        let (_, theirs) = start(&mut world, "b", Vec::new(), |event| match event {
            Event::Fabric(FabricEvent::Accepted { peer, .. }) => vec![say(*peer, 5)],
            _ => Vec::new(),
        });
        let (_, ours) = start(&mut world, "a", connect(), |event| {
            if connected(event) {
                vec![
                    put(1, 0, 8192, 1),
                    say(PEER, 1),
                    Action::Fabric(FabricOp::HangUp { peer: PEER }),
                ]
            } else {
                Vec::new()
            }
        });
        run(&mut world);
        let ours = ours.lock().unwrap();
        assert_eq!(ours.len(), 2, "connected, and the put is answered: {ours:?}");
        assert!(is_done(&ours[1], 1));
        assert_eq!(arrivals(&theirs), [1]);
        let theirs = theirs.lock().unwrap();
        assert_eq!(theirs.iter().filter_map(word).collect::<Vec<_>>(), [1]);
        assert!(matches!(theirs.last(), Some(Event::Fabric(FabricEvent::Lost { .. }))));
    }
}

#[test]
fn nobody_at_an_address_is_a_loss() {
    let mut world = world(1);
    let (_, heard) = start(&mut world, "a", connect(), |_| Vec::new());
    run(&mut world);
    let heard = heard.lock().unwrap();
    assert!(matches!(heard[..], [Event::Fabric(FabricEvent::Lost { peer: PEER, .. })]));
}

#[test]
fn volumes_are_opened_alone_and_written_to() {
    let mut world = world(1);
    let open = |io| Action::Volume { io: IoId(io), op: VolumeOp::Open { name: "v".to_owned() } };
    let (a, heard) = start(&mut world, "a", vec![fill(3, 0), open(1)], move |event| match event {
        Event::Volume { io: IoId(1), result: Ok(volume) } => {
            let write = IoOp::Write { sector: 8, buf: at(0), fua: true, fill: false };
            let io = Action::Io { io: IoId(3), member: volume.member, op: write };
            vec![open(2), io]
        }
        _ => Vec::new(),
    });
    world.processes[a].keep("v", Disk::new(64));
    run(&mut world);
    assert_eq!(world.faults, [""; 0]);
    let refused = |event: &Event| matches!(event, Event::Volume { io: IoId(2), result: Err(_) });
    assert!(heard.lock().unwrap().iter().any(refused));
    assert_eq!(world.processes[a].volume("v").disk.image()[8 * 512], 3);
}

#[test]
fn equal_seeds_are_equal_runs() {
    let hash = |seed| {
        let mut world = world(seed);
        start(&mut world, "b", Vec::new(), |_| Vec::new());
        start(&mut world, "a", connect(), |event| {
            if connected(event) {
                (0..6).map(|i| put(i, i << 12, i << 12, 0)).collect()
            } else {
                Vec::new()
            }
        });
        run(&mut world);
        world.trace.hash()
    };
    assert_eq!(hash(5), hash(5));
    assert_ne!(hash(5), hash(6));
}

#[test]
fn a_put_where_nobody_was_admitted_is_noticed() {
    for (to, noticed) in [(0, false), (28 << 10, false), (30 << 10, true), (32 << 10, true)] {
        let mut world = world(3);
        let (b, heard) = start(&mut world, "b", Vec::new(), |_| Vec::new());
        start(&mut world, "a", connect(), move |event| {
            if connected(event) { vec![put(1, 0, to, 11)] } else { Vec::new() }
        });
        run(&mut world);
        let told = world.faults.iter().any(|fault| fault.contains("admitted to 0..32768"));
        assert_eq!((told, arrivals(&heard).is_empty()), (noticed, noticed), "{:?}", world.faults);
        assert!(!noticed || world.processes[b].arena.iter().all(|&byte| byte == POISON));
    }
}
