//! A client of NBD servers that reads, one request after the other. The protocol is the one of the
//! NBD project's `doc/proto.md`: fixed newstyle, `NBD_OPT_GO`, simple replies.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Backend;
use super::uri::{ServerAddress, Uri};
use crate::nbd_proto::{
    FieldReader, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC,
    command, handshake, info, option, reply,
};
use crate::system::describe;

/// Limit on waiting for an answer of a server.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest request.
const REQUEST_BYTES: usize = 2 << 20;
/// Longest reply accepted about an export.
const MAX_REPLY_BYTES: u32 = 64 << 10;
/// A server may ask that requests are multiples of more than a sector; not of more than this.
const MAX_BLOCK_BYTES: u32 = 64 << 10;

/// A disk at a server.
#[derive(Debug)]
pub(super) struct ServerDisk {
    uri: Uri,
    export: ServerExport,
    /// `None` after an error, until the next read.
    connection: Mutex<Option<ServerConnection>>,
}

/// Description of a disk by its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerExport {
    bytes: u64,
    /// Requests are multiples of this.
    block_bytes: u32,
}

#[derive(Debug)]
struct ServerConnection {
    stream: Stream,
    cookie: u64,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ServerDisk {
    /// Connects to it. The file is the socket.
    pub(super) fn connect(uri: Uri) -> io::Result<(Self, File)> {
        let stream = Stream::connect(&uri.server)?;
        let socket = stream.as_file()?;
        let (connection, export) = ServerConnection::open(stream, &uri.export)?;
        Ok((Self { uri, export, connection: Mutex::new(Some(connection)) }, socket))
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.export.bytes
    }

    /// Reads whole blocks, over a new connection if the last one broke.
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let was_there = slot.is_some();
        let first = self.read_over(&mut slot, bytes, offset);
        match first {
            // What the server says of these bytes it says again.
            Err(_) if slot.is_none() && was_there => self.read_over(&mut slot, bytes, offset),
            result => result,
        }
    }

    fn read_over(
        &self,
        slot: &mut Option<ServerConnection>,
        bytes: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect_again()?,
        };
        for (part, at) in bytes.chunks_mut(REQUEST_BYTES).zip(0u64..) {
            let offset = offset + at * REQUEST_BYTES as u64;
            if let Some(error) = connection.read(part, offset)? {
                *slot = Some(connection);
                return Err(error);
            }
        }
        *slot = Some(connection);
        Ok(())
    }

    fn connect_again(&self) -> io::Result<ServerConnection> {
        let stream = Stream::connect(&self.uri.server)?;
        let (connection, export) = ServerConnection::open(stream, &self.uri.export)?;
        if export != self.export {
            return Err(io::Error::other("the server has another disk of this name now"));
        }
        Ok(connection)
    }
}

impl Backend for ServerDisk {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let block = u64::from(self.export.block_bytes);
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.export.bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if offset.is_multiple_of(block) && end.is_multiple_of(block) {
            return self.read(bytes, offset);
        }
        let start = offset / block * block;
        let stop = whole_blocks(end, block, self.export.bytes);
        let mut covering = vec![0; (stop - start) as usize];
        self.read(&mut covering, start)?;
        let head = (offset - start) as usize;
        bytes.copy_from_slice(&covering[head..head + bytes.len()]);
        Ok(())
    }
}

/// The end of the blocks that end here or behind, but not beyond the end of the disk, which may be
/// as large as numbers are.
fn whole_blocks(end: u64, block: u64, all: u64) -> u64 {
    end.checked_next_multiple_of(block).map_or(all, |stop| stop.min(all))
}

impl ServerConnection {
    /// Chooses an export.
    fn open(mut stream: Stream, export: &str) -> io::Result<(Self, ServerExport)> {
        let head: [u8; 18] = stream.array()?;
        let mut fields = FieldReader(&head);
        if fields.u64() != Some(INIT_MAGIC) || fields.u64() != Some(OPTION_MAGIC) {
            return Err(io::Error::other("no NBD server, or one of before 2011, listens there"));
        }
        let flags = fields.u16().unwrap_or(0);
        if flags & handshake::FIXED_NEWSTYLE == 0 {
            return Err(io::Error::other("the NBD server is too old"));
        }
        let ours = handshake::FIXED_NEWSTYLE | flags & handshake::NO_ZEROES;
        let wanted = [info::BLOCK_SIZE];
        let mut data = Vec::new();
        data.extend(u32::try_from(export.len()).map_err(io::Error::other)?.to_be_bytes());
        data.extend(export.as_bytes());
        data.extend(1u16.to_be_bytes());
        data.extend(wanted[0].to_be_bytes());
        let mut request = u32::from(ours).to_be_bytes().to_vec();
        request.extend(OPTION_MAGIC.to_be_bytes());
        request.extend(option::GO.to_be_bytes());
        request.extend((data.len() as u32).to_be_bytes());
        request.extend(data);
        stream.write_all(&request)?;
        let mut found = ServerExport { bytes: 0, block_bytes: 512 };
        loop {
            let (kind, data) = stream.option_reply()?;
            match kind {
                reply::ACK => break,
                reply::INFO => found.note(&data),
                kind => return Err(refused(kind, &data)),
            }
        }
        if !(found.block_bytes.is_power_of_two() && found.block_bytes <= MAX_BLOCK_BYTES) {
            let reason = format!("the disk has blocks of {} bytes", found.block_bytes);
            return Err(io::Error::other(reason));
        }
        Ok((Self { stream, cookie: 0 }, found))
    }

    /// Reads. The inner error is the server's for these bytes, after which the connection goes on.
    fn read(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<Option<io::Error>> {
        self.cookie += 1;
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(0u16.to_be_bytes());
        request.extend(command::READ.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((bytes.len() as u32).to_be_bytes());
        self.stream.write_all(&request)?;
        let head: [u8; 16] = self.stream.array()?;
        let mut fields = FieldReader(&head);
        let magic = fields.u32();
        let error = fields.u32();
        let cookie = fields.u64();
        if magic != Some(SIMPLE_REPLY_MAGIC) || cookie != Some(self.cookie) {
            return Err(io::Error::other("the NBD server breaks the protocol"));
        }
        match error {
            Some(0) => {}
            // The protocol's numbers are Linux's.
            error => {
                let errno = error.and_then(|error| i32::try_from(error).ok());
                let errno = errno.unwrap_or(libc::EIO);
                return Ok(Some(io::Error::from_raw_os_error(errno)));
            }
        }
        self.stream.read_exact(bytes)?;
        Ok(None)
    }
}

impl ServerExport {
    /// Takes in one piece of information.
    fn note(&mut self, data: &[u8]) {
        let mut fields = FieldReader(data);
        match fields.u16() {
            Some(info::EXPORT) => self.bytes = fields.u64().unwrap_or(0),
            Some(info::BLOCK_SIZE) => {
                self.block_bytes = fields.u32().map_or(512, |least| least.max(512));
            }
            _ => {}
        }
    }
}

/// Returns the reason for which a server refuses an export.
fn refused(kind: u32, data: &[u8]) -> io::Error {
    let reason = match kind {
        reply::ERR_UNKNOWN => "the server has no export of that name",
        reply::ERR_TLS_REQD => "the server asks for TLS",
        reply::ERR_UNSUP => "the NBD server is too old",
        _ => "the server refuses the export",
    };
    let said: String = String::from_utf8_lossy(data).chars().filter(|c| !c.is_control()).collect();
    let said = said.trim();
    io::Error::other(if said.is_empty() { reason.into() } else { format!("{reason}: {said}") })
}

impl Stream {
    fn connect(server: &ServerAddress) -> io::Result<Self> {
        let stream = match server {
            ServerAddress::Unix(path) => Self::Unix(UnixStream::connect(path).map_err(plain)?),
            ServerAddress::Tcp { host, port } => {
                let mut last = io::Error::other("the host has no address");
                let addresses = (host.as_str(), *port).to_socket_addrs();
                let found = addresses.map_err(plain)?.find_map(|address| {
                    let connected = TcpStream::connect_timeout(&address, ANSWER);
                    connected.map_err(|error| last = plain(error)).ok()
                });
                Self::Tcp(found.ok_or(last)?)
            }
        };
        stream.set_timeouts()?;
        Ok(stream)
    }

    fn set_timeouts(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER))?;
                stream.set_write_timeout(Some(ANSWER))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(ANSWER))?;
                stream.set_write_timeout(Some(ANSWER))
            }
        }
    }

    fn as_file(&self) -> io::Result<File> {
        let socket: OwnedFd = match self {
            Self::Tcp(stream) => stream.try_clone()?.into(),
            Self::Unix(stream) => stream.try_clone()?.into(),
        };
        Ok(socket.into())
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a server's reply to an option: the kind and its data.
    fn option_reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let head: [u8; 20] = self.array()?;
        let mut fields = FieldReader(&head);
        let magic = fields.u64();
        fields.u32();
        let kind = fields.u32();
        let len = fields.u32();
        let (Some(OPTION_REPLY_MAGIC), Some(kind), Some(len @ ..=MAX_REPLY_BYTES)) =
            (magic, kind, len)
        else {
            return Err(io::Error::other("the NBD server breaks the protocol"));
        };
        let mut data = vec![0; len as usize];
        self.read_exact(&mut data)?;
        Ok((kind, data))
    }
}

/// The reason alone, without the number.
fn plain(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), describe(&error))
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_with_a_disk_that_is_as_large_as_numbers_are() {
        assert_eq!(whole_blocks(5000, 4096, 1 << 20), 8192);
        assert_eq!(whole_blocks(5000, 4096, 6000), 6000);
        assert_eq!(whole_blocks(u64::MAX - 511, 4096, u64::MAX), u64::MAX);
    }
}
