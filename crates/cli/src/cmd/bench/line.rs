//! The line: what one plain TCP stream carries over the same links, the yardstick of everything
//! else.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::lab::Host;
use super::place::{Process, Site};
use crate::args::LineArgs;
use crate::failure::{Failure, system_error};
use crate::output;

/// Until the stream has its full window and the burst that the shaping allows is over.
const WARM_UP: Duration = Duration::from_millis(300);
const PIECE_BYTES: usize = 256 << 10;
const SERVICE: u16 = 99;

/// What came, and how long it took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Received {
    bytes: u64,
    seconds: f64,
}

/// Measures the line from the first client to the first node, in bytes a second.
pub(super) fn measure(site: &Site, seconds: f64) -> io::Result<f64> {
    let (from, to) = (Host::Client(0), Host::Node(0));
    let address = site.address(to, SERVICE)?.to_string();
    let mut receiver = site.braid(to)?;
    receiver.args(["bench", "line", "--listen", &address, "--seconds", &seconds.to_string()]);
    let mut receiver = Process(receiver.stdout(Stdio::piped()).spawn()?);
    let mut said = BufReader::new(receiver.0.stdout.take().expect("it is piped"));
    let mut line = String::new();
    // It says when it listens, then what it received.
    said.read_line(&mut line)?;
    let mut sender = site.braid(from)?;
    let _sender = Process(sender.args(["bench", "line", "--connect", &address]).spawn()?);
    line.clear();
    said.read_line(&mut line)?;
    let received: Received = serde_json::from_str(&line)?;
    Ok(received.bytes as f64 / received.seconds)
}

/// `braid bench line`: one end of the stream.
pub(super) fn run(args: &LineArgs) -> Result<(), Failure> {
    let refused = |error: io::Error| {
        Failure::refused("bench", "line", system_error(&error), "check the address")
    };
    if let Some(address) = args.connect {
        return TcpStream::connect(address).and_then(send).map_err(refused);
    }
    let address = args.listen.expect("clap wants one of the two");
    let listener = TcpListener::bind(address).map_err(refused)?;
    output::answer("listening\n")?;
    let (stream, _) = listener.accept().map_err(refused)?;
    let length = Duration::try_from_secs_f64(args.seconds).unwrap_or_default();
    let received = receive(stream, WARM_UP, length).map_err(refused)?;
    output::answer(&format!("{}\n", serde_json::json!(received)))
}

fn send(mut stream: TcpStream) -> io::Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    // The receiver closes when it has seen enough.
    while stream.write_all(&piece).is_ok() {}
    Ok(())
}

/// Counts what comes between two arrivals, about `length` apart.
fn receive(mut stream: TcpStream, warm_up: Duration, length: Duration) -> io::Result<Received> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut next = || match stream.read(&mut piece) {
        Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        Ok(bytes) => Ok(bytes as u64),
        Err(error) => Err(error),
    };
    next()?;
    let began = Instant::now();
    while began.elapsed() < warm_up {
        next()?;
    }
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < length {
        bytes += next()?;
    }
    Ok(Received { bytes, seconds: start.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let sender = std::thread::spawn(move || send(TcpStream::connect(address)?));
        let (stream, _) = listener.accept().expect("a connection");
        let length = Duration::from_millis(20);
        let received = receive(stream, length, length).expect("a stream");
        assert!(received.bytes > 0 && received.seconds >= 0.02, "{received:?}");
        sender.join().expect("no panic").expect("no error");
    }
}
