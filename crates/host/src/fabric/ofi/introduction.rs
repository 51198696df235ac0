//! Messages of the two sides over TCP; all numbers little-endian. At once, each side sends its
//! endpoint's address: the length (16 bits) and the bytes. Words of five numbers of 64 bits follow.
//! An admission is 1, then of the window that the other may write to: the key, the device's address
//! of its first byte, its place in the arena, and its length in bytes. A farewell is 2, then the
//! messages and the puts sent in all, and two zeroes.

use std::io::{self, Read, Write};

use super::domain::RemoteRegion;
use super::endpoint::MAX_NAME_BYTES;
use super::outbox::Counts;

/// Says the name of an endpoint.
pub(super) fn write_name(name: &[u8], mut to: impl Write) -> io::Result<()> {
    let length = u16::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut out = length.to_le_bytes().to_vec();
    out.extend(name);
    to.write_all(&out)
}

/// Hears the other's.
pub(super) fn read_name(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let length = usize::from(u16::from_le_bytes(length));
    if !(1..=MAX_NAME_BYTES).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut name = vec![0; length];
    from.read_exact(&mut name)?;
    Ok(name)
}

/// A word after the introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The other may put here.
    Admission(RemoteRegion),
    /// Numbers of messages and puts sent in all.
    Farewell(Counts),
}

/// Length of a word.
pub(super) const WORD_BYTES: usize = 40;

impl Word {
    /// Encodes the word.
    pub(super) fn encode(self) -> [u8; WORD_BYTES] {
        let numbers = match self {
            Self::Admission(RemoteRegion { key, base, start, bytes }) => {
                [1, key, base, start, bytes]
            }
            Self::Farewell(Counts { messages, puts }) => [2, messages, puts, 0, 0],
        };
        let mut out = [0; WORD_BYTES];
        for (place, number) in out.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// Decodes a word.
    pub(super) fn decode(bytes: &[u8; WORD_BYTES]) -> Option<Self> {
        let mut numbers = [0; WORD_BYTES / 8];
        for (number, place) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = u64::from_le_bytes(*place);
        }
        match numbers {
            [1, key, base, start, bytes] => {
                Some(Self::Admission(RemoteRegion { key, base, start, bytes }))
            }
            [2, messages, puts, 0, 0] => Some(Self::Farewell(Counts { messages, puts })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_nothing_longer_is_read() {
        let mut bytes = Vec::new();
        write_name(b"somewhere", &mut bytes).unwrap();
        assert_eq!(read_name(&bytes[..]).unwrap(), b"somewhere");
        assert!(read_name(&bytes[..bytes.len() - 1]).is_err());
        for length in [0u16, 257, u16::MAX] {
            bytes[..2].copy_from_slice(&length.to_le_bytes());
            let error = read_name(&bytes[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
        }
    }

    #[test]
    fn words_come_back_and_others_mean_nothing() {
        let window =
            RemoteRegion { key: 0x1234, base: 0xffff_8000_0000_0001, start: 7, bytes: 1 << 40 };
        let counts = Counts { messages: 7, puts: u64::MAX - 1 };
        for word in [Word::Admission(window), Word::Farewell(counts)] {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        let mut bytes = Word::Farewell(counts).encode();
        bytes[39] = 1;
        assert_eq!(Word::decode(&bytes), None);
        assert_eq!(Word::decode(&[0; WORD_BYTES]), None);
    }
}
