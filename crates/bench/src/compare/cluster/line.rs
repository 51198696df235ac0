//! The line: what one plain TCP stream carries over the same links, the yardstick of everything
//! else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, system_error};
use crate::rig::place::Site;
use crate::rig::process::Process;
use crate::rig::spaces::SpaceHost;

/// Time until the stream has its full window and the burst that the shaping allows is over.
const WARM_UP: Duration = Duration::from_millis(300);
const PIECE_BYTES: usize = 256 << 10;
/// Time until a process has to say something.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that came, and their time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Received {
    /// All that came in that time.
    pub bytes: u64,
    /// Length of that time.
    pub seconds: f64,
}

/// Measures the line from the first client to the first node, in bytes a second. Messages of the
/// processes go below `scratch`.
pub(super) fn measure(site: &Site, seconds: f64, scratch: &Path) -> Result<f64, String> {
    let system = |error: io::Error| system_error(&error);
    let from = SpaceHost::Client(0);
    let to = SpaceHost::Node(0);
    let mut command = site.braid(to);
    command.args(["bench", "line", "--listen", &format!("{}:0", site.ip(to))]);
    command.args(["--seconds", &seconds.to_string()]);
    let mut receiver = Process::start(command, scratch.join("receiver.log")).map_err(system)?;
    // It says where it listens, then what it received.
    let address = receiver.read_line(PATIENCE)?;
    let mut command = site.braid(from);
    command.args(["bench", "line", "--connect", &address]);
    let mut sender = Process::start(command, scratch.join("sender.log")).map_err(system)?;
    let said = receiver.read_line(PATIENCE + Duration::from_secs_f64(seconds))?;
    let received: Received = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    // Nothing of it is on the links any more when the next measurement begins.
    receiver.finish(PATIENCE)?;
    sender.finish(PATIENCE)?;
    Ok(received.bytes as f64 / received.seconds)
}

/// Listens for the stream that counts; port 0 is any that is free.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(refused)
}

/// Receives one stream for so long, after it has warmed up.
pub fn receive_one(listener: &TcpListener, seconds: f64) -> Result<Received, Failure> {
    let length = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let received = listener.accept().and_then(|(stream, _)| receive(stream, WARM_UP, length));
    received.map_err(refused)
}

/// The other end: sends until the receiver has enough.
pub fn send_to(address: SocketAddr) -> Result<(), Failure> {
    TcpStream::connect(address).and_then(send).map_err(refused)
}

fn refused(error: io::Error) -> Failure {
    Failure::system("line", &error, "check the address")
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
    let start = Instant::now();
    let mut bytes = 0;
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
