use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use braid_array::format::SuperblockError;
use braid_cluster::ids::{Epoch, Generation, NodeId, Position};
use braid_cluster::wire::PROTOCOL_VERSION;

use super::*;
use crate::fabric::frame::{FrameHeader, HEADER_BYTES, Hello, TransportKind};
use crate::testing::deaf_address;

fn connect(address: &str) -> Result<Remote, RemoteError> {
    Remote::connect(address, TransportKind::Tcp)
}

/// Listens, and serves the first connection.
fn server<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    (address, thread)
}

fn hello() -> Hello {
    Hello { kind: TransportKind::Tcp, keyed: false, encrypt: false, array: None, blob: Vec::new() }
}

fn send(stream: &mut TcpStream, message: &Message) {
    let bytes = message.encode(Epoch::BEFORE_ANY);
    stream.write_all(&FrameHeader::Message { bytes: bytes.len() as u32 }.encode()).unwrap();
    stream.write_all(&bytes).unwrap();
}

fn receive(stream: &mut TcpStream) -> Option<(Epoch, Message)> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).ok()?;
    let mut bytes = vec![0; FrameHeader::decode(&head).unwrap().payload_bytes() as usize];
    stream.read_exact(&mut bytes).unwrap();
    Some(Message::decode(&bytes).unwrap())
}

/// A node that gives these answers, and returns the requests that it got.
fn node(answers: Vec<Message>) -> (String, JoinHandle<Vec<(Epoch, Message)>>) {
    server(move |mut stream| {
        stream.write_all(&hello().encode()).unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        let mut asked = Vec::new();
        for answer in answers {
            asked.extend(receive(&mut stream));
            send(&mut stream, &answer);
        }
        asked
    })
}

fn connect_error(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let (address, thread) = server(serve);
    let error = connect(&address).unwrap_err().to_string();
    thread.join().unwrap();
    error
}

#[test]
fn who_is_no_node_of_this_version_is_told_from_one() {
    let (_socket, deaf) = deaf_address();
    let error = connect(&deaf).unwrap_err().to_string();
    assert!(error.contains("refuses the connection; "), "{error}");
    let error = connect_error(|mut stream| stream.write_all(b"220 mail ready, sir\r\n").unwrap());
    assert!(error.contains("not a braid node; "), "{error}");
    let error = connect_error(|stream| drop(stream.shutdown(std::net::Shutdown::Write)));
    assert!(error.contains("; "), "{error}");
    let error = connect_error(|mut stream| {
        let mut hello = hello().encode();
        hello[8..10].copy_from_slice(&(PROTOCOL_VERSION + 1).to_le_bytes());
        stream.write_all(&hello).unwrap();
    });
    assert!(error.contains(&format!("version {}", PROTOCOL_VERSION + 1)), "{error}");
    let error = connect("no.such.host.invalid:1").unwrap_err().to_string();
    assert!(error.contains("no address to connect to"), "{error}");
    assert!(error.ends_with("; check it"), "{error}");
}

#[test]
fn requests_are_asked_without_an_epoch_and_answered() {
    let (address, node) = node(vec![
        Message::Volume { tag: 1, bytes: 1 << 20, node: NodeId(5), used: true },
        Message::Meta { tag: 2, bytes: vec![5; 512] },
        Message::Ok { tag: 3 },
    ]);
    let mut remote = connect(&address).unwrap();
    assert_eq!((remote.node(), remote.used()), (None, false));
    assert_eq!(remote.open_volume("a", true), Ok(1 << 20));
    assert_eq!((remote.node(), remote.used()), (Some(NodeId(5)), true));
    assert_eq!(remote.read(8, 512), Ok(vec![5; 512]));
    assert_eq!(remote.write(8, vec![6; 512]), Ok(()));
    let name = "a".to_owned();
    let bytes = vec![6; 512];
    let asked = [
        (Epoch::BEFORE_ANY, Message::OpenVolume { tag: 1, name, write: true }),
        (Epoch::BEFORE_ANY, Message::ReadMeta { tag: 2, sector: 8, bytes: 512 }),
        (Epoch::BEFORE_ANY, Message::WriteMeta { tag: 3, sector: 8, bytes }),
    ];
    assert_eq!(node.join().unwrap(), asked);
}

#[test]
fn a_refusal_is_said_in_the_words_of_the_node() {
    let reason = "there is no volume of this name".to_owned();
    let advice = "see the names with ls".to_owned();
    let (address, node) = node(vec![Message::Refused { tag: 1, busy: true, reason, advice }]);
    let error = connect(&address).unwrap().open_volume("a", false).unwrap_err();
    let said = Refusal::new("there is no volume of this name", "see the names with ls");
    assert_eq!(error, RemoteError { why: said, kind: RemoteErrorKind::Busy });
    drop(node);
}

/// Tests two administrators, or one and an array that starts: the first one gets the reason.
#[test]
fn a_node_that_takes_leave_says_why() {
    let parting = Message::Outvoted { tag: PARTING_TAG, granted: Epoch(4) };
    let (address, node) = node(vec![parting]);
    let error = connect(&address).unwrap().read(0, 512).unwrap_err();
    let Refusal { reason, next } = error.why;
    assert_eq!(reason, "has granted the array to another client meanwhile");
    assert!(next.advice.ends_with("say this again"), "{}", next.advice);
    assert_eq!(error.kind, RemoteErrorKind::Busy);
    drop(node);
    let reason = "the node is stopped".to_owned();
    let advice = "start it".to_owned();
    let parting = Message::Refused { tag: PARTING_TAG, busy: false, reason, advice };
    let (address, node) = self::node(vec![parting]);
    let error = connect(&address).unwrap().read(0, 512).unwrap_err();
    assert_eq!(error.why, Refusal::new("the node is stopped", "start it"));
    drop(node);
}

#[test]
fn answers_that_mean_nothing_are_no_answers() {
    let answers = [
        Message::Ok { tag: 7 },
        Message::Meta { tag: 1, bytes: vec![0; 1024] },
        Message::Finished {
            position: Position(0),
            generation: Generation(0),
            ok: true,
            no_room: false,
        },
        Message::Volume { tag: 1, bytes: 4096, node: NodeId(5), used: true },
    ];
    for answer in answers {
        let (address, node) = node(vec![answer.clone()]);
        let error = connect(&address).unwrap().read(0, 512).unwrap_err();
        assert!(error.why.reason.contains("means nothing"), "{answer:?}: {error}");
        drop(node);
    }
    let (address, node) = node(Vec::new());
    let mut remote = connect(&address).unwrap();
    let error = remote.read(0, 512).unwrap_err();
    assert!(error.why.reason.contains("has gone: "), "{error}");
    drop(node);
    // It is not asked again: nobody is there who could refuse.
    assert_eq!(remote.delete_volume(), Err(error));
}

#[test]
fn a_volume_is_probed_for_its_superblock() {
    let (address, node) = node(vec![
        Message::Volume { tag: 1, bytes: 1 << 20, node: NodeId(5), used: true },
        Message::Meta { tag: 2, bytes: vec![0; 4096] },
    ]);
    let mut remote = connect(&address).unwrap();
    let found = probe(&mut remote, &address, "a", false).unwrap();
    assert_eq!((found.bytes, found.superblock), (1 << 20, Err(SuperblockError::NoMagic)));
    assert_eq!(node.join().unwrap()[1].1, Message::ReadMeta { tag: 2, sector: 8, bytes: 4096 });
}

/// Each of which comes soon enough, were it the only one.
#[test]
fn all_answers_of_a_node_are_waited_for_until_one_moment() {
    const ANSWERS: u32 = 20;
    let (address, node) = server(|mut stream| {
        stream.write_all(&hello().encode()).unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        while let Some((_, Message::RemoveVolume { tag })) = receive(&mut stream) {
            std::thread::sleep(Duration::from_millis(100));
            send(&mut stream, &Message::Ok { tag });
        }
    });
    let mut remote = connect(&address).unwrap();
    remote.wait_until(Instant::now() + Duration::from_secs(1));
    let answers: Result<Vec<()>, _> = (0..ANSWERS).map(|_| remote.remove_volume()).collect();
    let error = answers.expect_err("two seconds are more than one");
    assert_eq!(error.kind, RemoteErrorKind::Unreachable);
    drop(remote);
    // It may have found nobody who takes its answer.
    let _ = node.join();
}

/// A connection ends with the patience of a call, not after a farewell that is never taken. A
/// machine may be slow for once.
#[test]
fn a_node_that_says_nothing_is_not_waited_for_at_the_end() {
    assert!((0..3).any(|_| ask_the_silent() < line::FAREWELL), "it is waited for each time");
}

/// Returns the time of a call without patience to a silent node, with the end of the connection.
fn ask_the_silent() -> Duration {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (address, node) = server(move |mut stream| {
        stream.write_all(&hello().encode()).unwrap();
        // Until the other end of this is gone.
        let _ = ended.recv();
    });
    let mut remote = connect(&address).unwrap();
    let begun = Instant::now();
    remote.wait_until(begun);
    let error = remote.remove_volume().unwrap_err();
    assert_eq!(error.kind, RemoteErrorKind::Unreachable);
    drop(remote);
    let took = begun.elapsed();
    drop(end);
    node.join().unwrap();
    took
}
