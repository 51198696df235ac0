//! An NBD client that has several requests under way and says of each when it was answered: who
//! judges what a power cut leaves has to know that exactly. It starts no program, of which libnbd's
//! shell takes a sixth of a second. The protocol is the one of the NBD project's `doc/proto.md`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const PART_BYTES: u64 = 1 << 20;
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;

const FUA: u16 = 1;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

/// A connection to an array.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    size_bytes: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// As the request was called.
    pub(crate) cookie: u64,
    pub(crate) done: bool,
}

impl Client {
    /// To what listens on a socket.
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, size_bytes: 0 };
        let greeting: [u8; 18] = client.bytes()?;
        assert_eq!((&greeting[..8], &greeting[8..16]), (&b"NBDMAGIC"[..], &OPTION_MAGIC[..]));
        // Fixed newstyle, no zeroes; then the export without a name, as it is.
        let wanted = [&3_u32.to_be_bytes()[..], OPTION_MAGIC, &GO.to_be_bytes()].concat();
        client.stream.write_all(&[&wanted[..], &6_u32.to_be_bytes(), &[0; 6]].concat())?;
        loop {
            let header: [u8; 20] = client.bytes()?;
            let kind = u32::from_be_bytes(header[12..16].try_into().expect("four bytes"));
            let length = u32::from_be_bytes(header[16..].try_into().expect("four bytes"));
            let mut body = vec![0; length as usize];
            client.stream.read_exact(&mut body)?;
            match kind {
                ACK => return Ok(client),
                INFO if body[..2] == [0, 0] => {
                    client.size_bytes =
                        u64::from_be_bytes(body[2..10].try_into().expect("eight bytes"));
                }
                INFO => {}
                refused => panic!("the export was refused: {refused:#x}"),
            }
        }
    }

    pub(crate) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Begins a write.
    pub(crate) fn write(
        &mut self,
        cookie: u64,
        offset: u64,
        data: &[u8],
        fua: bool,
    ) -> io::Result<()> {
        let flags = if fua { FUA } else { 0 };
        self.ask(flags, WRITE, cookie, offset, data.len() as u64)?;
        self.stream.write_all(data)
    }

    /// Writes all of this, a part after the other, and flushes.
    pub(crate) fn write_all(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        for (number, part) in data.chunks(PART_BYTES as usize).enumerate() {
            let offset = offset + number as u64 * PART_BYTES;
            self.write(offset, offset, part, false)?;
            self.done("writing", offset)?;
        }
        self.flush(0)?;
        self.done("flushing", offset)
    }

    /// Begins a flush.
    pub(crate) fn flush(&mut self, cookie: u64) -> io::Result<()> {
        self.ask(0, FLUSH, cookie, 0, 0)
    }

    /// The next answer to a write or flush, whichever it is.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        const MAGIC: [u8; 4] = 0x6744_6698_u32.to_be_bytes();
        let header: [u8; 16] = self.bytes()?;
        assert_eq!(header[..4], MAGIC, "no simple reply");
        let cookie = u64::from_be_bytes(header[8..].try_into().expect("eight bytes"));
        Ok(Answer { cookie, done: header[4..8] == [0; 4] })
    }

    /// All that the array holds, while nothing else is under way.
    pub(crate) fn read_all(&mut self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.size_bytes as usize];
        for (number, part) in content.chunks_mut(PART_BYTES as usize).enumerate() {
            let offset = number as u64 * PART_BYTES;
            self.ask(0, READ, offset, offset, part.len() as u64)?;
            self.done("reading", offset)?;
            self.stream.read_exact(part)?;
        }
        Ok(content)
    }

    /// The answer to the only request that is under way: that it was done.
    fn done(&mut self, what: &str, offset: u64) -> io::Result<()> {
        if self.answer()?.done {
            return Ok(());
        }
        Err(io::Error::other(format!("{what} at {offset} failed")))
    }

    /// Ends the connection; the server knows when this returns.
    pub(crate) fn close(mut self) -> io::Result<()> {
        self.ask(0, DISCONNECT, 0, 0, 0)?;
        self.stream.read_to_end(&mut Vec::new()).map(|_| ())
    }

    fn ask(&mut self, flags: u16, kind: u16, cookie: u64, at: u64, bytes: u64) -> io::Result<()> {
        const MAGIC: [u8; 4] = 0x2560_9513_u32.to_be_bytes();
        let bytes = u32::try_from(bytes).expect("a length that fits").to_be_bytes();
        let head = [&MAGIC[..], &flags.to_be_bytes(), &kind.to_be_bytes()].concat();
        let rest = [&cookie.to_be_bytes()[..], &at.to_be_bytes(), &bytes].concat();
        self.stream.write_all(&[head, rest].concat())
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
