//! Hands out parts of a stretch of memory: blocks of 1 MiB, whole or cut into slots.

use braid_array::Buf;

use super::memory::{ArenaPiece, PIECE_BYTES};

/// Size of the blocks of a pool.
pub(super) const BLOCK_BYTES: u64 = PIECE_BYTES;
/// Slot sizes.
const CLASSES: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, BLOCK_BYTES];
/// The last class: a block that is not cut.
const WHOLE: usize = CLASSES.len() - 1;

/// A block of one MiB, whole or cut into slots of one class.
#[derive(Clone, Debug)]
struct Block {
    class: usize,
    free: u32,
    /// Bit `i` set: slot `i` is free.
    map: [u64; 4],
}

/// Recent use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warmth {
    /// Its pages are the system's.
    Cold,
    /// Unused since the last look.
    Cooling,
    Warm,
}

/// Allocator over blocks of 1 MiB. A block whose slots are all free becomes whole again, so that
/// small requests do not fragment the arena for good.
#[derive(Debug)]
pub(super) struct Pool {
    start: u64,
    blocks: Vec<Block>,
    warmth: Vec<Warmth>,
    whole: Vec<u32>,
    /// Blocks with a free slot, for each class below the largest.
    partial: [Vec<u32>; WHOLE],
}

impl Pool {
    pub(super) fn new(start: u64, blocks: u32) -> Self {
        Self {
            start,
            blocks: vec![Block { class: WHOLE, free: 1, map: [0; 4] }; blocks as usize],
            warmth: vec![Warmth::Cold; blocks as usize],
            whole: (0..blocks).rev().collect(),
            partial: [const { Vec::new() }; WHOLE],
        }
    }

    /// Returns the bytes that it can hand out in all.
    pub(super) const fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Returns the bytes in blocks of which nothing is handed out.
    pub(super) const fn whole_bytes(&self) -> u64 {
        self.whole.len() as u64 * BLOCK_BYTES
    }

    #[cfg(test)]
    pub(super) const fn range(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.bytes()
    }

    /// Returns whether a buffer is from here.
    pub(super) const fn contains(&self, buf: Buf) -> bool {
        buf.offset >= self.start && buf.offset - self.start < self.bytes()
    }

    /// Returns the bytes that a buffer of this length occupies.
    pub(super) const fn occupied_bytes(len: u32) -> u64 {
        CLASSES[Self::class_of(len)]
    }

    const fn class_of(len: u32) -> usize {
        match len as u64 {
            0..=0x1000 => 0,
            0x1001..=0x1_0000 => 1,
            0x1_0001..=0x4_0000 => 2,
            _ => WHOLE,
        }
    }

    pub(super) fn allocate(&mut self, len: u32) -> Option<Buf> {
        assert!(len > 0 && u64::from(len) <= BLOCK_BYTES, "no class for {len} bytes");
        let class = Self::class_of(len);
        if class == WHOLE {
            let index = self.whole.pop()?;
            self.blocks[index as usize].free = 0;
            self.warmth[index as usize] = Warmth::Warm;
            return Some(Buf { offset: self.start + u64::from(index) * BLOCK_BYTES, len });
        }
        let index = match self.partial[class].last() {
            Some(&index) => index,
            None => {
                let index = self.whole.pop()?;
                self.blocks[index as usize] = Block::cut(class);
                self.partial[class].push(index);
                index
            }
        };
        let block = &mut self.blocks[index as usize];
        let slot = block.take();
        self.warmth[index as usize] = Warmth::Warm;
        if block.free == 0 {
            self.partial[class].pop();
        }
        let offset = self.start + u64::from(index) * BLOCK_BYTES + u64::from(slot) * CLASSES[class];
        Some(Buf { offset, len })
    }

    /// Tells which blocks have not been in use since the last call, and others in the same huge
    /// pages. True when there are
    /// others that will be told of next time, unless they are used.
    pub(super) fn cool(&mut self, mut cold: impl FnMut(ArenaPiece)) -> bool {
        let first = u32::try_from(self.start / PIECE_BYTES).expect("an arena of less than 2^52");
        let mut cooling = false;
        for (index, block) in (0u32..).zip(&self.blocks) {
            let in_use = block.class != WHOLE || block.free == 0;
            let warmth = &mut self.warmth[index as usize];
            match *warmth {
                Warmth::Warm if !in_use => {
                    *warmth = Warmth::Cooling;
                    cooling = true;
                }
                Warmth::Cooling => {
                    *warmth = Warmth::Cold;
                    cold(ArenaPiece(first + index));
                    // It came with a huge page, perhaps, and was never used itself.
                    let other = index ^ 1;
                    if self.warmth.get(other as usize) == Some(&Warmth::Cold) {
                        cold(ArenaPiece(first + other));
                    }
                }
                _ => {}
            }
        }
        cooling
    }

    pub(super) fn release(&mut self, offset: u64) {
        let within = offset.checked_sub(self.start).expect("buffer is not from the pool");
        let index = u32::try_from(within / BLOCK_BYTES).expect("buffer is from the pool");
        let block = &mut self.blocks[index as usize];
        let class = block.class;
        if class == WHOLE {
            assert_eq!(block.free, 0, "buffer released twice");
            block.free = 1;
            self.whole.push(index);
            return;
        }
        block.give(within % BLOCK_BYTES / CLASSES[class]);
        if block.free == 1 {
            self.partial[class].push(index);
        }
        if u64::from(block.free) == BLOCK_BYTES / CLASSES[class] {
            let at = self.partial[class].iter().position(|&other| other == index);
            self.partial[class].swap_remove(at.expect("a block with free slots is listed"));
            self.blocks[index as usize] = Block { class: WHOLE, free: 1, map: [0; 4] };
            self.whole.push(index);
        }
    }
}

impl Block {
    /// A block cut into free slots of a class.
    fn cut(class: usize) -> Self {
        let slots = BLOCK_BYTES / CLASSES[class];
        let mut map = [0; 4];
        for slot in 0..slots {
            map[(slot / 64) as usize] |= 1 << (slot % 64);
        }
        Self { class, free: u32::try_from(slots).expect("at most 256 slots"), map }
    }

    /// Takes the first free slot; there must be one.
    fn take(&mut self) -> u32 {
        let word = self.map.iter().position(|&word| word != 0).expect("a slot is free");
        let bit = self.map[word].trailing_zeros();
        self.map[word] &= self.map[word] - 1;
        self.free -= 1;
        u32::try_from(word).expect("four words") * 64 + bit
    }

    fn give(&mut self, slot: u64) {
        let word = (slot / 64) as usize;
        let bit = 1u64 << (slot % 64);
        assert_eq!(self.map[word] & bit, 0, "buffer released twice");
        self.map[word] |= bit;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_pool_gives_whole_blocks_again() {
        let mut pool = Pool::new(5 << 20, 2);
        for (round, len) in (0..).zip([4096, 65_536, 262_144]) {
            let small: Vec<Buf> = std::iter::from_fn(|| pool.allocate(len)).collect();
            assert_eq!(small.len(), (2 << 20) / len as usize);
            assert_eq!(pool.allocate(1), None);
            assert_eq!(pool.whole_bytes(), 0);
            // Release in another order each time.
            let mut order: Vec<usize> = (0..small.len()).collect();
            order.sort_by_key(|&i| (i as u64).wrapping_mul(0x9e37_79b9 + 2 * round) % 509);
            for i in order {
                pool.release(small[i].offset);
            }
            let large: Vec<Buf> = std::iter::from_fn(|| pool.allocate(1 << 20)).collect();
            assert_eq!(large.len(), 2);
            large.into_iter().for_each(|buf| pool.release(buf.offset));
        }
    }

    #[test]
    fn what_is_not_used_for_a_while_gets_cold() {
        let mut pool = Pool::new(4 << 20, 4);
        let cool = |pool: &mut Pool| {
            let mut cold = Vec::new();
            let more = pool.cool(|piece| cold.push(piece.0));
            (cold, more)
        };
        assert_eq!(cool(&mut pool), (vec![], false));
        let [a, b, c] = [1 << 20, 1 << 20, 4096].map(|len| pool.allocate(len).unwrap());
        pool.release(a.offset);
        assert_eq!(cool(&mut pool), (vec![], true));
        pool.release(b.offset);
        assert_eq!(cool(&mut pool), (vec![4], true));
        // Used again in time.
        let b = pool.allocate(1 << 20).unwrap();
        assert_eq!(cool(&mut pool), (vec![], false));
        pool.release(b.offset);
        pool.release(c.offset);
        assert_eq!(cool(&mut pool), (vec![], true));
        assert_eq!(cool(&mut pool), (vec![5, 4, 6, 7], false));
        assert_eq!(cool(&mut pool), (vec![], false));
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn a_second_release_is_noticed() {
        let mut pool = Pool::new(0, 1);
        let _other = pool.allocate(4096).unwrap();
        let buf = pool.allocate(4096).unwrap();
        pool.release(buf.offset);
        pool.release(buf.offset);
    }
}
