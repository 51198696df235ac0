//! An NBD client that breaks rules which decent clients keep.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{MIB, Served, memory, noise};
use braid_array::SECTOR_BYTES;

use crate::engine::Engine;
use crate::export::nbd::{ClientPatience, Device, Listener, NbdServer};

/// Serves on a socket in the directory, too.
pub(super) fn listen(engine: &mut Engine, dir: &Path, read_only: bool) -> PathBuf {
    let path = dir.join(if read_only { "read-only" } else { "nbd" });
    let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
    serve(engine, listener, ("array", read_only), ClientPatience::default());
    path
}

/// Serves NBD clients of a socket, under a name and maybe for reading only.
pub(super) fn serve(
    engine: &mut Engine,
    listener: Listener,
    (name, read_only): (&str, bool),
    patience: ClientPatience,
) {
    let array = engine.machine.block().unwrap();
    let size = array.array_sectors() * SECTOR_BYTES;
    let block = array.block_bytes();
    let mut server = NbdServer::default();
    server.patience = patience;
    let device = Device::new(name.into(), size, block, read_only).reaching_to(engine.size());
    server.listen(listener, device.into(), None).unwrap();
    engine.add_export(Box::new(server));
}

/// A client after `NBD_OPT_EXPORT_NAME`, with simple replies.
pub(super) fn connect(path: &Path) -> UnixStream {
    connect_to(path).0
}

/// The same, and the size that it is told.
pub(super) fn connect_to(path: &Path) -> (UnixStream, u64) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    stream.write_all(b"IHAVEOPT").unwrap();
    stream.write_all(&1u32.to_be_bytes()).unwrap();
    stream.write_all(&0u32.to_be_bytes()).unwrap();
    let mut export = [0; 10];
    stream.read_exact(&mut export).unwrap();
    (stream, u64::from_be_bytes(export[..8].try_into().unwrap()))
}

pub(super) fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&0u16.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// Error and cookie of the next simple reply.
pub(super) fn reply(stream: &mut UnixStream) -> (u32, u64) {
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..4], 0x6744_6698u32.to_be_bytes());
    let error = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
    (error, u64::from_be_bytes(bytes[8..].try_into().unwrap()))
}

pub(super) fn hung_up(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_client_that_takes_no_replies_does_not_hold_up_others() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = memory(32 * MIB, 8 * MIB, |double| double);
        let path = listen(&mut engine, dir.path(), false);
        let served = Served::start(engine, threads);
        let mut slow = connect(&path);
        let mut sluggish = connect(&path);
        // Reads 64 MiB and does not look at them, until the server takes nothing more.
        slow.set_nonblocking(true).unwrap();
        for cookie in 0..64 {
            let _ = slow.write(&request(0, cookie, 0, 1 << 20));
        }
        // Announces a megabyte and sends half of it.
        sluggish.write_all(&request(1, 0, 0, 1 << 20)).unwrap();
        sluggish.write_all(&vec![1; 512 << 10]).unwrap();

        let mut client = connect(&path);
        for cookie in 0..50 {
            let data = noise(cookie, 1 << 20);
            client.write_all(&request(1, cookie, 8 * MIB, 1 << 20)).unwrap();
            client.write_all(&data).unwrap();
            assert_eq!(reply(&mut client), (0, cookie));
            client.write_all(&request(0, cookie, 8 * MIB, 1 << 20)).unwrap();
            assert_eq!(reply(&mut client), (0, cookie));
            let mut found = vec![0; 1 << 20];
            client.read_exact(&mut found).unwrap();
            assert!(found == data);
        }
        // The engine ends although two clients are in the middle of something.
        drop(slow);
        served.stop();
        drop(sluggish);
    }
}

#[test]
fn a_long_read_with_simple_replies_comes_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = memory(40 * MIB, 4 * MIB, |double| double);
    let path = listen(&mut engine, dir.path(), false);
    let served = Served::start(engine, false);
    let mut client = connect(&path);
    let data = noise(1, 32 << 20);
    client.write_all(&request(1, 1, MIB, 32 << 20)).unwrap();
    client.write_all(&data).unwrap();
    assert_eq!(reply(&mut client), (0, 1));
    // Other commands before and behind it.
    client.write_all(&request(0, 2, MIB, 512)).unwrap();
    client.write_all(&request(0, 3, MIB, 32 << 20)).unwrap();
    client.write_all(&request(3, 4, 0, 0)).unwrap();
    for (cookie, len) in [(2, 512), (3, 32 << 20), (4, 0)] {
        assert_eq!(reply(&mut client), (0, cookie));
        let mut found = vec![0; len];
        client.read_exact(&mut found).unwrap();
        let differs = found.iter().zip(&data).position(|(a, b)| a != b);
        assert_eq!(differs, None, "command {cookie}");
    }
    served.stop();
    assert!(hung_up(&mut client));
}

/// Commands are cut at multiples of 4 KiB: a journal keeps such a block whole only if one request
/// has all of it.
#[test]
fn long_commands_are_cut_where_blocks_of_the_array_begin() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let mut engine = memory(8 * MIB, 4 * MIB, |double| double.told(sender));
    let path = listen(&mut engine, dir.path(), false);
    let served = Served::start(engine, false);
    let mut client = connect(&path);
    for (offset, len) in [(512, 3 << 20), (MIB + 3584, (1 << 20) + 512), (4096, 2 << 20)] {
        client.write_all(&request(1, 1, offset, len)).unwrap();
        client.write_all(&noise(offset, len as usize)).unwrap();
        assert_eq!(reply(&mut client), (0, 1));
        client.write_all(&request(0, 2, offset, len)).unwrap();
        assert_eq!(reply(&mut client), (0, 2));
        let mut found = vec![0; len as usize];
        client.read_exact(&mut found).unwrap();
        assert!(found == noise(offset, len as usize));
        for request in told.try_iter() {
            let start = request.sector * SECTOR_BYTES;
            assert!(start == offset || start.is_multiple_of(4096), "{start} of {offset}+{len}");
        }
    }
    served.stop();
}

#[test]
fn refused_commands_leave_the_connection_usable() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = memory(MIB, 8 * MIB, |double| double);
    let path = listen(&mut engine, dir.path(), false);
    let served = Served::start(engine, false);
    let mut client = connect(&path);
    // Beyond the end, with payload; longer than the maximum, with payload; unknown; unaligned.
    client.write_all(&request(1, 1, MIB - 512, 1024)).unwrap();
    client.write_all(&vec![9; 1024]).unwrap();
    client.write_all(&request(1, 2, 0, (32 << 20) + 512)).unwrap();
    client.write_all(&vec![9; (32 << 20) + 512]).unwrap();
    client.write_all(&request(77, 3, 0, 512)).unwrap();
    client.write_all(&request(0, 4, 1, 512)).unwrap();
    client.write_all(&request(0, 5, u64::MAX - 511, 1024)).unwrap();
    client.write_all(&request(0, 6, 0, 0)).unwrap();
    for (cookie, error) in [(1, 28), (2, 22), (3, 22), (4, 22), (5, 22), (6, 22)] {
        assert_eq!(reply(&mut client), (error, cookie));
    }
    client.write_all(&request(0, 7, 0, 512)).unwrap();
    assert_eq!(reply(&mut client), (0, 7));
    let mut found = [1; 512];
    client.read_exact(&mut found).unwrap();
    assert_eq!(found, [0; 512]);
    // A wrong magic number ends the conversation, and only this one.
    let mut other = connect(&path);
    client.write_all(&[0; 28]).unwrap();
    assert!(hung_up(&mut client));
    other.write_all(&request(3, 8, 0, 0)).unwrap();
    assert_eq!(reply(&mut other), (0, 8));
    other.write_all(&request(2, 9, 0, 0)).unwrap();
    assert!(hung_up(&mut other));
    served.stop();
}

#[test]
fn clients_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = memory(MIB, 8 * MIB, |double| double);
    let path = listen(&mut engine, dir.path(), false);
    let served = Served::start(engine, false);
    for round in 0..100u64 {
        let mut client = connect(&path);
        match round % 3 {
            // In the middle of a write.
            0 => {
                client.write_all(&request(1, round, 0, 1 << 20)).unwrap();
                client.write_all(&vec![1; 100_000]).unwrap();
            }
            kind => {
                client.write_all(&request(0, round, 0, 65_536)).unwrap();
                if kind == 1 {
                    assert_eq!(reply(&mut client), (0, round));
                }
            }
        }
    }
    // All of their memory is back: the whole of it can be used.
    let answer = super::read(&served.submissions, 0, 1 << 20).recv().unwrap();
    assert!(answer.is_ok());
    served.stop();
}

/// A machine may be slow for once.
#[test]
fn an_engine_without_clients_ends_at_once() {
    let ends = |threads| {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = memory(MIB, MIB, |double| double);
        let _path = listen(&mut engine, dir.path(), false);
        let served = Served::start(engine, threads);
        let begun = Instant::now();
        served.stop();
        begun.elapsed()
    };
    for threads in [false, true] {
        let at_once = (0..3).any(|_| ends(threads) < Duration::from_secs(4));
        assert!(at_once, "threads {threads}: it waits each time");
    }
}
