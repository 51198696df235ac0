//! Little-endian numbers at fixed offsets of a metadata block. The callers check the length of
//! the block once; an offset outside of it is a mistake in the codec, not in the input.

/// The number of two bytes at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// The number of four bytes at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// The signed number of four bytes at `at`.
pub(super) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(array_at(bytes, at))
}

/// The number of eight bytes at `at`.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// `N` bytes at `at`.
pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Puts a field's bytes at `at`.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// md's superblock checksum: the sum of all little-endian words (a last odd half word counts),
/// with the carry added once. The checksum field itself must be zero.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    if let [low, high] = rest {
        sum += u64::from(u16::from_le_bytes([*low, *high]));
    }
    #[allow(clippy::cast_possible_truncation, reason = "md keeps the low 32 bits")]
    let folded = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    folded
}
