//! Slices that are sealed on their way, where a node wants that: AES-256-GCM, with keys that each
//! connection has of its own. Slices are opened in place after they have arrived.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hmac;

/// Bytes that sealing adds.
pub(crate) const SEAL_BYTES: usize = 16;

/// Sealed with another key, or damaged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BrokenSlice;

/// Label from which these keys are derived, so that no other keys are equal.
const PURPOSE: &[u8] = b"braid slices AES-256-GCM";

/// Seal of slices of one direction of a connection. Nothing can be left out, repeated or exchanged,
/// nor be put elsewhere: each slice has its number, and its header is part of the seal.
pub(crate) struct SliceSeal {
    key: LessSafeKey,
    next: u64,
}

impl fmt::Debug for SliceSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SliceSeal")
    }
}

/// Seals of both directions: sending and receiving.
#[derive(Debug)]
pub(crate) struct SliceSeals {
    pub(crate) out: SliceSeal,
    pub(crate) into: SliceSeal,
}

impl SliceSeal {
    /// Creates the seal from a secret of this direction of the connection.
    pub(super) fn of(secret: &[u8; 32]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), PURPOSE);
        let key = UnboundKey::new(&AES_256_GCM, derived.as_ref()).expect("32 bytes");
        Self { key: LessSafeKey::new(key), next: 0 }
    }

    /// Never the same twice.
    fn nonce(&mut self) -> Nonce {
        let mut bytes = [0; NONCE_LEN];
        bytes[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(bytes)
    }

    /// Seals the next slice to be sent in place; returns the tag that follows it.
    pub(crate) fn close(&mut self, header: &[u8], slice: &mut [u8]) -> [u8; SEAL_BYTES] {
        let nonce = self.nonce();
        let header = Aad::from(header);
        let tag = self.key.seal_in_place_separate_tag(nonce, header, slice).expect("it is short");
        tag.as_ref().try_into().expect("16 bytes")
    }

    /// Opens the slice that was heard next.
    pub(crate) fn open(
        &mut self,
        header: &[u8],
        slice: &mut [u8],
        tag: [u8; SEAL_BYTES],
    ) -> Result<(), BrokenSlice> {
        let nonce = self.nonce();
        let header = Aad::from(header);
        let opened = self.key.open_in_place_separate_tag(nonce, header, Tag::from(tag), slice, 0..);
        opened.map(drop).map_err(|_| BrokenSlice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_come_back_and_nothing_else_does() {
        let [mut out, mut into] = [SliceSeal::of(&[1; 32]), SliceSeal::of(&[1; 32])];
        let mut slice: Vec<u8> = (0..100).collect();
        let tag = out.close(b"there", &mut slice);
        assert!(slice.iter().zip(0..100).any(|(&sealed, plain)| sealed != plain));
        assert_eq!(into.open(b"there", &mut slice, tag), Ok(()));
        assert_eq!(slice, (0..100).collect::<Vec<u8>>());
        // Elsewhere; damaged; twice; by another; one too few.
        let fresh = |out: &mut SliceSeal| {
            let mut slice = vec![9; 100];
            let tag = out.close(b"there", &mut slice);
            (slice, tag)
        };
        let (mut slice, tag) = fresh(&mut out);
        assert_eq!(into.open(b"elsew", &mut slice, tag), Err(BrokenSlice));
        let (mut slice, tag) = fresh(&mut out);
        slice[99] ^= 1;
        assert_eq!(into.open(b"there", &mut slice, tag), Err(BrokenSlice));
        let (slice, tag) = fresh(&mut out);
        assert_eq!(into.open(b"there", &mut slice.clone(), tag), Ok(()));
        assert_eq!(into.open(b"there", &mut slice.clone(), tag), Err(BrokenSlice));
        let (mut slice, tag) = fresh(&mut SliceSeal::of(&[2; 32]));
        assert_eq!(into.open(b"there", &mut slice, tag), Err(BrokenSlice));
    }
}
