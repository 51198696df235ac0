//! Clients that want to stop the others, and others beside them that must not notice.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use braid_array::events::ArrayEvent;

use super::raw_client::{connect, hung_up, reply, request, serve};
use super::{MIB, Served, memory, noise, read, write};
use crate::engine::{Engine, REQUEST_BYTES};
use crate::export::nbd::{ClientPatience, Listener};

const LONG: Duration = Duration::from_secs(20);
/// Patience for tests in which no client is to be dropped.
const PATIENT: ClientPatience = ClientPatience { handshake: 60_000, silence: 60_000 };

/// Returns an engine as it is served, its socket, and the channel of its events.
fn engine(
    dir: &Path,
    patience: ClientPatience,
) -> (Engine, std::path::PathBuf, Receiver<ArrayEvent>) {
    let mut engine = memory(32 * MIB, REQUEST_BYTES, |double| double);
    let (sender, events) = channel();
    engine.on_event(Box::new(move |event| {
        let _ = sender.send(event.clone());
    }));
    let path = dir.join("nbd");
    let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
    serve(&mut engine, listener, ("array", false), patience);
    (engine, path, events)
}

/// A client that asks for 64 reads of this length and takes no reply. Returns when it has been
/// answered as much as fits into its socket.
fn greedy(path: &Path, len: u32) -> UnixStream {
    let mut stream = connect(path);
    for cookie in 0..64 {
        stream.write_all(&request(0, cookie, 0, len)).unwrap();
    }
    let deadline = Instant::now() + LONG;
    let mut before = 0;
    loop {
        // The one who is asked last is answered after all that came before.
        let waiting = rustix::io::ioctl_fionread(&stream).unwrap();
        if waiting > 0 && waiting == before {
            return stream;
        }
        before = waiting;
        assert!(Instant::now() < deadline, "not even the first reply came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes and reads back a megabyte, as an NBD client.
fn works(client: &mut UnixStream, seed: u64) {
    let data = noise(seed, 1 << 20);
    client.write_all(&request(1, seed, 8 * MIB, 1 << 20)).unwrap();
    client.write_all(&data).unwrap();
    assert_eq!(reply(client), (0, seed));
    client.write_all(&request(0, seed, 8 * MIB, 1 << 20)).unwrap();
    assert_eq!(reply(client), (0, seed));
    let mut found = vec![0; 1 << 20];
    client.read_exact(&mut found).unwrap();
    assert!(found == data);
}

/// Writes and reads back a megabyte through the submission queue.
fn works_by_the_submission_queue(served: &Served, seed: u64) {
    let data = noise(seed, 1 << 20);
    let written = write(&served.submissions, 4 * MIB, data.clone());
    written.recv_timeout(LONG).expect("a write in time").unwrap();
    let found = read(&served.submissions, 4 * MIB, 1 << 20);
    assert!(found.recv_timeout(LONG).expect("a read in time").unwrap() == data);
}

#[test]
fn clients_that_take_no_replies_stop_nobody() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (engine, path, events) = engine(dir.path(), PATIENT);
        let served = Served::start(engine, threads);
        let mut before = connect(&path);
        let mut all = Vec::new();
        for count in [5, 35] {
            all.extend((0..count).map(|i| greedy(&path, [1 << 20, 4096, 65_536][i % 3])));
            let mut after = connect(&path);
            for seed in 0..10 {
                works(&mut before, seed);
                works(&mut after, seed);
                works_by_the_submission_queue(&served, seed);
            }
        }
        assert!(events.try_recv().is_err(), "nobody is in anybody's way for long");
        drop(all);
        served.stop();
    }
}

#[test]
fn who_takes_nothing_goes_when_memory_is_short_and_only_then() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let patience = ClientPatience { silence: 50, ..PATIENT };
        let (engine, path, events) = engine(dir.path(), patience);
        let served = Served::start(engine, threads);
        let mut client = connect(&path);
        let mut all: Vec<_> = (0..3).map(|_| greedy(&path, 1 << 20)).collect();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            works(&mut client, 1);
            works_by_the_submission_queue(&served, 1);
        }
        assert!(events.try_recv().is_err(), "there is memory for all");
        all.extend((0..15).map(|_| greedy(&path, 1 << 20)));
        let deadline = Instant::now() + LONG;
        let event = loop {
            works(&mut client, 2);
            works_by_the_submission_queue(&served, 2);
            match events.try_recv() {
                Ok(event) => break event,
                Err(_) => assert!(Instant::now() < deadline, "nobody was dropped"),
            }
        };
        assert!(matches!(event, ArrayEvent::ClientDropped { .. }), "{event:?}");
        // The first had the most.
        let mut replies = Vec::new();
        let _ = all[0].read_to_end(&mut replies);
        assert!(replies.len() < 64 << 20);
        // Not all of them: what the others have is missed by nobody.
        let mut rest = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            works(&mut client, 3);
            rest.extend(events.try_iter());
        }
        assert!(rest.len() < 12, "{} of 18 were dropped", rest.len() + 1);
        drop(all);
        served.stop();
    }
}

#[test]
fn half_open_handshakes_shut_nobody_out_and_end() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let patience = ClientPatience { handshake: 200, ..PATIENT };
        let (engine, path, _events) = engine(dir.path(), patience);
        let served = Served::start(engine, threads);
        let half = || UnixStream::connect(&path).unwrap();
        let mut silent: Vec<_> = (0..200).map(|_| half()).collect();
        let mut client = connect(&path);
        works(&mut client, 1);
        // Talks on and on, and never comes to the point.
        let mut talker = half();
        talker.write_all(&3u32.to_be_bytes()).unwrap();
        let begun = Instant::now();
        while talker.write_all(&option(3, b"")).is_ok() {
            assert!(begun.elapsed() < LONG, "a handshake without end");
            let _ = talker.read(&mut [0; 512]);
        }
        for stream in &mut silent {
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut greeting = Vec::new();
            match stream.read_to_end(&mut greeting) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
        // Who has come to commands may be silent for as long as they like.
        works(&mut client, 2);
        served.stop();
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Asks for the export; the type of the last reply, and its text.
fn go(stream: &mut UnixStream) -> (u32, String) {
    stream.write_all(&option(7, &[0; 6])).unwrap();
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header).unwrap();
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let mut text = vec![0; number(16) as usize];
        stream.read_exact(&mut text).unwrap();
        // Not information about the export.
        if number(12) != 3 {
            return (number(12), String::from_utf8_lossy(&text).into_owned());
        }
    }
}

#[test]
fn one_client_too_many_is_told_so_and_may_ask_again() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, path, _events) = engine(dir.path(), PATIENT);
    let served = Served::start(engine, false);
    // All that one user may have.
    let mut clients: Vec<_> = (0..48).map(|_| connect(&path)).collect();
    let mut next = UnixStream::connect(&path).unwrap();
    next.set_read_timeout(Some(LONG)).unwrap();
    next.read_exact(&mut [0; 18]).unwrap();
    next.write_all(&3u32.to_be_bytes()).unwrap();
    let (kind, text) = go(&mut next);
    assert_eq!(
        (kind, text.as_str()),
        (0x8000_0002, "too many clients; disconnect another one first")
    );
    works(&mut clients[0], 1);
    clients[2].write_all(&request(2, 1, 0, 0)).unwrap();
    assert!(hung_up(&mut clients[2]));
    assert_eq!(go(&mut next).0, 1);
    works(&mut next, 2);
    served.stop();
}
