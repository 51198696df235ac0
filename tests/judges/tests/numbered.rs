//! Blocks that say which write they hold, as `logs/stamp.c` numbers them, and what they may hold.

use std::collections::BTreeMap;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
const CHUNK_BLOCKS: usize = 16;

/// What blocks hold by what the writers know: the rest is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    blocks: BTreeMap<usize, (u32, Option<u32>)>,
}

impl Holds {
    /// Lines `BLOCK NUMBER`, or `BLOCK OLD NEW` of a write that was not answered.
    pub(crate) fn read(text: &str) -> Self {
        let mut holds = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ').map(|word| word.parse().expect("a number"));
            let block: u32 = words.next().expect("a block");
            let old = words.next().expect("a number");
            holds.blocks.insert(block as usize, (old, words.next()));
        }
        holds
    }

    /// The blocks that hold something else, but for those of unanswered writes that are `open`.
    pub(crate) fn judge(&self, content: &[u8], open: &dyn Fn(usize) -> bool) -> Vec<String> {
        let mut findings = Vec::new();
        for (block, bytes) in content.chunks(BLOCK_BYTES).enumerate() {
            let (old, new) = self.blocks.get(&block).copied().unwrap_or((0, None));
            let found = number(bytes, block);
            let fits = found == Some(old) || new.is_some() && found == new;
            if !fits && (new.is_none() || !open(block)) {
                findings.push(format!("block {block}: {found:?}, not {old} or {new:?}"));
            }
        }
        findings
    }
}

/// Where blocks lie in a RAID-5 of left layouts and chunks of 64 KiB.
pub(crate) struct Place {
    /// Number of members.
    pub(crate) members: usize,
    /// Data begins behind parity.
    pub(crate) symmetric: bool,
}

impl Place {
    /// The role that holds a block.
    pub(crate) fn role_of(&self, block: usize) -> usize {
        let chunk = block / CHUNK_BLOCKS;
        let stripe = chunk / (self.members - 1);
        let data = chunk % (self.members - 1);
        let parity = self.members - 1 - stripe % self.members;
        if self.symmetric {
            return (parity + 1 + data) % self.members;
        }
        data + usize::from(data >= parity)
    }
}

/// The write that filled this block; nothing of a mixture.
fn number(bytes: &[u8], block: usize) -> Option<u32> {
    let number = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    let holds = |(at, part): (usize, &[u8])| {
        let stamp = stamp(number, block as u32, (at * 16 / SECTOR_BYTES) as u32);
        part == stamp
    };
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    bytes.chunks(16).enumerate().all(holds).then_some(number)
}

/// The 16 bytes that a sector repeats.
fn stamp(number: u32, block: u32, sector: u32) -> [u8; 16] {
    let sum = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = sum.wrapping_add(u64::from(block).wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
    let sum = sum.wrapping_add(u64::from(sector));
    let sum = (sum ^ (sum >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut bytes = [0; 16];
    for (part, word) in bytes.chunks_mut(4).zip([number, block, sector, (sum >> 32) as u32]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[test]
fn a_block_that_holds_something_else_is_found() {
    let holds = Holds::read("0 7\n1 7 8");
    let block = |number, at| -> Vec<u8> {
        (0..256).flat_map(|part| stamp(number, at, part / 32)).collect()
    };
    let never = |_: usize| false;
    let good = [block(7, 0), block(8, 1), vec![0; BLOCK_BYTES]].concat();
    assert_eq!(holds.judge(&good, &never), Vec::<String>::new());
    let bad = [block(8, 0), block(9, 1), block(1, 2)].concat();
    assert_eq!(holds.judge(&bad, &never).len(), 3);
    assert_eq!(holds.judge(&bad, &|_| true).len(), 2);
}
