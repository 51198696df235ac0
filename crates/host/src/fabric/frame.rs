//! Encoding of all that is sent over a connection; all numbers little-endian. Decoding takes
//! hostile bytes.
//!
//! First, each side says hello, without waiting for the other's:
//!
//! | offset | bytes | |
//! | --- | --- | --- |
//! | 0 | 8 | `BRAIDNET` |
//! | 8 | 2 | version of the protocol |
//! | 10 | 1 | the fabric: 1 tcp, 2 ofi |
//! | 11 | 1 | 1 when a proof of the cluster key follows (`seal`), 2 with sealed slices (`slices`) |
//! | | | 3 and 4 the same, with the key of one array |
//! | 12 | 4 | length of what follows, at most 1024, and 16 with the key of one array |
//! | 16 | 16 | with such a key alone: the array's UUID |
//! | | | what the fabric has to tell (nothing for tcp) |
//!
//! For tcp, frames follow, each a header and its payload; with a key, those of messages are sealed,
//! which makes them 16 bytes longer. Where slices are sealed, 16 bytes that are not counted follow
//! each put:
//!
//! | offset | bytes | |
//! | --- | --- | --- |
//! | 0 | 4 | 1 message, 2 put |
//! | 4 | 4 | length of the payload: 1 to 8192 of a message (not sealed), at least 1 of a put |
//! | 8 | 8 | of a put: where it goes in the receiver's arena; else 0 |
//! | 16 | 4 | of a put: what it is; else 0 |

use std::fmt;
use std::str::FromStr;

use braid_array::fabric::MAX_MESSAGE_BYTES;
use braid_array::refusal::{Advised, Next, Refusal};
use braid_cluster::wire::PROTOCOL_VERSION;

use super::seal::SEAL_BYTES;

const MAGIC: &[u8; 8] = b"BRAIDNET";

/// The fixed part of a hello.
pub const HELLO_BYTES: usize = 16;

/// The most a fabric can tell in its hello.
pub const MAX_BLOB_BYTES: usize = 1024;

/// Length of the UUID of the array that a key is limited to.
const ARRAY_BYTES: usize = 16;

/// The header of a frame.
pub const HEADER_BYTES: usize = 20;

/// Transport of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Frames over TCP.
    Tcp,
    /// Libfabric over this provider.
    Ofi(Provider),
}

/// The name of one of libfabric's providers, or of none: then libfabric chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// Zeroes at the end.
    name: [u8; MAX_PROVIDER_BYTES],
}

/// The longest name of a provider.
const MAX_PROVIDER_BYTES: usize = 32;

impl Provider {
    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let name = self.name.split(|&byte| byte == 0).next()?;
        std::str::from_utf8(name).ok().filter(|name| !name.is_empty())
    }

    /// Creates a provider from its name; `None` for an invalid name.
    fn named(name: &str) -> Option<Self> {
        let mut bytes = [0; MAX_PROVIDER_BYTES];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        (!name.is_empty() && !name.contains('\0')).then_some(Self { name: bytes })
    }
}

impl TransportKind {
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => 1,
            Self::Ofi(_) => 2,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Tcp),
            2 => Some(Self::Ofi(Provider::default())),
            _ => None,
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Ofi(provider) => match provider.name() {
                Some(name) => write!(f, "ofi:{name}"),
                None => f.write_str("ofi"),
            },
        }
    }
}

impl FromStr for TransportKind {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text.split_once(':') {
            None if text == "tcp" => Some(Self::Tcp),
            None if text == "ofi" => Some(Self::Ofi(Provider::default())),
            Some(("ofi", name)) => Provider::named(name).map(Self::Ofi),
            _ => None,
        }
        .ok_or_else(|| {
            Refusal::new(format!("no fabric is called {text}"), "use tcp, ofi or ofi:PROVIDER")
        })
    }
}

/// First message of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The fabric it uses.
    pub kind: TransportKind,
    /// Proof of the cluster key is sent, and expected.
    pub keyed: bool,
    /// Set if slices are sealed as well, with the key.
    pub encrypt: bool,
    /// Its key is that of this array alone.
    pub array: Option<[u8; ARRAY_BYTES]>,
    /// Data of the fabric; at most [`MAX_BLOB_BYTES`].
    pub blob: Vec<u8>,
}

/// Reason for which the answering process cannot be used. Continues a sentence that begins with its
/// name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Another protocol.
    #[error("answers, but is not a braid node")]
    Stranger,
    /// Another version.
    #[error("is a node of protocol version {0}, this is version {PROTOCOL_VERSION}")]
    Version(u16),
    /// Another fabric.
    #[error("uses fabric {theirs}, this is {ours}")]
    Fabric {
        /// The other's.
        theirs: TransportKind,
        /// Our own.
        ours: TransportKind,
    },
    /// The other wants the cluster key, and we have none.
    #[error("wants the cluster key")]
    Keyed,
    /// We want it, and it has none.
    #[error("has no cluster key, this has one")]
    Keyless,
    /// A dialled process needs the whole cluster key.
    #[error("has the key of one array alone, which makes it no node")]
    Limited,
}

impl Advised for HelloError {
    fn next(&self) -> Next {
        match self {
            Self::Stranger => "check that it is a braid node".into(),
            Self::Version(_) => "run the same version on both".into(),
            Self::Fabric { .. } => "use the same on both".into(),
            Self::Keyed => "give its file with --key".into(),
            Self::Keyless => "start it with --key".into(),
            Self::Limited => "start it with the cluster key".into(),
        }
    }
}

impl Hello {
    /// Encodes the hello.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let blob = &self.blob[..self.blob.len().min(MAX_BLOB_BYTES)];
        let mut out = MAGIC.to_vec();
        out.extend(PROTOCOL_VERSION.to_le_bytes());
        let array = if self.keyed { self.array } else { None };
        let limited = array.as_ref().map_or(&[][..], |array| &array[..]);
        let keyed = match (self.keyed, array.is_some()) {
            (false, _) => 0,
            (true, limited) => 1 + u8::from(self.encrypt) + 2 * u8::from(limited),
        };
        out.extend([self.kind.number(), keyed]);
        out.extend(((limited.len() + blob.len()) as u32).to_le_bytes());
        out.extend(limited);
        out.extend(blob);
        out
    }

    /// Returns whether this fixed part asks for sealed slices.
    #[must_use]
    pub const fn encrypts(head: &[u8; HELLO_BYTES]) -> bool {
        matches!(head[11], 2 | 4)
    }

    /// Returns whether this fixed part announces the key of one array, which follows.
    const fn is_limited(head: &[u8; HELLO_BYTES]) -> bool {
        matches!(head[11], 3 | 4)
    }

    /// Splits the rest after the fixed part into the array that its key is limited to, if it is,
    /// and the blob.
    ///
    /// # Errors
    /// [`HelloError`] when the rest is too short.
    pub fn rest<'a>(
        head: &[u8; HELLO_BYTES],
        rest: &'a [u8],
    ) -> Result<(Option<[u8; ARRAY_BYTES]>, &'a [u8]), HelloError> {
        if !Self::is_limited(head) {
            return Ok((None, rest));
        }
        let (array, blob) = rest.split_first_chunk().ok_or(HelloError::Stranger)?;
        Ok((Some(*array), blob))
    }

    /// Checks the fixed part of the other's hello against ours, and tells how much follows it.
    ///
    /// # Errors
    /// [`HelloError`] when these two cannot talk.
    pub fn check(&self, head: &[u8; HELLO_BYTES]) -> Result<usize, HelloError> {
        let [magic @ .., v0, v1, kind, keyed, l0, l1, l2, l3] = head;
        if magic != MAGIC {
            return Err(HelloError::Stranger);
        }
        let version = u16::from_le_bytes([*v0, *v1]);
        if version != PROTOCOL_VERSION {
            return Err(HelloError::Version(version));
        }
        let theirs = TransportKind::from_number(*kind).ok_or(HelloError::Stranger)?;
        if *keyed > 4 {
            return Err(HelloError::Stranger);
        }
        if theirs.number() != self.kind.number() {
            return Err(HelloError::Fabric { theirs, ours: self.kind });
        }
        match (*keyed != 0, self.keyed) {
            (true, false) => return Err(HelloError::Keyed),
            (false, true) => return Err(HelloError::Keyless),
            _ => {}
        }
        let rest = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
        let least = if Self::is_limited(head) { ARRAY_BYTES } else { 0 };
        let fits = least..=least + MAX_BLOB_BYTES;
        let rest = usize::try_from(rest).ok().filter(|rest| fits.contains(rest));
        rest.ok_or(HelloError::Stranger)
    }
}

/// The header of a frame over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameHeader {
    /// A message.
    Message {
        /// Length: 1 to [`MAX_MESSAGE_BYTES`], and the bytes that a seal adds.
        bytes: u32,
    },
    /// A buffer.
    Put {
        /// Length: at least 1.
        bytes: u32,
        /// Place in the receiver's arena.
        to: u64,
        /// Tag of the put.
        imm: u32,
    },
}

/// Bytes that are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sent bytes that mean nothing")]
pub struct FrameError;

impl FrameHeader {
    /// Returns the length of the payload.
    #[must_use]
    pub const fn payload_bytes(self) -> u32 {
        match self {
            Self::Message { bytes } | Self::Put { bytes, .. } => bytes,
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, bytes, to, imm) = match self {
            Self::Message { bytes } => (1u32, bytes, 0u64, 0u32),
            Self::Put { bytes, to, imm } => (2, bytes, to, imm),
        };
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&bytes.to_le_bytes());
        out[8..16].copy_from_slice(&to.to_le_bytes());
        out[16..].copy_from_slice(&imm.to_le_bytes());
        out
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`FrameError`] for anything that `encode` does not make of a valid header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let [k0, k1, k2, k3, l0, l1, l2, l3, to @ .., i0, i1, i2, i3] = *bytes;
        let kind = u32::from_le_bytes([k0, k1, k2, k3]);
        let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        let to = u64::from_le_bytes(to);
        let imm = u32::from_le_bytes([i0, i1, i2, i3]);
        match (kind, bytes) {
            (1, 1..) if bytes as usize <= MAX_MESSAGE_BYTES + SEAL_BYTES && to == 0 && imm == 0 => {
                Ok(Self::Message { bytes })
            }
            (2, 1..) => Ok(Self::Put { bytes, to, imm }),
            _ => Err(FrameError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(kind: TransportKind) -> Hello {
        Hello { kind, keyed: false, encrypt: false, array: None, blob: b"address".to_vec() }
    }

    fn head(hello: &Hello) -> [u8; HELLO_BYTES] {
        hello.encode()[..HELLO_BYTES].try_into().unwrap()
    }

    #[test]
    fn fabrics_have_names() {
        let ofi = |name| TransportKind::Ofi(Provider::named(name).unwrap());
        let names = [
            ("tcp", TransportKind::Tcp),
            ("ofi", TransportKind::Ofi(Provider::default())),
            ("ofi:shm", ofi("shm")),
            ("ofi:tcp;ofi_rxm", ofi("tcp;ofi_rxm")),
        ];
        for (name, kind) in names {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
        let long = format!("ofi:{}", "x".repeat(33));
        for name in ["", "TCP", "tcp:", "ofi:", "ofi:a\0b", long.as_str()] {
            let error = name.parse::<TransportKind>().unwrap_err();
            let expected = format!("no fabric is called {name}; use tcp, ofi or ofi:PROVIDER");
            assert_eq!(error.to_string(), expected);
        }
        // Whoever names a provider talks to whoever lets libfabric choose.
        assert_eq!(hello(ofi("shm")).check(&head(&hello(names[1].1))), Ok(7));
    }

    #[test]
    fn two_of_a_kind_understand_each_other() {
        let ours = hello(TransportKind::Tcp);
        assert_eq!(ours.check(&head(&ours)), Ok(7));
        assert_eq!(&ours.encode()[HELLO_BYTES..], b"address");
    }

    #[test]
    fn whoever_is_different_is_told_why() {
        let ours = hello(TransportKind::Tcp);
        let said = |head| Refusal::from(ours.check(&head).unwrap_err()).to_string();
        let stranger = "answers, but is not a braid node; check that it is a braid node";
        assert_eq!(said(*b"HTTP/1.1 400 Bad"), stranger);
        let mut newer = head(&ours);
        newer[8..10].copy_from_slice(&(PROTOCOL_VERSION + 2).to_le_bytes());
        let expected = format!(
            "is a node of protocol version {}, this is version {PROTOCOL_VERSION}; \
             run the same version on both",
            PROTOCOL_VERSION + 2
        );
        assert_eq!(said(newer), expected);
        assert_eq!(
            said(head(&hello(TransportKind::Ofi(Provider::default())))),
            "uses fabric ofi, this is tcp; use the same on both"
        );
        let keyed = Hello { keyed: true, ..hello(TransportKind::Tcp) };
        assert_eq!(said(head(&keyed)), "wants the cluster key; give its file with --key");
        let expected = "has no cluster key, this has one; start it with --key";
        let reason = keyed.check(&head(&ours)).unwrap_err();
        assert_eq!(Refusal::from(reason).to_string(), expected);
        let mut long = head(&ours);
        long[12..].copy_from_slice(&1025u32.to_le_bytes());
        assert_eq!(said(long), stranger);
    }

    #[test]
    fn the_key_of_one_array_is_said_before_all_else() {
        let node = Hello { keyed: true, ..hello(TransportKind::Tcp) };
        for encrypt in [false, true] {
            let client = Hello { encrypt, array: Some([7; 16]), ..node.clone() };
            let said = client.encode();
            let head = head(&client);
            assert_eq!(node.check(&head), Ok(16 + 7));
            assert_eq!(Hello::encrypts(&head), encrypt);
            let rest = &said[HELLO_BYTES..];
            assert_eq!(Hello::rest(&head, rest), Ok((Some([7; 16]), &b"address"[..])));
            assert_eq!(Hello::rest(&head, &rest[..15]), Err(HelloError::Stranger));
            let mut other = head;
            for bytes in [0_u32, 15, 16 + 1025, u32::MAX] {
                other[12..].copy_from_slice(&bytes.to_le_bytes());
                assert_eq!(node.check(&other), Err(HelloError::Stranger), "{bytes}");
            }
            other[12..].copy_from_slice(&(16_u32 + 1024).to_le_bytes());
            assert_eq!(node.check(&other), Ok(16 + 1024));
            assert_eq!(hello(TransportKind::Tcp).check(&head), Err(HelloError::Keyed));
        }
        // Without one nothing of it is said, and what comes after it is no longer.
        let plain = hello(TransportKind::Tcp);
        assert_eq!(Hello { array: Some([7; 16]), ..plain.clone() }.encode(), plain.encode());
        assert_eq!(Hello::rest(&head(&node), b"address"), Ok((None, &b"address"[..])));
        for keyed in 5..=255 {
            let mut other = head(&node);
            other[11] = keyed;
            assert_eq!(node.check(&other), Err(HelloError::Stranger));
        }
    }

    #[test]
    fn headers_come_back_and_nothing_else_does() {
        let message = FrameHeader::Message { bytes: 8208 };
        let put = FrameHeader::Put { bytes: 1 << 20, to: 0x1_2345_6789, imm: 0xdead_beef };
        for header in [message, put] {
            assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
            for at in 0..HEADER_BYTES {
                for flip in 0..8 {
                    let mut bytes = header.encode();
                    bytes[at] ^= 1 << flip;
                    if let Ok(other) = FrameHeader::decode(&bytes) {
                        assert_eq!(other.encode(), bytes);
                    }
                }
            }
        }
        let refused = [
            FrameHeader::Message { bytes: 0 },
            FrameHeader::Message { bytes: 8209 },
            FrameHeader::Put { bytes: 0, to: 0, imm: 0 },
        ];
        for header in refused {
            assert_eq!(FrameHeader::decode(&header.encode()), Err(FrameError), "{header:?}");
        }
    }
}
