//! Deterministic noise.

/// `SplitMix64`.
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Numbers at which decoders go wrong.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x1ff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 55,
    i64::MAX as u64,
    u64::MAX,
];

/// A few changes within the first `reach` bytes, and sometimes another length.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>, reach: usize) {
    for _ in 0..=random.below(4) {
        let reach = reach.min(bytes.len());
        if reach < 8 {
            break;
        }
        match random.below(4) {
            0 => bytes[random.below(reach)] ^= 1 << random.below(8),
            1 => bytes[random.below(reach)] = random.next() as u8,
            _ => {
                let width = 1 << random.below(4);
                let at = random.below(reach / width) * width;
                let edge = EDGES[random.below(EDGES.len())];
                let near = edge.wrapping_add(random.below(3) as u64).wrapping_sub(1);
                let value = if random.below(3) == 0 { random.next() } else { near };
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
    }
    if random.below(16) == 0 {
        let length = random.below(bytes.len() + 1);
        bytes.truncate(length);
    }
}
