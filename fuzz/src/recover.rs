//! What blocks of file systems say of where they belong, on members whose superblocks are lost.

use braid_rescue::recover::{Gathered, Harvest, Structure, structures};
use crc32c::{crc32c, crc32c_append};

use crate::mutate::{Random, mutate};

const BLOCK: usize = 4096;
/// Of the member that is made here, in blocks.
const BLOCKS: usize = 8;
const UUID: [u8; 16] = [7; 16];

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// A member with a superblock of a file system, and blocks of it.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut member = vec![0; BLOCKS * BLOCK];
    let kind = random.below(4);
    let (first, rest) = member.split_at_mut(BLOCK);
    match kind {
        0 => make_xfs(random, first),
        1 => make_ext4(random, &mut first[1024..2048]),
        2 => make_btrfs(random, first),
        _ => make_ntfs(random, first),
    }
    for block in rest.chunks_mut(BLOCK) {
        match kind {
            0 => make_xfs_block(random, block),
            1 => make_ext4_block(random, block),
            2 => make_btrfs_block(random, block),
            _ => block.chunks_mut(1024).for_each(|record| make_ntfs_record(random, record)),
        }
    }
    if random.below(4) == 0 {
        mutate(random, &mut member, BLOCKS * BLOCK);
    }
    member
}

/// A number that is small, or has any bits.
fn number(random: &mut Random) -> u32 {
    if random.below(4) == 0 { random.next() as u32 } else { random.below(64) as u32 }
}

fn make_xfs(random: &mut Random, bytes: &mut [u8]) {
    put(bytes, 0, *b"XFSB");
    put(bytes, 4, (4096_u32 >> random.below(4)).to_be_bytes());
    put(bytes, 8, u64::from(number(random)).to_be_bytes());
    put(bytes, 32, UUID);
    put(bytes, 84, number(random).to_be_bytes());
    put(bytes, 88, number(random).to_be_bytes());
    put(bytes, 100, 0xb4a5_u16.to_be_bytes());
    put(bytes, 102, 512_u16.to_be_bytes());
    put(bytes, 123, [random.below(16) as u8, random.below(40) as u8]);
    put(bytes, 184, number(random).to_be_bytes());
    put(bytes, 188, number(random).to_be_bytes());
    let sum = crc32c(&bytes[..512]);
    put(bytes, 224, sum.to_le_bytes());
}

fn make_xfs_block(random: &mut Random, block: &mut [u8]) {
    let kinds =
        [b"XAGF", b"XAGI", b"XAFL", b"AB3B", b"BMA3", b"XDB3", b"XSLM", b"IN\0\0", b"\0\0\0\0"];
    for byte in block.iter_mut().take(320) {
        *byte = UUID[0];
    }
    put(block, 0, *kinds[random.below(kinds.len())]);
    let places = [4, 8, 16, 24, 40, 152];
    put(block, places[random.below(places.len())], u64::from(number(random)).to_be_bytes());
    put(block, 4, [3]);
}

fn make_ext4(random: &mut Random, bytes: &mut [u8]) {
    put(bytes, 0, number(random).to_le_bytes());
    put(bytes, 4, number(random).to_le_bytes());
    put(bytes, 0x14, (random.below(2) as u32).to_le_bytes());
    put(bytes, 0x18, (random.below(4) as u32).to_le_bytes());
    for at in [0x20, 0x24, 0x28] {
        put(bytes, at, (8 * random.below(64) as u32).to_le_bytes());
    }
    put(bytes, 0x38, 0xef53_u16.to_le_bytes());
    put(bytes, 0x58, (128_u16 << random.below(3)).to_le_bytes());
    put(bytes, 0x5a, (random.below(8) as u16).to_le_bytes());
    put(bytes, 0x60, [[0, 0x80][random.below(2)], 0, 0, 0]);
    put(bytes, 0x64, 0x400_u32.to_le_bytes());
    put(bytes, 0x68, UUID);
    put(bytes, 0xfe, (32_u16 << random.below(2)).to_le_bytes());
    let sum = !crc32c(&bytes[..0x3fc]);
    put(bytes, 0x3fc, sum.to_le_bytes());
}

/// Inodes, a directory or descriptors, whose checksums fit.
fn make_ext4_block(random: &mut Random, block: &mut [u8]) {
    let seed = !crc32c(&UUID);
    let after = |state: u32, bytes: &[u8]| !crc32c_append(!state, bytes);
    match random.below(3) {
        0 => {
            for (slot, inode) in block.chunks_mut(256).enumerate() {
                put(inode, 0, 0x41ed_u16.to_le_bytes());
                put(inode, 0x1a, [1, 0]);
                put(inode, 0x20, 0x8_0000_u32.to_le_bytes());
                put(inode, 0x28, 0xf30a_u16.to_le_bytes());
                put(inode, 0x2a, [1, 0]);
                put(inode, 0x3c, number(random).to_le_bytes());
                put(inode, 0x80, 32_u16.to_le_bytes());
                let own = after(seed, &(slot as u32 + 1).to_le_bytes());
                let sum = after(after(own, &[0; 4]), inode);
                put(inode, 0x7c, (sum as u16).to_le_bytes());
                put(inode, 0x82, ((sum >> 16) as u16).to_le_bytes());
            }
        }
        1 => {
            put(block, 0, number(random).to_le_bytes());
            put(block, 4, [12, 0, 1, 2, b'.', 0, 0, 0]);
            put(block, 18, [2, 2, b'.', b'.']);
        }
        _ => {
            for (group, one) in block.chunks_mut(64).enumerate() {
                for at in [0, 4, 8] {
                    put(one, at, number(random).to_le_bytes());
                }
                let own = after(seed, &(group as u32).to_le_bytes());
                let sum = after(own, one) as u16;
                put(one, 0x1e, sum.to_le_bytes());
            }
        }
    }
}

fn make_btrfs(random: &mut Random, bytes: &mut [u8]) {
    put(bytes, 0x20, UUID);
    put(bytes, 0x30, [64_u64 << 10, 64 << 20, 256 << 30][random.below(3)].to_le_bytes());
    put(bytes, 0x40, *b"_BHRfS_M");
    put(bytes, 0x90, 4096_u32.to_le_bytes());
    put(bytes, 0x94, (4096_u32 << random.below(3)).to_le_bytes());
    put(bytes, 0xa0, number(random).to_le_bytes());
    put(bytes, 0xc9, 1_u64.to_le_bytes());
    put(bytes, 0xd1, [1_u64 << 30, 1 << 40, random.next()][random.below(3)].to_le_bytes());
    put(bytes, 0x32b + 8, [228]);
    put(bytes, 0x32b + 9, u64::from(number(random)).to_le_bytes());
    make_chunk(random, &mut bytes[0x32b + 17..][..112]);
    let sum = crc32c(&bytes[0x20..BLOCK]);
    put(bytes, 0, sum.to_le_bytes());
}

fn make_chunk(random: &mut Random, item: &mut [u8]) {
    let sizes = [1 << 20, u64::from(number(random)) << 12, random.next()];
    put(item, 0, sizes[random.below(3)].to_le_bytes());
    put(item, 24, [2_u64, 4, 0x22, 0x24, 0x14, 1][random.below(6)].to_le_bytes());
    put(item, 44, (random.below(4) as u16).to_le_bytes());
    for at in [48, 80] {
        put(item, at, (1 + random.below(2) as u64).to_le_bytes());
        put(item, at + 8, (u64::from(number(random)) << 12).to_le_bytes());
    }
}

/// A leaf of the tree of chunks whose checksum fits, or the head of another block.
fn make_btrfs_block(random: &mut Random, block: &mut [u8]) {
    put(block, 0x20, UUID);
    put(block, 0x30, (u64::from(number(random)) << 12).to_le_bytes());
    put(block, 0x58, (2 + random.below(3) as u64).to_le_bytes());
    let count = if random.below(2) == 0 { 8 } else { number(random) };
    put(block, 0x60, count.to_le_bytes());
    let items = 0x65;
    for index in 0..8 {
        let item = items + index * 25;
        put(block, item + 8, [228]);
        put(block, item + 9, (u64::from(number(random)) << 12).to_le_bytes());
        // From the end on, one before the other.
        let at = BLOCK - items - (index + 1) * 112;
        put(block, item + 17, (at as u32).to_le_bytes());
        put(block, item + 21, 112_u32.to_le_bytes());
        make_chunk(random, &mut block[items + at..][..112]);
    }
    let sum = crc32c(&block[0x20..]);
    put(block, 0, sum.to_le_bytes());
}

fn make_ntfs(random: &mut Random, bytes: &mut [u8]) {
    put(bytes, 3, *b"NTFS    ");
    put(bytes, 0x0b, (512_u16 << random.below(4)).to_le_bytes());
    put(bytes, 0x0d, [[1, 8, 0x80, 0xf4, random.next() as u8][random.below(5)]]);
    put(
        bytes,
        0x28,
        [1_u64 << 17, u64::from(number(random)), random.next()][random.below(3)].to_le_bytes(),
    );
    put(bytes, 0x30, u64::from(number(random)).to_le_bytes());
    put(bytes, 0x38, u64::from(number(random)).to_le_bytes());
    put(bytes, 0x40, [[0xf6, 0xf4, 1, random.next() as u8][random.below(4)]]);
    put(bytes, 510, [0x55, 0xaa]);
}

/// A record of the table, often its own, with runs.
fn make_ntfs_record(random: &mut Random, record: &mut [u8]) {
    put(record, 0, *b"FILE");
    put(record, 4, 0x30_u16.to_le_bytes());
    put(record, 6, 3_u16.to_le_bytes());
    put(record, 0x14, 0x38_u16.to_le_bytes());
    put(record, 0x18, 512_u32.to_le_bytes());
    put(record, 0x1c, 1024_u32.to_le_bytes());
    let own = if random.below(2) == 0 { 0 } else { number(random) };
    put(record, 0x2c, own.to_le_bytes());
    put(record, 0x38, 0x80_u32.to_le_bytes());
    put(record, 0x3c, number(random).wrapping_mul(8).to_le_bytes());
    put(record, 0x40, [1]);
    put(record, 0x58, 0x40_u16.to_le_bytes());
    for at in (0x78..0x178).step_by(4) {
        let run = [0x11, random.below(32) as u8, number(random) as u8, 0x11];
        put(record, at, if random.below(4) == 0 { number(random).to_le_bytes() } else { run });
    }
}

/// What is found is about structures that are known, and comes back from text.
pub(crate) fn run(bytes: &[u8]) {
    let mut image = bytes;
    let mut known = vec![Structure::DISK];
    let end = bytes.len() as u64;
    structures(&mut image, 0..end, &mut known);
    let mut harvest = Harvest::default();
    harvest.gather(&mut image, 0..end, &known);
    let gathered = Gathered::of(std::slice::from_ref(&harvest), &known);
    for mark in &gathered.marks {
        assert!(mark.structure < known.len() && mark.sector * 512 < end);
    }
    let again = Harvest::from_text(&harvest.to_text(), known.len()).expect("own text");
    assert_eq!(Gathered::of(&[again], &known).marks, gathered.marks);
}
