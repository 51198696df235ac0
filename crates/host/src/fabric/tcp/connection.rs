//! One TCP connection.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use braid_array::action::Event;
use braid_array::fabric::PeerId;
use braid_array::{Buf, IoError, IoId};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};

use super::input::Input;
use super::output::{Frame, Output};
use crate::arena::FabricMemory;
use crate::driver::{Driver, Op, OutgoingBytes};
use crate::fabric::seal::Seals;
use crate::system::describe;
use crate::token::{FabricToken, Token};

/// Time without an answer of its kernel after which a peer is gone, unless the machine has set
/// another. Two nodes that are cut off from each other both stay connected to the client, so only
/// this limit lets them notice it.
const SILENCE: Duration = Duration::from_secs(4);

/// Interval of the kernel's keep-alive probes, and longest idle time before the first one.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_IDLE_SECONDS: u64 = 32_767;

/// Limits on bytes in the kernel, and on those of them that are unsent. Small limits make the time
/// of answers to puts reflect the speed of the link. A round trip of 0.3 ms at 10 Gbit/s fits.
const SEND_BUFFER_BYTES: usize = 512 << 10;
const UNSENT_BYTES: u32 = 128 << 10;

#[derive(Debug)]
pub(super) struct PeerConnection {
    socket: Arc<OwnedFd>,
    peer: PeerId,
    input: Input,
    output: Output,
    receiving: bool,
    sending: bool,
    patience: PeerPatience,
    life: Life,
}

/// Policy towards a peer that sends while it leaves our data unread. At least one of two ends
/// always receives, so the two never wait for each other in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerPatience {
    /// Always received from: this side dialled.
    Endless,
    /// Received from, so far.
    Limited,
    /// Left too much unread; not received from until it has taken some.
    Lost,
    /// `Lost` once, and received from again.
    Regained,
}

/// The puts of a message, and how it went with that.
type Sent = (Vec<IoId>, Result<(), IoError>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The machine hung up.
    Closing,
    /// Closed after the hang-up.
    Left,
    /// Failed; the machine is to be told the reason.
    Broken(String),
}

impl PeerConnection {
    pub(super) fn new(stream: TcpStream, peer: PeerId, room: Buf, seals: Option<Seals>) -> Self {
        let mut slices_out = None;
        let mut slices_into = None;
        let split = |Seals { out, into, slices }| {
            (slices_out, slices_into) = slices.map(|both| (both.out, both.into)).unzip();
            (out, into)
        };
        let (out, into) = seals.map(split).unzip();
        Self {
            socket: Arc::new(OwnedFd::from(stream)),
            peer,
            input: Input::new(room, into, slices_into),
            output: Output::new(out, slices_out),
            receiving: false,
            sending: false,
            patience: if is_accepted(peer) { PeerPatience::Limited } else { PeerPatience::Endless },
            life: Life::Open,
        }
    }

    /// Lets the peer put into this window from now on.
    pub(super) fn admit(&mut self, window: Range<u64>) {
        self.input.admit(window);
    }

    /// Sets the time of silence after which the peer is gone.
    pub(super) fn bear_silence(&mut self, silence: Duration) {
        if let Err(error) = bear_silence(&self.socket, silence) {
            self.break_off(format!("its socket cannot be set up: {}", describe(&error)));
        }
    }

    /// Receives again, unless the peer first has to take more of the queued data.
    pub(super) fn go_on(&mut self, driver: &mut Driver<Token>, index: usize) {
        let may_wait = self.patience != PeerPatience::Endless && self.life == Life::Open;
        if may_wait && self.output.is_deep() {
            self.patience = PeerPatience::Lost;
        } else {
            self.receive(driver, index);
        }
    }

    /// Receives again if it did not, and the peer has taken enough or is to hear the end.
    pub(super) fn resume(&mut self, driver: &mut Driver<Token>, index: usize) {
        let over = matches!(self.life, Life::Left | Life::Broken(_));
        let may = self.output.is_shallow() || self.life == Life::Closing;
        if self.patience == PeerPatience::Lost && may && !over {
            self.patience = PeerPatience::Regained;
            self.receive(driver, index);
        }
    }

    /// Returns whether the peer has left much unread at some time.
    pub(super) const fn was_held_back(&self) -> bool {
        matches!(self.patience, PeerPatience::Lost | PeerPatience::Regained)
    }

    /// Starts the next receive.
    pub(super) fn receive(&mut self, driver: &mut Driver<Token>, index: usize) {
        let socket = Arc::clone(&self.socket);
        let bufs = self.input.next();
        let token = Token::Fabric(FabricToken::Receive(index));
        driver.start(token, Op::Receive { socket, bufs });
        self.receiving = true;
    }

    /// Takes in received bytes; returns true when more is to be received. An error ends the
    /// connection; it is a reason for people.
    pub(super) fn received(
        &mut self,
        place: &FabricMemory,
        result: Result<u32, Errno>,
        events: &mut VecDeque<Event>,
    ) -> Result<bool, String> {
        self.receiving = false;
        match result {
            // There may be something to send yet.
            Ok(0) | Err(_) if self.life == Life::Closing => Ok(false),
            Ok(0) => Err("it closed the connection".into()),
            Ok(bytes) if self.life == Life::Open => {
                self.input.take_in(place, self.peer, bytes, events).map(|()| true)
            }
            Ok(_) if self.life == Life::Closing => Ok(true),
            Ok(_) => Err("it is over".into()),
            Err(errno) => Err(why(errno)),
        }
    }

    /// Returns whether puts are queued.
    pub(super) const fn has_puts(&self) -> bool {
        self.output.has_puts()
    }

    /// Appends a frame to the queue.
    pub(super) fn enqueue(&mut self, frame: Frame) -> Result<(), String> {
        self.output.enqueue(frame)
    }

    /// Sends queued frames, if no send is in flight. Returns the result of a send that ended at
    /// once; then there may be more to send.
    pub(super) fn send(
        &mut self,
        place: &FabricMemory,
        driver: &mut Driver<Token>,
        index: usize,
    ) -> Option<Sent> {
        if self.sending || matches!(self.life, Life::Left | Life::Broken(_)) {
            return None;
        }
        let Some(message) = self.output.next(place) else {
            if self.life == Life::Closing {
                // All is on its way. The other side sees the end of it and closes, too.
                let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
            }
            return None;
        };
        let token = Token::Fabric(FabricToken::Send(index));
        let done = driver.send(token, Arc::clone(&self.socket), message);
        self.sending = done.is_none();
        done.map(|done| self.sent(done.result, done.message))
    }

    /// A message was sent, or not.
    pub(super) fn sent(
        &mut self,
        result: Result<u32, Errno>,
        message: Option<Box<OutgoingBytes>>,
    ) -> Sent {
        self.sending = false;
        if let Err(errno) = result {
            self.break_off(why(errno));
        }
        (self.output.sent(message), result.map(drop).map_err(|_| IoError::GONE))
    }

    /// The machine hangs up.
    pub(super) fn close(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Closing;
            if self.input.abandon() {
                // What is under way into the arena must not arrive there any more.
                let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
            }
        } else if matches!(self.life, Life::Broken(_)) {
            self.life = Life::Left;
        }
    }

    /// Ends the connection at once; operations in the driver complete soon.
    pub(super) fn break_off(&mut self, reason: String) {
        match self.life {
            Life::Open => self.life = Life::Broken(reason),
            Life::Closing => self.life = Life::Left,
            Life::Left | Life::Broken(_) => return,
        }
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Ended, and nothing of it is in the driver.
    pub(super) fn is_over(&self) -> bool {
        let ended = match self.life {
            Life::Open => false,
            Life::Closing => self.output.is_empty(),
            Life::Left | Life::Broken(_) => true,
        };
        ended && !self.receiving && !self.sending
    }

    /// Its buffer.
    pub(super) const fn seals_slices(&self) -> bool {
        self.output.seals_slices()
    }

    pub(super) const fn room(&self) -> Buf {
        self.input.room()
    }

    /// Closes it: the peer, its puts that were not sent, and why it is over if the machine does
    /// not know yet.
    pub(super) fn bury(self) -> (PeerId, Vec<IoId>, Option<String>) {
        let told = if let Life::Broken(reason) = self.life { Some(reason) } else { None };
        (self.peer, self.output.unsent(), told)
    }
}

const fn is_accepted(peer: PeerId) -> bool {
    peer.0 >= PeerId::FIRST_ACCEPTED
}

/// Sets a socket up: small things go out at once, little waits in the kernel, and a dead host is
/// noticed.
pub(in crate::fabric) fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = stream.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    // The kernel doubles it for its own needs.
    sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES / 2)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_INTERVAL)?;
    bear_silence(stream, SILENCE)?;
    set_unsent_limit(stream)
}

/// The connection breaks when the peer's kernel has not answered for so long. While nothing is
/// being sent the kernel asks for an answer, and counts in seconds: the first is asked for early
/// enough for another one to be due, and that makes two seconds at least.
pub(in crate::fabric) fn bear_silence(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    let idle = (silence / 2).as_secs().clamp(1, MAX_IDLE_SECONDS);
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(idle))?;
    // The kernel takes no more.
    let millis = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    let millis = millis.min(i32::MAX.unsigned_abs());
    Ok(sockopt::set_tcp_user_timeout(&socket, millis)?)
}

/// TCP_NOTSENT_LOWAT.
fn set_unsent_limit(stream: &TcpStream) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let bytes = UNSENT_BYTES;
    // SAFETY: the option takes an int, and points to one.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the reason for the end of a connection, for people.
pub(super) fn why(errno: Errno) -> String {
    match errno {
        Errno::TIMEDOUT => "it does not answer any more".into(),
        Errno::CONNRESET | Errno::PIPE => "it broke the connection off".into(),
        _ => format!("the connection fails: {}", describe(&errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns the timeouts of a socket: for unanswered data, and of idleness before probes.
    fn borne(stream: &TcpStream) -> (u32, Duration) {
        let sent = sockopt::tcp_user_timeout(stream);
        let idle = sockopt::tcp_keepidle(stream);
        (sent.unwrap(), idle.unwrap())
    }

    #[test]
    fn a_connection_bears_as_much_silence_as_was_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&stream).unwrap();
        assert_eq!(borne(&stream), (4000, Duration::from_secs(2)));
        let longest = Duration::from_secs(MAX_IDLE_SECONDS);
        for (silence, millis, idle) in [
            (Duration::from_secs(1), 1000, Duration::from_secs(1)),
            (Duration::from_secs(48), 48_000, Duration::from_secs(24)),
            (Duration::from_millis(u32::MAX.into()), i32::MAX.unsigned_abs(), longest),
        ] {
            bear_silence(&stream, silence).unwrap();
            assert_eq!(borne(&stream), (millis, idle));
            assert!(sockopt::socket_keepalive(&stream).unwrap());
        }
    }
}
