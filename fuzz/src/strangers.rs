//! Strangers at the ports of nodes that have a cluster key: noise, sessions of somebody without
//! the key or with a proof made up, all of it mutated, and connections that say nothing. What must
//! hold: none is told anything beyond the greeting, and each is hung up on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use braid_host::fabric::frame::{FrameHeader, HELLO_BYTES, Hello, TransportKind};

use crate::messages;
use crate::mutate::{Random, mutate};

/// As many at once as knock at all ports together.
const AT_ONCE: u64 = 16;
/// Nodes hang up on who says nothing for 5 s; a loaded machine may take longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// A greeting and a proof.
const MOST_ANSWERED_BYTES: usize = HELLO_BYTES + 64;

/// Knocks for so long.
///
/// # Errors
/// What a node did that it must not do.
pub fn run(ports: &[SocketAddr], limit: Duration, seed: u64) -> Result<u64, String> {
    let until = Instant::now() + limit;
    let tried = Mutex::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for stranger in 0..AT_ONCE {
            let tried = &tried;
            let failure = &failure;
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_add(stranger));
                let mut count = 0;
                while Instant::now() < until && failure.lock().is_ok_and(|it| it.is_none()) {
                    let port = ports[random.below(ports.len())];
                    if let Err(why) = knock(port, &mut random)
                        && let Ok(mut failure) = failure.lock()
                    {
                        *failure = Some(format!("{port}: {why}"));
                    }
                    count += 1;
                }
                if let Ok(mut tried) = tried.lock() {
                    *tried += count;
                }
            });
        }
    });
    let failure = failure.into_inner().map_err(|_| "a stranger panicked")?;
    failure.map_or_else(|| tried.into_inner().map_err(|_| "a stranger panicked".to_owned()), Err)
}

fn knock(port: SocketAddr, random: &mut Random) -> Result<(), String> {
    let mut stream = match TcpStream::connect_timeout(&port, PATIENCE) {
        Ok(stream) => stream,
        // So many knock that there is no place in the queue.
        Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
        Err(error) => return Err(format!("it is not there: {error}")),
    };
    let timeouts = stream.set_read_timeout(Some(PATIENCE));
    timeouts.and(stream.set_write_timeout(Some(PATIENCE))).map_err(|error| error.to_string())?;
    // It may hang up at any byte.
    let _ = stream.write_all(&words(random));
    if random.below(3) == 0 {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = 0;
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(bytes) => answer += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(format!("it did not hang up within {} s", PATIENCE.as_secs()));
            }
            Err(_) => return Ok(()),
        }
        if answer > MOST_ANSWERED_BYTES {
            return Err(format!("it told a stranger {answer} bytes"));
        }
    }
}

/// What a stranger says.
fn words(random: &mut Random) -> Vec<u8> {
    let kind = random.below(16);
    if kind == 0 {
        return Vec::new();
    }
    if kind < 3 {
        return noise(random);
    }
    let keyed = kind < 10;
    // Some say that they have the key of one array.
    let array = (random.below(2) == 0).then(|| [random.next() as u8; 16]);
    let mut bytes =
        Hello { kind: TransportKind::Tcp, keyed, encrypt: false, array, blob: Vec::new() }.encode();
    if keyed {
        bytes.extend((0..48).map(|_| random.next() as u8));
    }
    let whole = messages::make(random);
    let mut rest = whole.as_slice();
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(tail.len());
        let (message, tail) = tail.split_at(len);
        bytes.extend(FrameHeader::Message { bytes: message.len() as u32 }.encode());
        bytes.extend(message);
        let put = noise(random);
        let to = random.next() >> random.below(64);
        bytes.extend(FrameHeader::Put { bytes: put.len() as u32, to, imm: 1 }.encode());
        bytes.extend(put);
        rest = tail;
    }
    if random.below(2) == 0 {
        let reach = bytes.len().min(256);
        mutate(random, &mut bytes, reach);
    }
    bytes
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..1 + random.below(5000)).map(|_| random.next() as u8).collect()
}
