//! What is written by seeds with a reckoning of their own: every word of a block is the number of
//! the write that it is of.

pub(super) const BLOCK_BYTES: usize = 4096;

/// Of which write a sector is, if of one.
pub(super) fn write_of(sector: &[u8]) -> Option<u64> {
    let mut words = sector.chunks_exact(8);
    let first = words.next()?;
    let number = u64::from_le_bytes(first.try_into().ok()?);
    words.all(|word| word == first).then_some(number)
}

/// Fills the blocks of a write, with numbers from `first` on.
pub(super) fn fill(bytes: &mut [u8], first: u64) {
    for (number, block) in (first..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
        block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    }
}
