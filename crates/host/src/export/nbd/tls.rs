//! TLS of a connection: received bytes are decrypted, sent bytes are encrypted. No I/O.

use std::io::{self, Read, Write};
use std::sync::Arc;

use braid_array::Buf;
use rustls::{ServerConfig, ServerConnection};

use crate::arena::Memory;
use crate::driver::OutgoingBytes;

/// Result of decrypting.
#[derive(Debug)]
pub(super) enum Decrypted {
    /// Number of the client's bytes, at least one.
    Bytes(u32),
    /// More has to come from the socket.
    NeedMore,
    /// The client has ended it.
    Over,
}

/// TLS of one connection, from the option that asked for it on.
#[derive(Debug)]
pub(super) struct Tls {
    connection: ServerConnection,
    /// Bytes received from the socket; `start..end` has not been decrypted.
    input: Buf,
    start: u32,
    end: u32,
    /// The messages in front were put together before it began.
    in_clear: usize,
    /// An empty message that has been large: the others are kept small.
    spare: Box<OutgoingBytes>,
}

impl Tls {
    /// Begins: `came` of `input` has come already, and `in_clear` messages are to be sent as they
    /// are.
    pub(super) fn new(
        config: &Arc<ServerConfig>,
        (input, came): (Buf, std::ops::Range<u32>),
        in_clear: usize,
    ) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(Arc::clone(config))?;
        // Messages are no longer than they may be.
        connection.set_buffer_limit(None);
        Ok(Self {
            connection,
            input,
            start: came.start,
            end: came.end,
            in_clear,
            spare: Box::default(),
        })
    }

    /// Returns the buffer to receive into. All of its content has been decrypted.
    pub(super) const fn input(&self) -> Buf {
        self.input
    }

    /// Notes the length of received bytes.
    pub(super) const fn received(&mut self, len: u32) {
        (self.start, self.end) = (0, len);
    }

    /// Opens as much as there is, or fits, into `bufs`, one after the other. On an error there is
    /// still something to be sent, which says why.
    pub(super) fn open(&mut self, memory: &Memory, bufs: [Buf; 2]) -> io::Result<Decrypted> {
        let mut moved = 0;
        for buf in bufs {
            // SAFETY: no receive is in flight, so the buffers are the connection's alone, and not
            // the one that is opened.
            let to = unsafe { memory.bytes_mut(buf) };
            let mut filled = 0;
            while filled < to.len() {
                match self.connection.reader().read(&mut to[filled..]) {
                    Ok(0) if moved + filled == 0 => return Ok(Decrypted::Over),
                    Ok(0) => break,
                    Ok(len) => filled += len,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    Err(_) if self.start == self.end => break,
                    Err(_) => self.take_in(memory)?,
                }
            }
            moved += filled;
        }
        match u32::try_from(moved).expect("no more than fits into two buffers") {
            0 => Ok(Decrypted::NeedMore),
            moved => Ok(Decrypted::Bytes(moved)),
        }
    }

    /// Gives a part of the received bytes to the connection.
    fn take_in(&mut self, memory: &Memory) -> io::Result<()> {
        let unread = self.input.slice(self.start, self.end - self.start);
        // SAFETY: no receive is in flight.
        let mut unread = unsafe { memory.bytes(unread) };
        let taken = self.connection.read_tls(&mut unread)?;
        self.start += u32::try_from(taken).expect("no more than there was");
        self.connection.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }

    /// Returns whether TLS has records of its own to send.
    pub(super) fn wants_to_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Returns whether the next message goes out unencrypted.
    pub(super) const fn skips(&mut self) -> bool {
        let skips = self.in_clear > 0;
        self.in_clear = self.in_clear.saturating_sub(1);
        skips
    }

    /// A message that was sent is empty.
    pub(super) fn keep(&mut self, message: Box<OutgoingBytes>) {
        self.spare = message;
    }

    /// Encrypts a message, together with pending records of TLS itself.
    pub(super) fn seal(
        &mut self,
        message: &mut OutgoingBytes,
        memory: &Memory,
    ) -> Box<OutgoingBytes> {
        const IN_MEMORY: &str = "what is in memory is written";
        let Self { connection, spare, .. } = self;
        let mut sealed = std::mem::take(spare);
        let out = &mut sealed.bytes;
        message.each(memory, |bytes| {
            connection.writer().write_all(bytes).expect(IN_MEMORY);
            while connection.wants_write() {
                connection.write_tls(out).expect(IN_MEMORY);
            }
        });
        while connection.wants_write() {
            connection.write_tls(out).expect(IN_MEMORY);
        }
        sealed
    }
}
