//! CRC-32C forwards and backwards. Its steps can be undone, so a sum over a number and bytes that
//! are known tells the number.

use crate::crc::table;

/// By Castagnoli's polynomial.
const TABLE: [u32; 256] = table(0x82f6_3b78);

/// The entry of the table that has this highest byte; each byte is that of one.
const BY_TOP: [u8; 256] = by_top();

const fn by_top() -> [u8; 256] {
    let mut by_top = [0; 256];
    let mut index = 0;
    while index < 256 {
        by_top[(TABLE[index] >> 24) as usize] = index as u8;
        index += 1;
    }
    by_top
}

/// The sum's state after these bytes, as file systems keep it: not complemented.
pub(super) fn update(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// The state before these bytes.
pub(super) fn undo(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(state, |state, byte| {
        let index = BY_TOP[(state >> 24) as usize];
        (state ^ TABLE[usize::from(index)]) << 8 | u32::from(index ^ byte)
    })
}

/// The four bytes, as a little-endian number, that lead from one state to the other.
pub(super) fn between(before: u32, after: u32) -> u32 {
    undo(after, &[0; 4]) ^ before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_undone() {
        // The check value of the catalogue of CRC algorithms for CRC-32/ISCSI.
        assert_eq!(!update(u32::MAX, b"123456789"), 0xe306_9283);
        let after = update(0x1234_5678, b"some bytes of an inode");
        assert_eq!(undo(after, b"some bytes of an inode"), 0x1234_5678);
        for number in [0_u32, 1, 11, 0xdead_beef] {
            let after = update(77, &number.to_le_bytes());
            assert_eq!(between(77, after), number);
        }
    }
}
