//! What the two sides tell each other over TCP; all numbers little-endian. First, at once, each
//! its introduction: the length of the endpoint's name (16 bits), then of the arena the key, what
//! its first byte is called and how many bytes it has (64 bits each), and the name. Whoever hangs
//! up then says farewell: how many messages and puts he has sent in all (64 bits each).

use std::io::{self, Read, Write};

use super::domain::Remote;
use super::endpoint::MAX_NAME_BYTES;
use super::outbox::Counts;

/// Where an endpoint and its arena are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) name: Vec<u8>,
    pub(super) arena: Remote,
}

impl Introduction {
    /// Says it.
    pub(super) fn write(&self, mut to: impl Write) -> io::Result<()> {
        let length = u16::try_from(self.name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut out = length.to_le_bytes().to_vec();
        out.extend(self.arena.key.to_le_bytes());
        out.extend(self.arena.base.to_le_bytes());
        out.extend(self.arena.bytes.to_le_bytes());
        out.extend(&self.name);
        to.write_all(&out)
    }

    /// Hears the other's.
    pub(super) fn read(mut from: impl Read) -> io::Result<Self> {
        let mut length = [0; 2];
        from.read_exact(&mut length)?;
        let mut number = || {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let arena = Remote { key: number()?, base: number()?, bytes: number()? };
        let length = usize::from(u16::from_le_bytes(length));
        if !(1..=MAX_NAME_BYTES).contains(&length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut name = vec![0; length];
        from.read_exact(&mut name)?;
        Ok(Self { name, arena })
    }
}

/// A farewell.
pub(super) const FAREWELL_BYTES: usize = 16;

impl Counts {
    /// As a farewell.
    pub(super) fn encode(self) -> [u8; FAREWELL_BYTES] {
        let both = u128::from(self.puts) << 64 | u128::from(self.messages);
        both.to_le_bytes()
    }

    /// From a farewell.
    pub(super) const fn decode(bytes: [u8; FAREWELL_BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { messages: both as u64, puts: (both >> 64) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn introductions_come_back_and_nothing_longer_is_read() {
        let arena = Remote { key: 0x1234, base: 0xffff_8000_0000_0001, bytes: 1 << 40 };
        let said = Introduction { name: b"somewhere".to_vec(), arena };
        let mut bytes = Vec::new();
        said.write(&mut bytes).unwrap();
        assert_eq!(Introduction::read(&bytes[..]).unwrap(), said);
        assert!(Introduction::read(&bytes[..bytes.len() - 1]).is_err());
        for length in [0u16, 257, u16::MAX] {
            bytes[..2].copy_from_slice(&length.to_le_bytes());
            let error = Introduction::read(&bytes[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
        }
    }

    #[test]
    fn farewells_come_back() {
        let counts = Counts { messages: 7, puts: u64::MAX - 1 };
        assert_eq!(Counts::decode(counts.encode()), counts);
    }
}
