//! The line: what one plain TCP stream carries over the same links, the yardstick of everything
//! else.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::system_error;
use crate::rig::place::Site;
use crate::rig::spaces::SpaceHost;

/// Time until the stream has its full window and the burst that the shaping allows is over.
const WARM_UP: Duration = Duration::from_millis(300);
const PIECE_BYTES: usize = 256 << 10;
/// Time until something has to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures the line from the first client to the first node, in bytes a second.
pub fn measure(site: &Site, seconds: f64) -> Result<f64, String> {
    let length = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    stream(site, WARM_UP, length).map_err(|error| system_error(&error))
}

fn stream(site: &Site, warm_up: Duration, length: Duration) -> io::Result<f64> {
    let to = SpaceHost::Node(0);
    let listener = site.within(to, || TcpListener::bind((site.ip(to), 0)))?;
    let address = listener.local_addr()?;
    // The kernel connects what is accepted afterwards.
    let sender = site.within(SpaceHost::Client(0), || TcpStream::connect(address))?;
    let (receiver, _) = listener.accept()?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let sending = thread::Builder::new().name("line".into()).spawn(move || send(sender))?;
    let rate = receive(receiver, warm_up, length);
    // Nothing of it is on the links any more when the next measurement begins.
    let _ = sending.join();
    rate
}

/// Sends until the receiver closes, who has seen enough then.
fn send(mut stream: TcpStream) {
    let piece = vec![0x5a; PIECE_BYTES];
    while stream.write_all(&piece).is_ok() {}
}

/// Counts what comes between two arrivals, about `length` apart, in bytes a second.
fn receive(mut stream: TcpStream, warm_up: Duration, length: Duration) -> io::Result<f64> {
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
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    #[test]
    fn what_is_sent_is_counted() {
        let site = Site { braid: Tool::at("braid", "no".into()), lab: None };
        let length = Duration::from_millis(20);
        let rate = stream(&site, length, length).expect("a stream");
        assert!(rate > 1e6, "{rate} bytes a second over loopback");
    }
}
