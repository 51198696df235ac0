//! Duties of every fabric, on every driver. A new one adds a line to the `suite!`s at the end.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, MAX_MESSAGE_BYTES, PeerId};
use braid_array::{Buf, IoError, IoId};

use super::frame::{FrameHeader, HELLO_BYTES, Hello, Provider, TransportKind};
use super::{Fabric, Network};
use crate::arena::Arena;
use crate::driver::{Completion, Driver};
use crate::key::{KEY_BYTES, Key};
use crate::token::Token;

mod limited;
mod patience;
mod sealed;
mod strangers;
mod suite;

const MIB: u64 = 1 << 20;
/// Each side sends from the front of its arena and receives behind it.
const INBOX: u64 = 16 * MIB;

/// Variant that a suite runs on.
#[derive(Clone, Copy)]
struct Make {
    /// Fabric, as users name it.
    fabric: &'static str,
    threads: bool,
    keyed: bool,
    encrypts: bool,
}

const PLAIN: Make = Make { fabric: "tcp", threads: false, keyed: false, encrypts: false };

/// A process.
struct Side {
    arena: Arena,
    driver: Driver<Token>,
    fabric: Box<dyn Fabric>,
    events: VecDeque<Event>,
    completions: Vec<Completion<Token>>,
    address: String,
    next_io: u64,
}

impl Make {
    fn kind(self) -> TransportKind {
        self.fabric.parse().unwrap()
    }

    fn network(self) -> Network {
        let key = self.keyed.then(|| Key::of([1; KEY_BYTES]));
        Network { kind: self.kind(), key, encrypt: self.encrypts }
    }

    fn side(self, listens: bool) -> Side {
        let arena = Arena::for_fabric(2 * INBOX, MIB).unwrap();
        let make = if self.threads { Driver::threads } else { Driver::new };
        let mut driver = make(arena.memory()).unwrap();
        // RDMA devices do not have the loopback's address.
        let host = std::env::var("BRAID_TEST_ADDRESS").unwrap_or_else(|_| "127.0.0.1".into());
        let listener = listens.then(|| TcpListener::bind((host.as_str(), 0)).unwrap());
        let address = listener.as_ref().map(|socket| socket.local_addr().unwrap().to_string());
        let mut fabric = super::new(self.network(), arena.place(), listener).unwrap();
        fabric.begin(&mut driver).unwrap();
        Side {
            arena,
            driver,
            fabric,
            events: VecDeque::new(),
            completions: Vec::new(),
            address: address.unwrap_or_default(),
            next_io: 0,
        }
    }

    /// Two sides with a connection: the dialler first, each with its name for the other.
    fn pair(self) -> ((Side, PeerId), (Side, PeerId)) {
        let mut a = self.side(false);
        let mut b = self.side(true);
        let to_b = a.connect(PeerId(1), &b.address);
        wait_for(&mut [&mut a, &mut b], |sides| !sides[0].events.is_empty());
        let connected = fabric_event(a.events.pop_front());
        assert_eq!(connected, FabricEvent::Connected { peer: to_b });
        // Nobody is accepted who has nothing to say.
        a.send(to_b, b"hello".to_vec());
        wait_for(&mut [&mut a, &mut b], |sides| sides[1].events.len() >= 2);
        let FabricEvent::Accepted { peer: to_a, .. } = fabric_event(b.events.pop_front()) else {
            panic!("nobody was accepted");
        };
        assert!(to_a.0 >= PeerId::FIRST_ACCEPTED);
        let hello = FabricEvent::Message { peer: to_a, bytes: b"hello".to_vec() };
        assert_eq!(fabric_event(b.events.pop_front()), hello);
        a.admit(to_b, 0..u64::MAX);
        b.admit(to_a, INBOX..2 * INBOX);
        ((a, to_b), (b, to_a))
    }
}

fn fabric_event(event: Option<Event>) -> FabricEvent {
    match event {
        Some(Event::Fabric(event)) => event,
        other => panic!("no event of the fabric's: {other:?}"),
    }
}

impl Side {
    fn ask(&mut self, op: FabricOp) {
        self.fabric.start(&mut self.driver, op);
    }

    fn connect(&mut self, peer: PeerId, address: &str) -> PeerId {
        self.ask(FabricOp::Connect { peer, address: address.to_owned() });
        peer
    }

    fn send(&mut self, peer: PeerId, bytes: Vec<u8>) {
        self.ask(FabricOp::Send { peer, bytes });
    }

    fn admit(&mut self, peer: PeerId, window: Range<u64>) {
        self.ask(FabricOp::Admit { peer, window });
    }

    fn put(&mut self, peer: PeerId, from: Buf, to: u64, imm: u32) -> IoId {
        let io = IoId(self.next_io);
        self.next_io += 1;
        self.ask(FabricOp::Put { io, peer, from, to, imm });
        io
    }

    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        // SAFETY: tests touch only ranges that no operation names at the time.
        unsafe { self.arena.memory().bytes_mut(buf) }
    }

    /// Makes one turn, as the engine does.
    fn turn(&mut self, limit: Duration) {
        while let Some(event) = self.fabric.poll() {
            self.events.push_back(event);
        }
        // What is over by now need not be waited for.
        let limit = if self.fabric.flush(&mut self.driver) { Duration::ZERO } else { limit };
        self.driver.wait(Some(limit), &mut self.completions).unwrap();
        for done in self.completions.drain(..) {
            let Token::Fabric(token) = done.token else { panic!("not ours: {:?}", done.token) };
            self.fabric.completed(&mut self.driver, token, done.result, done.message);
        }
        while let Some(event) = self.fabric.poll() {
            self.events.push_back(event);
        }
    }

    /// Lets it run until it has an event.
    fn event(&mut self) -> Event {
        wait_for(&mut [self], |sides| !sides[0].events.is_empty());
        self.events.pop_front().unwrap()
    }

    /// Ends as the engine does.
    fn end(mut self) {
        self.fabric.close(&mut self.driver);
        let begun = Instant::now();
        while self.driver.in_flight() > 0 {
            assert!(begun.elapsed() < PATIENCE, "something stays in the driver");
            self.turn(Duration::from_millis(10));
        }
        assert_eq!(self.events.len(), 0, "{:?}", self.events);
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Lets the sides run until something is so.
fn wait_for(sides: &mut [&mut Side], until: impl Fn(&[&mut Side]) -> bool) {
    let begun = Instant::now();
    // Whoever runs alone can wait for its own events.
    let limit = Duration::from_micros(if sides.len() == 1 { 100_000 } else { 100 });
    while !until(sides) {
        if begun.elapsed() > PATIENCE {
            let last = sides.iter().map(|side| (side.events.len(), side.events.back()));
            panic!("it does not come; events, the last: {:?}", last.collect::<Vec<_>>());
        }
        for side in &mut *sides {
            side.turn(limit);
        }
    }
}

/// Bytes that are different for each seed.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    // A prime: no part of a put is as long. All of it anew took most of the time of these tests.
    const PERIOD: usize = 65_521;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len.max(PERIOD) + 8);
    while bytes.len() < PERIOD.min(len) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(PERIOD.min(len));
    while bytes.len() < len {
        bytes.extend_from_within(..bytes.len().min(len - bytes.len()));
    }
    bytes
}

/// Dials a stranger that sends `say`, and returns the reason for the end.
fn dial_stranger(make: Make, say: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&say).unwrap();
        // It may have heard enough already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut side = make.side(false);
    side.connect(PeerId(7), &address);
    let FabricEvent::Lost { peer: PeerId(7), why } = fabric_event(Some(side.event())) else {
        panic!("it is connected to a stranger");
    };
    side.end();
    stranger.join().unwrap();
    why.to_string()
}

/// A connection to a side, on which hellos were exchanged and a word was said, from outside.
fn raw(side: &Side, kind: TransportKind) -> TcpStream {
    let mut stream = TcpStream::connect(&side.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(
            &Hello { kind, keyed: false, encrypt: false, array: None, blob: Vec::new() }.encode(),
        )
        .unwrap();
    stream.read_exact(&mut [0; HELLO_BYTES]).unwrap();
    stream.write_all(&FrameHeader::Message { bytes: 1 }.encode()).unwrap();
    stream.write_all(b"!").unwrap();
    stream
}

/// Returns the accepted peer, which has to be the next event of this side.
fn accepted(side: &mut Side) -> PeerId {
    let peer = match fabric_event(Some(side.event())) {
        FabricEvent::Accepted { peer, .. } => peer,
        other => panic!("nobody was accepted: {other:?}"),
    };
    let first = FabricEvent::Message { peer, bytes: b"!".to_vec() };
    assert_eq!(fabric_event(Some(side.event())), first);
    peer
}

fn lost(event: Event) -> (PeerId, String) {
    match fabric_event(Some(event)) {
        FabricEvent::Lost { peer, why } => (peer, why.to_string()),
        other => panic!("nobody was lost: {other:?}"),
    }
}

/// Errors that only frames over TCP can have.
mod tcp {
    use super::*;

    #[test]
    fn frames_may_come_in_any_pieces() {
        let mut side = PLAIN.side(true);
        let mut stream = raw(&side, TransportKind::Tcp);
        let peer = accepted(&mut side);
        side.admit(peer, INBOX..2 * INBOX);
        let mut bytes = Vec::new();
        for round in 0..40u32 {
            let message = pattern(round.into(), 1 + round as usize * 7 % 300);
            bytes.extend(FrameHeader::Message { bytes: message.len() as u32 }.encode());
            bytes.extend(message);
            let put = pattern(u64::from(round) + 1000, 1 + round as usize * 31 % 500);
            let to = INBOX + u64::from(round) * 4096;
            bytes.extend(FrameHeader::Put { bytes: put.len() as u32, to, imm: round }.encode());
            bytes.extend(put);
        }
        let mut sizes = [1, 2, 3, 19, 20, 21, 33, 200].iter().cycle();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            stream.write_all(now).unwrap();
            rest = later;
            side.turn(Duration::from_micros(10));
        }
        for round in 0..40u32 {
            let bytes = pattern(round.into(), 1 + round as usize * 7 % 300);
            assert_eq!(fabric_event(Some(side.event())), FabricEvent::Message { peer, bytes });
            assert_eq!(fabric_event(Some(side.event())), FabricEvent::Placed { peer, imm: round });
            let expected = pattern(u64::from(round) + 1000, 1 + round as usize * 31 % 500);
            let offset = INBOX + u64::from(round) * 4096;
            assert_eq!(side.bytes(Buf { offset, len: expected.len() as u32 }), expected);
        }
        drop(stream);
        side.end();
    }

    #[test]
    fn garbage_ends_the_connection_and_nothing_else() {
        let mut side = PLAIN.side(true);
        let mut good = raw(&side, TransportKind::Tcp);
        let friend = accepted(&mut side);
        let mut bad = raw(&side, TransportKind::Tcp);
        let stranger = accepted(&mut side);
        bad.write_all(&[0xff; 100]).unwrap();
        let reason = "it sent bytes that mean nothing".to_owned();
        assert_eq!(lost(side.event()), (stranger, reason));
        // It is hung up on; what it did not say in time is nobody's concern.
        let _ = bad.read_to_end(&mut Vec::new());
        good.write_all(&FrameHeader::Message { bytes: 2 }.encode()).unwrap();
        good.write_all(b"hi").unwrap();
        let message = FabricEvent::Message { peer: friend, bytes: b"hi".to_vec() };
        assert_eq!(fabric_event(Some(side.event())), message);
        drop(good);
        side.end();
    }

    /// Puts 4096 bytes there, over a connection that is admitted to `window` and no further.
    fn put_at(window: Option<Range<u64>>, to: u64) {
        let mut side = PLAIN.side(true);
        let mut stream = raw(&side, TransportKind::Tcp);
        let peer = accepted(&mut side);
        window.into_iter().for_each(|window| side.admit(peer, window));
        stream.write_all(&FrameHeader::Put { bytes: 4096, to, imm: 0 }.encode()).unwrap();
        stream.write_all(&[0xee; 4096]).unwrap();
        let (who, reason) = lost(side.event());
        assert_eq!(who, peer);
        assert!(reason.contains("where it was not admitted"), "{reason}");
        let untouched = Buf { offset: 0, len: 2 * INBOX as u32 };
        assert!(side.bytes(untouched).iter().all(|&byte| byte == 0), "it has landed");
        side.end();
    }

    #[test]
    fn a_put_beside_the_window_does_not_land() {
        put_at(None, INBOX);
        let window = || Some(INBOX..INBOX + 8192);
        for to in [INBOX - 1, INBOX + 4097, 0, INBOX + 8192, u64::MAX - 4095, u64::MAX] {
            put_at(window(), to);
        }
        put_at(Some(INBOX..INBOX), INBOX);
    }

    #[test]
    fn a_put_into_the_fabrics_own_memory_does_not_land() {
        let own = PLAIN.side(false).arena.place().own.offset;
        put_at(Some(0..u64::MAX), own - 4095);
    }

    #[test]
    fn who_does_not_read_is_hung_up_on() {
        let mut side = PLAIN.side(true);
        let stream = raw(&side, TransportKind::Tcp);
        let peer = accepted(&mut side);
        let io = side.put(peer, Buf { offset: 0, len: MIB as u32 }, 0, 0);
        for _ in 0..4000 {
            side.send(peer, vec![0; MAX_MESSAGE_BYTES]);
        }
        let mut answers = 0;
        let (who, reason) = loop {
            match side.event() {
                Event::Done { io: done, .. } if done == io => answers += 1,
                event => break lost(event),
            }
        };
        assert_eq!((who, reason.as_str(), answers), (peer, "it does not take what it is sent", 1));
        drop(stream);
        side.end();
    }

    #[test]
    fn there_is_an_end_to_connections() {
        let mut side = PLAIN.side(true);
        let most = (side.arena.place().own.len >> 14) as usize;
        let mut all: Vec<TcpStream> = Vec::new();
        for _ in 0..most {
            all.push(raw(&side, TransportKind::Tcp));
            accepted(&mut side);
        }
        let mut refused = raw(&side, TransportKind::Tcp);
        // What it said is not taken in.
        let reader = std::thread::spawn(move || refused.read(&mut [0; 1]).unwrap_or(0));
        while !reader.is_finished() {
            side.turn(Duration::from_millis(1));
        }
        assert_eq!(reader.join().unwrap(), 0);
        // One that ends makes room.
        all.pop();
        lost(side.event());
        all.push(raw(&side, TransportKind::Tcp));
        accepted(&mut side);
        all.clear();
        side.end();
    }
}
