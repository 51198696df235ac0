//! Constants and encodings of the NBD protocol, from `doc/proto.md` of the NBD project
//! (<https://github.com/NetworkBlockDevice/nbd>). All numbers are big-endian.

/// Largest read or write that is served, which is the limit that every client may assume.
pub const MAX_PAYLOAD_BYTES: u32 = 32 << 20;

pub(crate) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Length of an option's header: magic, option, length.
pub(crate) const OPTION_HEADER_BYTES: usize = 16;
/// Length of a request in the transmission phase.
pub(crate) const REQUEST_BYTES: usize = 28;

/// Handshake flags, ours and the client's.
pub(crate) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options.
pub(crate) mod reply {
    const ERROR: u32 = 1 << 31;
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = ERROR + 1;
    pub(crate) const ERR_POLICY: u32 = ERROR + 2;
    pub(crate) const ERR_INVALID: u32 = ERROR + 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR + 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR + 6;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR + 9;
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of structured reply chunks.
mod chunk {
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    pub(crate) const FLAG_DONE: u16 = 1;
}

/// Errors of commands, the protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum NbdError {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
}

/// A command as it stands in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawRequest {
    pub(crate) flags: u16,
    pub(crate) kind: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl RawRequest {
    /// `None` when the magic number is wrong.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut reader = FieldReader(bytes);
        (reader.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: reader.u16()?,
            kind: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            len: reader.u32()?,
        })
    }
}

/// Reads fields off the front; `None` when the bytes do not suffice.
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length as u32, then as many bytes.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }
}

/// Appends the answer to an option.
pub(crate) fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    put_len(out, data.len());
    out.extend_from_slice(data);
}

/// Appends a length as u32.
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("answers are short");
    out.extend_from_slice(&len.to_be_bytes());
}

/// Appends a simple reply; after a successful read its data follow.
pub(crate) fn put_simple_reply(out: &mut Vec<u8>, cookie: u64, error: Option<NbdError>) {
    out.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&error.map_or(0, |error| error as u32).to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
}

fn put_chunk(out: &mut Vec<u8>, cookie: u64, done: bool, kind: u16, payload_bytes: u32) {
    let flags = if done { chunk::FLAG_DONE } else { 0 };
    out.extend_from_slice(&CHUNK_MAGIC.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&payload_bytes.to_be_bytes());
}

/// Appends the header of a chunk of data read; `len` bytes of data follow.
pub(crate) fn put_data_chunk(out: &mut Vec<u8>, cookie: u64, done: bool, offset: u64, len: u32) {
    put_chunk(out, cookie, done, chunk::OFFSET_DATA, len + 8);
    out.extend_from_slice(&offset.to_be_bytes());
}

/// Appends the chunk that ends a structured reply with an error.
pub(crate) fn put_error_chunk(out: &mut Vec<u8>, cookie: u64, error: NbdError, message: &str) {
    let message_len = u16::try_from(message.len()).expect("messages are short");
    put_chunk(out, cookie, true, chunk::ERROR, 6 + u32::from(message_len));
    out.extend_from_slice(&(error as u32).to_be_bytes());
    out.extend_from_slice(&message_len.to_be_bytes());
    out.extend_from_slice(message.as_bytes());
}

/// Appends the whole answer to a block status command: one extent of data.
pub(crate) fn put_all_data_status(out: &mut Vec<u8>, cookie: u64, context: u32, len: u32) {
    const DATA: u32 = 0;
    put_chunk(out, cookie, true, chunk::BLOCK_STATUS, 12);
    for field in [context, len, DATA] {
        out.extend_from_slice(&field.to_be_bytes());
    }
}
