//! Data of the workload: every sector carries its own number and the serial of its write. Old,
//! misplaced and wrongly computed data can thus be told from the right data.

use braid_array::SECTOR_BYTES;

const SECTOR: usize = SECTOR_BYTES as usize;
const WORD: usize = 8;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: u64 = 0xd6e8_feb8_6659_fd93;

/// A write, numbered from 1. [`ZEROES`] stands for a fresh array and for write-zeroes.
pub type Serial = u32;

/// The serial of zeroes.
pub const ZEROES: Serial = 0;

/// Fills whole sectors, the first of which is array sector `first`.
pub fn fill(bytes: &mut [u8], first: u64, serial: Serial) {
    for (number, sector) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        let tag = tag(number, serial);
        let mut word = tag.wrapping_mul(MIX);
        for chunk in sector.chunks_exact_mut(WORD) {
            chunk.copy_from_slice(&word.to_le_bytes());
            word = word.wrapping_add(STEP);
        }
        sector[..WORD].copy_from_slice(&tag.to_le_bytes());
    }
}

/// Returns whether this sector holds that write's data.
pub fn matches(sector: &[u8], number: u64, serial: Serial) -> bool {
    if serial == ZEROES {
        return sector.iter().all(|&byte| byte == 0);
    }
    let tag = tag(number, serial);
    let mut word = tag.wrapping_mul(MIX);
    let mut differs = word_at(sector, 0) ^ tag;
    for chunk in sector[WORD..].chunks_exact(WORD) {
        word = word.wrapping_add(STEP);
        differs |= word_at(chunk, 0) ^ word;
    }
    differs == 0
}

/// Describes the content of a sector.
pub fn describe(sector: &[u8]) -> String {
    if matches(sector, 0, ZEROES) {
        return "zeroes".to_owned();
    }
    let tag = word_at(sector, 0);
    let number = tag & 0xffff_ffff;
    let serial = (tag >> 32) as Serial;
    if serial != ZEROES && matches(sector, number, serial) {
        return format!("sector {number} of write {serial}");
    }
    format!("garbage {tag:016x}")
}

/// A write, for people.
pub fn name(serial: Serial) -> String {
    if serial == ZEROES { "zeroes".to_owned() } else { format!("write {serial}") }
}

fn tag(number: u64, serial: Serial) -> u64 {
    number | u64::from(serial) << 32
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_names_its_sector_and_its_write() {
        let mut bytes = [0; 2 * SECTOR];
        fill(&mut bytes, 7, 3);
        assert!(matches(&bytes[SECTOR..], 8, 3));
        assert!(!matches(&bytes[SECTOR..], 7, 3));
        assert!(!matches(&bytes[SECTOR..], 8, 2));
        assert_eq!(describe(&bytes[SECTOR..]), "sector 8 of write 3");
        bytes[SECTOR + 300] ^= 1;
        assert!(!matches(&bytes[SECTOR..], 8, 3));
        assert!(describe(&bytes[SECTOR..]).starts_with("garbage"));
        assert!(matches(&[0; SECTOR], 9, ZEROES));
    }
}
