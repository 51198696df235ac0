//! The codec of the write journal against what Linux md wrote (see `data/README.md`), and against
//! blocks that no md writes.

use braid_array::format::journal::{JournalError, MetaBlock, Payload, page_checksum};
use braid_array::format::superblock::DevRole;
use braid_array::format::{Superblock, Version};

const LOG: &[u8] = include_bytes!("../data/journal.log");
const RAID6: &[u8] = include_bytes!("../data/journal-raid6.log");
const SUPERBLOCK: &[u8] = include_bytes!("../data/journal.superblock");

fn uuid() -> [u8; 16] {
    let superblock = Superblock::decode(Version::V1_2, 8, SUPERBLOCK).unwrap();
    assert_eq!(superblock.role(), DevRole::Journal);
    assert_eq!(superblock.recovery_offset, 64);
    superblock.set_uuid
}

/// The 4096 bytes at a sector of the log that the fixture is cut from.
fn at(sector: usize) -> &'static [u8] {
    &LOG[(sector - 64) * 512..][..4096]
}

fn decode(bytes: &[u8]) -> Result<MetaBlock, JournalError> {
    MetaBlock::decode(bytes, uuid())
}

/// The block at 64 with some bytes changed and the checksum made right again. A page has the
/// checksum that a block has whose own is zero.
fn patched(at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = self::at(64).to_vec();
    bytes[at..at + field.len()].copy_from_slice(field);
    bytes[4..8].fill(0);
    let sum = page_checksum(uuid(), &bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn blocks_say_what_was_written() {
    let block = decode(at(64)).unwrap();
    let page = |sector: usize| vec![page_checksum(uuid(), at(sector))];
    let data = Payload::Data { sector: 144, checksums: page(72) };
    let parity = Payload::Parity { sector: 16, checksums: page(80) };
    assert_eq!(block.payloads, [data, parity]);
    assert_eq!((block.position, block.pages()), (64, 2));

    let next = decode(at(88)).unwrap();
    assert_eq!((next.seq, next.position), (block.seq + 1, 88));
    assert_eq!(next.payloads, [Payload::Data { sector: 216, checksums: page(96) }]);

    let raid6 = decode(RAID6).unwrap();
    let page = |number: usize| page_checksum(uuid(), &RAID6[number * 4096..][..4096]);
    let data = Payload::Data { sector: 8, checksums: vec![page(1)] };
    let parity = Payload::Parity { sector: 8, checksums: vec![page(2), page(3)] };
    assert_eq!(raid6.payloads, [data, parity]);
    assert_eq!((raid6.position, raid6.pages()), (16, 3));
}

#[test]
fn blocks_are_written_as_md_writes_them() {
    for bytes in [at(64), at(88), &RAID6[..4096]] {
        assert_eq!(decode(bytes).unwrap().encode(uuid()), bytes);
    }
    let rows = (0..507).collect();
    let flush = MetaBlock { seq: 1, position: 8, payloads: vec![Payload::Flush { rows }] };
    assert_eq!(flush.pages(), 0);
    assert_eq!(decode(&flush.encode(uuid())), Ok(flush));
    let empty = MetaBlock { seq: 1, position: 8, payloads: Vec::new() };
    assert_eq!(decode(&empty.encode(uuid())), Ok(empty));
}

#[test]
fn what_is_no_block_ends_the_log() {
    assert_eq!(decode(&at(64)[..4095]), Err(JournalError::Short));
    assert_eq!(decode(at(72)), Err(JournalError::Magic));
    for at in [8, 12, 16, 71, 4095] {
        let mut bytes = self::at(64).to_vec();
        bytes[at] ^= 1;
        let error = decode(&bytes).unwrap_err();
        assert_eq!(error, JournalError::Checksum, "byte {at}");
        assert!(!error.is_whole());
    }
    assert_eq!(MetaBlock::decode(at(64), [1; 16]), Err(JournalError::Checksum));
}

#[test]
fn a_whole_block_that_makes_no_sense_says_so() {
    let refused = |at, field: &[u8]| {
        let error = decode(&patched(at, field)).unwrap_err();
        assert!(error.is_whole());
        error
    };
    assert_eq!(refused(8, &[2]), JournalError::Version(2));
    assert_eq!(refused(12, &[31, 0, 0, 0]), JournalError::Size(31));
    assert_eq!(refused(12, &[1, 16, 0, 0]), JournalError::Size(4097));
    // The second payload ends one byte behind the bytes in use, or begins there.
    assert_eq!(refused(12, &[71, 0, 0, 0]), JournalError::Payload(52));
    assert_eq!(refused(12, &[53, 0, 0, 0]), JournalError::Payload(52));
    assert_eq!(refused(12, &[73, 0, 0, 0]), JournalError::Payload(72));
    // Kind, flags, length and place.
    assert_eq!(refused(32, &[3]), JournalError::Payload(32));
    assert_eq!(refused(34, &[1]), JournalError::Payload(32));
    assert_eq!(refused(36, &[0]), JournalError::Payload(32));
    assert_eq!(refused(36, &[9]), JournalError::Payload(32));
    assert_eq!(refused(40, &[145]), JournalError::Payload(32));
    assert_eq!(refused(56, &[9]), JournalError::Payload(52));
    // A list that would go on behind the block, up to the end of the address space; half a row.
    for size in [16u32, 0xffff_fff8, 12] {
        let flush = [&[2, 0, 0, 0][..], &size.to_le_bytes()].concat();
        assert_eq!(refused(52, &flush), JournalError::Payload(52), "{size}");
    }
}
