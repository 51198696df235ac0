//! Peers without the cluster key, silent ones, and those that replay recordings.

use std::io::ErrorKind;

use super::*;
use crate::fabric::greet::{Greeted, Greeting, connect};
use crate::fabric::seal::SEAL_BYTES;

const KEYED: Make = Make { keyed: true, ..PLAIN };

fn greeting(key: Option<u8>) -> Greeting {
    greeting_with(key.map(|byte| Key::of([byte; KEY_BYTES])))
}

pub(super) fn greeting_with(key: Option<Key>) -> Greeting {
    Greeting::new(Network { kind: TransportKind::Tcp, key, encrypt: false }, Vec::new())
}

/// Connects with this key, while the side goes on.
fn greeted(side: &mut Side, key: Option<u8>) -> Result<Greeted, String> {
    greets(side, greeting(key))
}

pub(super) fn greets(side: &mut Side, greeting: Greeting) -> Result<Greeted, String> {
    let address = side.address.clone();
    let dial = std::thread::spawn(move || connect(&address, &greeting));
    while !dial.is_finished() {
        side.turn(Duration::from_millis(1));
    }
    dial.join().unwrap().map_err(|why| why.to_string())
}

pub(super) fn message(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(&FrameHeader::Message { bytes: bytes.len() as u32 }.encode()).unwrap();
    stream.write_all(bytes).unwrap();
}

/// A connection with the key, on which a word was said.
fn friend(side: &mut Side) -> (Greeted, PeerId) {
    let mut greeted = greeted(side, Some(1)).unwrap();
    let first = greeted.seals.as_mut().unwrap().out.close(b"!");
    message(&mut greeted.stream, &first);
    let peer = accepted(side);
    (greeted, peer)
}

/// Asserts that no stranger was accepted, and that a peer with the key still is.
pub(super) fn goes_on(mut side: Side) {
    assert_eq!(side.events.len(), 0, "{:?}", side.events);
    let (friend, peer) = friend(&mut side);
    drop(friend);
    assert_eq!(lost(side.event()).0, peer);
    side.end();
}

#[test]
fn without_the_key_nobody_gets_in() {
    let mut side = KEYED.side(true);
    let error = greeted(&mut side, None).unwrap_err();
    assert_eq!(error, "wants the cluster key; give its file with --key");
    let error = greeted(&mut side, Some(2)).unwrap_err();
    let other = "has another cluster key; give the same file with --key on all sides";
    assert_eq!(error, other);
    goes_on(side);
    let mut side = PLAIN.side(true);
    let error = greeted(&mut side, Some(1)).unwrap_err();
    assert_eq!(error, "has no cluster key, this has one; start it with --key");
    side.end();
}

#[test]
fn a_node_that_dies_in_the_handshake_is_not_said_to_have_another_key() {
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = node.local_addr().unwrap().to_string();
    let dies = std::thread::spawn(move || {
        let (mut stream, _) = node.accept().unwrap();
        let hello = Hello {
            kind: TransportKind::Tcp,
            keyed: true,
            encrypt: false,
            array: None,
            blob: Vec::new(),
        };
        stream.write_all(&hello.encode()).unwrap();
        // All that is said to it, so that the end is an end and no reset.
        stream.read_exact(&mut vec![0; hello.encode().len() + 48]).unwrap();
    });
    let error = connect(&address, &greeting(Some(1))).unwrap_err().to_string();
    dies.join().unwrap();
    assert_eq!(error, "ends the connection during the handshake; try again");
}

/// Says each of these after a good hello, and then nothing more; and is hung up on.
fn says_after_hello(side: &mut Side, said: &[Vec<u8>]) {
    let hello = Hello {
        kind: TransportKind::Tcp,
        keyed: true,
        encrypt: false,
        array: None,
        blob: Vec::new(),
    };
    let said: Vec<Vec<u8>> =
        said.iter().map(|bytes| [hello.encode(), bytes.clone()].concat()).collect();
    say_in_vain(side, &said);
}

/// Strangers at the same time, as some are listened to for seconds, each with something to say.
pub(super) fn say_in_vain(side: &mut Side, said: &[Vec<u8>]) {
    let stranger = |bytes: &Vec<u8>| {
        let mut stream = TcpStream::connect(&side.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        std::thread::spawn(move || {
            let _ = stream.read_to_end(&mut Vec::new());
        })
    };
    let readers: Vec<_> = said.iter().map(stranger).collect();
    while !readers.iter().all(|reader| reader.is_finished()) {
        side.turn(Duration::from_millis(5));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn garbage_and_half_a_proof_get_nobody_in() {
    let mut side = KEYED.side(true);
    let said = [pattern(5, 4096), vec![0; 48], pattern(6, 47), Vec::new()];
    says_after_hello(&mut side, &said);
    goes_on(side);
}

#[test]
fn a_recorded_proof_gets_nobody_in() {
    let mut side = KEYED.side(true);
    // All that somebody with the key says, as it passes here.
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = middle.local_addr().unwrap().to_string();
    let node = side.address.clone();
    let relay = std::thread::spawn(move || {
        let (mut client, _) = middle.accept().unwrap();
        let mut node = TcpStream::connect(node).unwrap();
        let mut back = node.try_clone().unwrap();
        let mut to_client = client.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
        let mut said = Vec::new();
        let mut some = [0; 4096];
        loop {
            let got = client.read(&mut some).unwrap();
            if got == 0 {
                let _ = node.shutdown(std::net::Shutdown::Write);
                return said;
            }
            said.extend(&some[..got]);
            node.write_all(&some[..got]).unwrap();
        }
    });
    let dial = std::thread::spawn(move || connect(&address, &greeting(Some(1))).unwrap());
    while !dial.is_finished() {
        side.turn(Duration::from_millis(1));
    }
    let mut client = dial.join().unwrap();
    let first = client.seals.as_mut().unwrap().out.close(b"!");
    message(&mut client.stream, &first);
    accepted(&mut side);
    drop(client);
    lost(side.event());
    let said = relay.join().unwrap();
    assert_eq!(said.len(), HELLO_BYTES + 48 + SEAL_BYTES + 20 + 1 + SEAL_BYTES);
    says_after_hello(&mut side, &[said[HELLO_BYTES..].to_vec()]);
    goes_on(side);
}

#[test]
fn what_is_not_sealed_ends_the_connection() {
    let spoil: [fn(&mut Greeted); 5] = [
        // As it is; the same twice; nothing; damaged; too long.
        |greeted| message(&mut greeted.stream, b"as it is, and long enough"),
        |greeted| {
            let sealed = greeted.seals.as_mut().unwrap().out.close(b"!");
            message(&mut greeted.stream, &sealed);
            message(&mut greeted.stream, &sealed);
        },
        |greeted| {
            let sealed = greeted.seals.as_mut().unwrap().out.close(b"");
            message(&mut greeted.stream, &sealed);
        },
        |greeted| {
            let mut sealed = greeted.seals.as_mut().unwrap().out.close(b"hello");
            sealed[2] ^= 1;
            message(&mut greeted.stream, &sealed);
        },
        |greeted| {
            let long = [0; MAX_MESSAGE_BYTES + 1];
            let sealed = greeted.seals.as_mut().unwrap().out.close(&long);
            message(&mut greeted.stream, &sealed);
        },
    ];
    let mut side = KEYED.side(true);
    for spoil in spoil {
        let (mut greeted, peer) = friend(&mut side);
        spoil(&mut greeted);
        let mut event = side.event();
        if matches!(event, Event::Fabric(FabricEvent::Message { .. })) {
            event = side.event();
        }
        assert_eq!(lost(event), (peer, "it sent bytes that mean nothing".to_owned()));
    }
    goes_on(side);
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let mut side = KEYED.side(true);
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(&side.address).unwrap();
        if number % 2 == 0 {
            let hello = Hello {
                kind: TransportKind::Tcp,
                keyed: true,
                encrypt: false,
                array: None,
                blob: Vec::new(),
            };
            stream.write_all(&hello.encode()).unwrap();
        }
        silent.push(stream);
    }
    let (_, peer) = friend(&mut side);
    let waits = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        // The greeting is on its way for good, and then nothing, where it was not given up.
        loop {
            match stream.read(&mut [0; 4096]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    };
    assert!(silent.iter_mut().any(waits), "it had to wait for them to be given up");
    assert_eq!(lost(side.event()).0, peer);
    drop(silent);
    side.end();
}

#[test]
fn who_has_nothing_to_say_after_the_hello_is_not_accepted() {
    let mut side = PLAIN.side(true);
    let mut silent: Vec<Greeted> = Vec::new();
    for _ in 0..300 {
        silent.push(greeted(&mut side, None).unwrap());
    }
    assert_eq!(side.events.len(), 0, "{:?}", side.events);
    let talks = raw(&side, TransportKind::Tcp);
    let peer = accepted(&mut side);
    drop(talks);
    assert_eq!(lost(side.event()).0, peer);
    // The oldest had to go, and the others do in time.
    let stream = &mut silent[0].stream;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let stream = &mut silent[299].stream;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    side.end();
}

#[test]
fn nobody_is_dialled_without_end() {
    let mut side = PLAIN.side(true);
    // Takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let at_once = 256;
    let too_many = 44;
    for peer in 0..at_once + too_many {
        side.ask(FabricOp::Connect { peer: PeerId(peer), address: address.clone() });
    }
    for peer in at_once..at_once + too_many {
        let (lost, why) = lost(side.event());
        assert_eq!(lost, PeerId(peer));
        assert!(why.contains("too many connections are being made"), "{why}");
    }
    // When they are over there is room again.
    drop(silent);
    for _ in 0..at_once {
        let (_, why) = lost(side.event());
        assert!(!why.contains("too many connections"), "{why}");
    }
    side.ask(FabricOp::Connect { peer: PeerId(1000), address });
    let (lost, why) = lost(side.event());
    assert_eq!(lost, PeerId(1000));
    assert!(!why.contains("too many connections"), "{why}");
    side.end();
}
