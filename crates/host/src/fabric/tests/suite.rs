//! The tests that every fabric passes.

use std::collections::BTreeSet;

use super::*;
use crate::testing::deaf_address;

macro_rules! tests {
    ($($(#[$attribute:meta])? $name:ident: $make:expr, $tests:tt;)*) => {$(
        mod $name {
            const MAKE: super::Make = $make;
            tests! { @each $(#[$attribute])? $tests }
        }
    )*};
    (@each #[$attribute:meta] [$($test:ident)*]) => {$(
        #[test]
        #[$attribute]
        fn $test() {
            super::$test(MAKE);
        }
    )*};
    (@each [$($test:ident)*]) => {$(
        #[test]
        fn $test() {
            super::$test(MAKE);
        }
    )*};
}

/// Tests in which all sides close properly.
macro_rules! suite {
    ($($(#[$attribute:meta])? $name:ident: $make:expr;)*) => {
        tests! { $($(#[$attribute])? $name: $make, [
            messages_arrive_in_order
            puts_arrive_whole_both_ways_at_once
            who_is_not_there_is_lost
            strangers_are_told_apart
            what_was_sent_arrives_after_hanging_up
            who_takes_nothing_is_not_waited_for_when_cut
            an_ending_engine_sends_the_rest
        ];)* }
    };
}

/// The tests in which a connection breaks.
macro_rules! rough {
    ($($(#[$attribute:meta])? $name:ident: $make:expr;)*) => {
        tests! { $($(#[$attribute])? $name: $make, [
            a_put_beyond_the_arena_ends_the_connection
            a_put_beside_the_window_ends_the_connection
            a_lost_peer_answers_its_puts_first
            hanging_up_while_dialling_is_silent
        ];)* }
    };
}

suite! {
    tcp_by_uring: super::PLAIN;
    tcp_by_threads: super::Make { threads: true, ..super::PLAIN };
    tcp_sealed: super::Make { keyed: true, ..super::PLAIN };
    tcp_encrypted: super::Make { keyed: true, encrypts: true, ..super::PLAIN };
}

rough! {
    tcp_by_uring_rough: super::PLAIN;
    tcp_by_threads_rough: super::Make { threads: true, ..super::PLAIN };
    tcp_sealed_rough: super::Make { keyed: true, ..super::PLAIN };
    tcp_encrypted_rough: super::Make { keyed: true, encrypts: true, ..super::PLAIN };
}

#[cfg(ofi)]
suite! {
    ofi_tcp: super::Make { fabric: "ofi:tcp", ..super::PLAIN };
    ofi_tcp_by_threads: super::Make { fabric: "ofi:tcp", threads: true, ..super::PLAIN };
    ofi_tcp_keyed: super::Make { fabric: "ofi:tcp", keyed: true, ..super::PLAIN };
    ofi_shm: super::Make { fabric: "ofi:shm", ..super::PLAIN };
    #[ignore = "needs an RDMA device; scripts/rxe-test.sh has one"]
    ofi_verbs: super::Make { fabric: "ofi:verbs", ..super::PLAIN };
}

// Not over shm: ends of it in one process use each other's memory directly, and when one is closed
// before the other has looked at everything, libfabric 1.17 follows pointers into what is gone.
// Processes have mappings of their own.
#[cfg(ofi)]
rough! {
    ofi_tcp_rough: super::Make { fabric: "ofi:tcp", ..super::PLAIN };
    ofi_tcp_by_threads_rough: super::Make { fabric: "ofi:tcp", threads: true, ..super::PLAIN };
    #[ignore = "needs an RDMA device; scripts/rxe-test.sh has one"]
    ofi_verbs_rough: super::Make { fabric: "ofi:verbs", ..super::PLAIN };
}

/// The message number `i`.
fn message(i: usize) -> Vec<u8> {
    let len = match i % 5 {
        0 => MAX_MESSAGE_BYTES,
        1 => 1,
        _ => 1 + i * 37 % 400,
    };
    pattern(i as u64, len)
}

fn messages_arrive_in_order(make: Make) {
    const COUNT: usize = 500;
    let ((mut a, to_b), (mut b, to_a)) = make.pair();
    for i in 0..COUNT {
        a.send(to_b, message(i));
        b.send(to_a, message(i + COUNT));
    }
    wait_for(&mut [&mut a, &mut b], |sides| sides.iter().all(|side| side.events.len() == COUNT));
    for i in 0..COUNT {
        let expected = FabricEvent::Message { peer: to_a, bytes: message(i) };
        assert_eq!(fabric_event(b.events.pop_front()), expected, "message {i}");
        let expected = FabricEvent::Message { peer: to_b, bytes: message(i + COUNT) };
        assert_eq!(fabric_event(a.events.pop_front()), expected, "message {i} back");
    }
    part(a, b);
}

/// Ends both.
fn part(a: Side, mut b: Side) {
    a.end_beside(&mut b);
    wait_for(&mut [&mut b], |sides| !sides[0].events.is_empty());
    lost(b.events.pop_front().unwrap());
    b.end();
}

impl Side {
    /// Ends while the other goes on.
    fn end_beside(mut self, other: &mut Self) {
        self.fabric.close(&mut self.driver);
        let begun = Instant::now();
        while self.driver.in_flight() > 0 {
            assert!(begun.elapsed() < PATIENCE, "something stays in the driver");
            self.turn(Duration::from_millis(1));
            other.turn(Duration::from_millis(1));
        }
        assert_eq!(self.events.len(), 0, "{:?}", self.events);
    }
}

const SLOTS: u32 = 16;

/// Progress of one side's puts.
#[derive(Default)]
struct Progress {
    started: u32,
    answered: u32,
    placed: u32,
    messages: u32,
    free: Vec<u32>,
    /// Slots of which one of answer and arrival is there.
    half_free: BTreeSet<u32>,
    /// Content of the sender's slots: the number of the put.
    sent: BTreeMap<IoId, u32>,
}

impl Progress {
    /// A slot is free when its put was both answered and placed.
    fn half(&mut self, slot: u32) {
        if self.half_free.remove(&slot) {
            self.free.push(slot);
        } else {
            self.half_free.insert(slot);
        }
    }
}

/// Sizes of puts, not all of them round.
fn put_bytes(number: u32) -> u32 {
    match number % 4 {
        0 => 4096 << (number / 4 % 9),
        1 => 4096 * (1 + number % 256),
        2 => 1 << 20,
        _ => 1 + number * 7919 % 70_000,
    }
}

fn puts_arrive_whole_both_ways_at_once(make: Make) {
    const COUNT: u32 = 300;
    let ((mut a, to_b), (mut b, to_a)) = make.pair();
    let mut progress = [Progress::default(), Progress::default()];
    for own in &mut progress {
        own.free = (0..SLOTS).collect();
    }
    let begun = Instant::now();
    while progress.iter().any(|p| p.answered < COUNT || p.placed < COUNT || p.messages < COUNT) {
        assert!(begun.elapsed() < 3 * PATIENCE, "the puts do not arrive");
        for (side, peer, me) in [(&mut a, to_b, 0), (&mut b, to_a, 1)] {
            start_puts(side, peer, &mut progress[me], me, COUNT);
            side.turn(Duration::from_micros(50));
            while let Some(event) = side.events.pop_front() {
                puts_proceed(side, &mut progress, me, event);
            }
        }
    }
    part(a, b);
}

/// Starts a put from and to each free slot, and a message with each.
fn start_puts(side: &mut Side, peer: PeerId, own: &mut Progress, me: usize, count: u32) {
    while own.started < count
        && let Some(slot) = own.free.pop()
    {
        let number = own.started;
        let at = u64::from(slot) * MIB;
        let from = Buf { offset: at, len: put_bytes(number) };
        let content = pattern(u64::from(number) * 2 + me as u64, from.len as usize);
        side.bytes(from).copy_from_slice(&content);
        let io = side.put(peer, from, INBOX + at, number << 8 | slot);
        own.sent.insert(io, slot);
        own.started += 1;
        side.send(peer, number.to_le_bytes().to_vec());
    }
}

fn puts_proceed(side: &mut Side, progress: &mut [Progress; 2], me: usize, event: Event) {
    let own = me;
    let other = 1 - me;
    match event {
        Event::Done { io, result } => {
            assert!(result.is_ok());
            let slot = progress[own].sent.remove(&io).expect("a put that is under way");
            progress[own].answered += 1;
            // It may be overwritten here now, whether it has arrived there or not.
            let spoilt = Buf { offset: u64::from(slot) * MIB, len: MIB as u32 };
            side.bytes(spoilt).fill(0xee);
            progress[own].half(slot);
        }
        Event::Fabric(FabricEvent::Placed { imm, .. }) => {
            let number = imm >> 8;
            let slot = imm & 0xff;
            let len = put_bytes(number);
            let content = pattern(u64::from(number) * 2 + other as u64, len as usize);
            let offset = INBOX + u64::from(slot) * MIB;
            assert!(side.bytes(Buf { offset, len }) == content, "put {number} is not whole");
            progress[own].placed += 1;
            progress[other].half(slot);
        }
        Event::Fabric(FabricEvent::Message { bytes, .. }) => {
            assert_eq!(bytes, progress[own].messages.to_le_bytes());
            progress[own].messages += 1;
        }
        other => panic!("{other:?}"),
    }
}

fn a_put_beyond_the_arena_ends_the_connection(make: Make) {
    ends_the_connection(make, u64::MAX - 100);
}

fn a_put_beside_the_window_ends_the_connection(make: Make) {
    ends_the_connection(make, INBOX - 1);
}

/// Asserts that a put of 4096 bytes to this place ends the connection.
fn ends_the_connection(make: Make, to: u64) {
    let ((mut a, to_b), (mut b, to_a)) = make.pair();
    let from = Buf { offset: 0, len: 4096 };
    a.bytes(from).fill(0xee);
    a.put(to_b, from, to, 1);
    wait_for(&mut [&mut a, &mut b], |sides| {
        sides[0].events.len() == 2 && !sides[1].events.is_empty()
    });
    assert!(matches!(a.events.pop_front(), Some(Event::Done { .. })));
    assert_eq!(lost(a.events.pop_front().unwrap()).0, to_b);
    assert_eq!(lost(b.events.pop_front().unwrap()).0, to_a);
    // And it is over.
    let io = a.put(to_b, from, 0, 1);
    match a.event() {
        Event::Done { io: done, result: Err(IoError::GONE) } => assert_eq!(done, io),
        other => panic!("{other:?}"),
    }
    let all = Buf { offset: 0, len: 2 * INBOX as u32 };
    assert!(b.bytes(all).iter().all(|&byte| byte == 0), "it has landed");
    a.end();
    b.end();
}

fn who_is_not_there_is_lost(make: Make) {
    let mut side = make.side(false);
    let (_socket, gone) = deaf_address();
    side.connect(PeerId(3), &gone);
    let (peer, reason) = lost(side.event());
    assert_eq!(peer, PeerId(3));
    assert_eq!(reason, "refuses the connection; check that a node listens there");
    side.connect(PeerId(4), "nonsense");
    let (peer, reason) = lost(side.event());
    assert_eq!(peer, PeerId(4));
    assert!(reason.starts_with("is no address to connect to"), "{reason}");
    side.end();
}

fn strangers_are_told_apart(make: Make) {
    let said = dial_stranger(make, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let stranger = "answers, but is not a braid node; check that it is a braid node";
    assert_eq!(said, stranger);
    assert_eq!(dial_stranger(make, b"hi".to_vec()), stranger);
    let mut newer = Hello {
        kind: make.kind(),
        keyed: make.keyed,
        encrypt: false,
        array: None,
        blob: Vec::new(),
    }
    .encode();
    newer[8..10].copy_from_slice(&77u16.to_le_bytes());
    let said = dial_stranger(make, newer);
    assert!(said.starts_with("is a node of protocol version 77, this is version "), "{said}");
    let ofi = || TransportKind::Ofi(Provider::default());
    let other = if make.kind() == TransportKind::Tcp { ofi() } else { TransportKind::Tcp };
    let said = dial_stranger(
        make,
        Hello { kind: other, keyed: make.keyed, encrypt: false, array: None, blob: Vec::new() }
            .encode(),
    );
    assert_eq!(said, format!("uses fabric {other}, this is {}; use the same on both", make.kind()));
}

fn a_lost_peer_answers_its_puts_first(make: Make) {
    let ((mut a, to_b), (mut b, _)) = make.pair();
    let ios: Vec<IoId> = (0..64)
        .map(|i| a.put(to_b, Buf { offset: i % 16 * MIB, len: MIB as u32 }, INBOX, 5))
        .collect();
    wait_for(&mut [&mut a, &mut b], |sides| !sides[1].events.is_empty());
    // The other process is killed.
    b.fabric.disconnect();
    drop(b);
    let mut answered = Vec::new();
    let mut failed = 0;
    let peer = loop {
        match a.event() {
            Event::Done { io, result } => {
                failed += u32::from(result == Err(IoError::GONE));
                answered.push(io);
            }
            event => break lost(event).0,
        }
    };
    answered.sort_unstable();
    assert_eq!((answered, peer), (ios, to_b));
    // What needs no engine to receive may have taken all of it.
    assert!(failed > 0 || make.kind() != TransportKind::Tcp, "it cannot have taken 64 MiB");
    a.end();
}

fn what_was_sent_arrives_after_hanging_up(make: Make) {
    let ((mut a, to_b), (mut b, to_a)) = make.pair();
    let content = pattern(9, MIB as usize);
    a.bytes(Buf { offset: 0, len: MIB as u32 }).copy_from_slice(&content);
    // Nobody hears of this any more, although it has been sent.
    b.send(to_a, b"too late".to_vec());
    let ios: Vec<IoId> = (0..8)
        .map(|i| a.put(to_b, Buf { offset: 0, len: MIB as u32 }, INBOX + u64::from(i) * MIB, i))
        .collect();
    a.send(to_b, b"the last word".to_vec());
    a.ask(FabricOp::HangUp { peer: to_b });
    wait_for(&mut [&mut a, &mut b], |sides| {
        matches!(sides[1].events.back(), Some(Event::Fabric(FabricEvent::Lost { .. })))
    });
    let mut placed = 0;
    let mut words = 0;
    while let Some(event) = b.events.pop_front() {
        match fabric_event(Some(event)) {
            FabricEvent::Placed { peer, imm } => {
                assert_eq!(peer, to_a);
                let at = Buf { offset: INBOX + u64::from(imm) * MIB, len: MIB as u32 };
                assert!(b.bytes(at) == content, "put {imm} is not whole");
                placed += 1;
            }
            FabricEvent::Message { bytes, .. } => {
                assert_eq!(bytes, b"the last word");
                words += 1;
            }
            FabricEvent::Lost { peer, .. } => assert_eq!(peer, to_a),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((placed, words), (8, 1));
    wait_for(&mut [&mut a], |sides| sides[0].events.len() >= ios.len());
    let mut answered: Vec<IoId> = a
        .events
        .drain(..)
        .map(|event| match event {
            Event::Done { io, result: Ok(_) } => io,
            other => panic!("an event after hanging up: {other:?}"),
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, ios);
    a.end();
    b.end();
}

fn who_takes_nothing_is_not_waited_for_when_cut(make: Make) {
    let ((mut a, to_b), (b, _)) = make.pair();
    // The other engine takes nothing of it.
    let ios: Vec<IoId> = (0..64)
        .map(|i| a.put(to_b, Buf { offset: i % 16 * MIB, len: MIB as u32 }, INBOX, 5))
        .collect();
    a.ask(FabricOp::Cut { peer: to_b });
    wait_for(&mut [&mut a], |sides| sides[0].events.len() >= ios.len());
    let done = |event: Event| match event {
        Event::Done { io, .. } => io,
        other => panic!("an event after the end: {other:?}"),
    };
    let mut answered: Vec<IoId> = a.events.drain(..).map(done).collect();
    answered.sort_unstable();
    assert_eq!(answered, ios);
    a.end();
    drop(b);
}

fn hanging_up_while_dialling_is_silent(make: Make) {
    let mut a = make.side(false);
    let mut b = make.side(true);
    a.connect(PeerId(1), &b.address.clone());
    a.ask(FabricOp::HangUp { peer: PeerId(1) });
    a.connect(PeerId(2), &b.address.clone());
    wait_for(&mut [&mut a, &mut b], |sides| !sides[0].events.is_empty());
    a.send(PeerId(2), b"hello".to_vec());
    // Whether the first gets far enough to be accepted, and then lost, is up to the fabric.
    let is_word = |event: &Event| matches!(event, Event::Fabric(FabricEvent::Message { .. }));
    wait_for(&mut [&mut a, &mut b], |sides| sides[1].events.iter().any(is_word));
    let connected = FabricEvent::Connected { peer: PeerId(2) };
    assert_eq!(fabric_event(a.events.pop_front()), connected);
    assert_eq!(a.events.len(), 0, "{:?}", a.events);
    b.events.clear();
    part(a, b);
}

fn an_ending_engine_sends_the_rest(make: Make) {
    let ((mut a, to_b), (mut b, _)) = make.pair();
    for i in 0..200 {
        a.send(to_b, message(i));
    }
    a.put(to_b, Buf { offset: 0, len: MIB as u32 }, INBOX, 5);
    a.end_beside(&mut b);
    wait_for(&mut [&mut b], |sides| {
        matches!(sides[0].events.back(), Some(Event::Fabric(FabricEvent::Lost { .. })))
    });
    let placed = b
        .events
        .iter()
        .filter(|event| matches!(event, Event::Fabric(FabricEvent::Placed { imm: 5, .. })));
    assert_eq!(placed.count(), 1);
    assert_eq!(b.events.len(), 202);
    b.events.clear();
    b.end();
}
