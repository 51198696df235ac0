//! The decoders, each with a way to make bytes for it.

use std::num::NonZeroU64;

use crate::mutate::{Random, mutate};
use crate::{
    backup, foretell, fuse, guest, hello, image, integrity, logs, messages, pair, recover, replay,
    rescue, start, ublk,
};
use braid_array::assemble::{Candidate, Options, Start, decide};
use braid_array::format::{BadBlocks, Bitmap, BitmapSuperblock, Superblock, Version};
use braid_cluster::Roles;
use braid_cluster::ids::{Epoch, NodeId, SetVersion};
use braid_cluster::journal::{Header, Kind, Log, Record};
use braid_cluster::view::{View, Vote, Witness};
use braid_host::export::nbd::fuzz_session;
use braid_host::member::{fuzz_image, fuzz_overlay};
use crc32c::crc32c;

/// A decoder.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Bytes for it.
    pub make: fn(&mut Random) -> Vec<u8>,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "superblock-1", make: make_superblock_1, run: run_superblock_1 },
    Target { name: "superblock-0", make: make_superblock_0, run: run_superblock_0 },
    Target { name: "bitmap", make: make_bitmap, run: run_bitmap },
    Target { name: "bad-blocks", make: make_bad_blocks, run: run_bad_blocks },
    Target { name: "backup", make: backup::make, run: backup::run },
    Target { name: "assembly", make: make_members, run: run_assembly },
    Target { name: "start", make: start::make, run: start::run },
    Target { name: "nbd", make: make_nbd, run: fuzz_session },
    Target { name: "fuse", make: fuse::make, run: fuse::run },
    Target { name: "guest", make: guest::make, run: guest::run },
    Target { name: "ublk", make: ublk::make, run: ublk::run },
    Target { name: "hello", make: hello::make, run: hello::run },
    Target { name: "messages", make: messages::make, run: messages::run },
    Target { name: "foretell", make: foretell::make, run: foretell::run },
    Target { name: "pair", make: pair::make, run: pair::run },
    Target { name: "journal", make: make_journal, run: run_journal },
    Target { name: "ppl", make: logs::make_ppl, run: logs::run_ppl },
    Target { name: "suspended-logs", make: logs::make_suspended, run: logs::run_suspended },
    Target { name: "md-journal", make: logs::make_block, run: logs::run_block },
    Target { name: "ppl-replay", make: replay::make_ppl, run: replay::run_ppl },
    Target { name: "md-journal-replay", make: replay::make_journal, run: replay::run_journal },
    Target { name: "integrity-trust", make: integrity::make_trust, run: integrity::run_trust },
    Target { name: "integrity-marks", make: integrity::make_marks, run: integrity::run_marks },
    Target { name: "integrity-table", make: integrity::make_table, run: integrity::run_table },
    Target { name: "partitions", make: rescue::make_table, run: rescue::run_table },
    Target { name: "kind", make: rescue::make_kind, run: rescue::run_kind },
    Target { name: "map-file", make: rescue::make_map, run: rescue::run_map },
    Target { name: "lvm", make: rescue::make_lvm, run: rescue::run_lvm },
    Target { name: "contents", make: rescue::make_contents, run: rescue::run_contents },
    Target { name: "overlay", make: make_overlay, run: fuzz_overlay },
    Target { name: "image", make: image::make, run: fuzz_image },
    Target { name: "recover", make: recover::make, run: recover::run },
    Target { name: "votes", make: make_votes, run: run_votes },
];

/// What an overlay has behind its header: which sectors were changed, and these.
fn make_overlay(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
    mutate(random, &mut bytes, 128 << 10);
    bytes
}

/// The first 16 KiB of each of three members that md wrote: superblock at 4 KiB, bitmap at 8 KiB,
/// bad-block log at 12 KiB.
const MEMBERS: &[u8] = include_bytes!("../seeds/raid5-bitmap");
const MEMBER_BYTES: usize = 16 << 10;
const SUPERBLOCK: std::ops::Range<usize> = 4096..8192;
const BITMAP: std::ops::Range<usize> = 8192..12288;
/// Of the members that the seed was taken from.
const DEVICE_SECTORS: u64 = 16384;

fn make_superblock_1(random: &mut Random) -> Vec<u8> {
    let mut bytes = MEMBERS[SUPERBLOCK].to_vec();
    mutate(random, &mut bytes, 512);
    if random.below(8) > 0 {
        mend_superblock_1(&mut bytes);
    }
    bytes
}

/// `sb_csum` at 216: the folded sum of the 256 bytes and `max_dev` (at 220) roles of two bytes.
pub(crate) fn mend_superblock_1(bytes: &mut [u8]) {
    let Some(max_dev) = bytes.get(220..224) else { return };
    let max_dev = u32::from_le_bytes(max_dev.try_into().expect("four bytes")) as usize;
    let Some(length) = max_dev.checked_mul(2).and_then(|roles| roles.checked_add(256)) else {
        return;
    };
    bytes[216..220].fill(0);
    let Some(summed) = bytes.get(..length) else { return };
    let sum: u64 = summed.chunks(4).map(little_endian).sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    bytes[216..220].copy_from_slice(&(folded as u32).to_le_bytes());
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn run_superblock_1(bytes: &[u8]) {
    for (version, sector) in [(Version::V1_2, 8), (Version::V1_1, 0), (Version::V1_0, 16368)] {
        let Ok(superblock) = Superblock::decode(version, sector, bytes) else { continue };
        use_superblock(&superblock);
        let again = superblock.encode();
        let decoded = Superblock::decode(version, sector, &again);
        assert_eq!(decoded.as_ref(), Ok(&superblock), "encoding changed it");
    }
}

fn use_superblock(superblock: &Superblock) {
    let _ = (superblock.supported(), superblock.role(), superblock.role_of(u32::MAX));
    let _ = (superblock.bitmap_sector(), superblock.bblog_sector());
    let _ = (superblock.uuid_text(), superblock.name());
}

fn make_superblock_0(random: &mut Random) -> Vec<u8> {
    let mut bytes = include_bytes!("../seeds/superblock-0.90").to_vec();
    mutate(random, &mut bytes, 1024);
    if random.below(8) > 0 && bytes.len() == 4096 {
        // sb_csum at word 38: the folded sum of all words.
        bytes[152..156].fill(0);
        let sum: u64 = bytes.chunks(4).map(little_endian).sum();
        let folded = (sum & 0xffff_ffff) + (sum >> 32);
        bytes[152..156].copy_from_slice(&(folded as u32).to_le_bytes());
    }
    bytes
}

fn run_superblock_0(bytes: &[u8]) {
    let Ok(superblock) = Superblock::decode(Version::V0_90, 16256, bytes) else { return };
    use_superblock(&superblock);
    let again = Superblock::decode(Version::V0_90, 16256, &superblock.encode());
    let again = again.expect("what is written can be read");
    assert_eq!((again.events, again.level), (superblock.events, superblock.level));
    assert_eq!(again.encode(), superblock.encode(), "encoding changed it");
}

fn make_bitmap(random: &mut Random) -> Vec<u8> {
    let mut bytes = MEMBERS[BITMAP].to_vec();
    let reach = if random.below(2) == 0 { 80 } else { 4096 };
    mutate(random, &mut bytes, reach);
    bytes
}

fn run_bitmap(bytes: &[u8]) {
    let _ = BitmapSuperblock::decode(bytes);
    let Ok(mut bitmap) = Bitmap::decode(bytes) else { return };
    let pages: Vec<u8> = (0..bitmap.pages()).flat_map(|page| bitmap.encode_page(page)).collect();
    assert_eq!(Bitmap::decode(&pages).as_ref(), Ok(&bitmap), "encoding changed it");
    let size_sectors = bitmap.superblock.sync_size_sectors;
    let mut end = None;
    let mut dirty = 0;
    for range in bitmap.dirty_ranges() {
        assert!(range.start < range.end && range.end <= size_sectors);
        assert!(end.is_none_or(|end| end < range.start), "ranges touch");
        let bits = bitmap.bits_for(range.clone());
        dirty += bits.end - bits.start;
        end = Some(range.end);
    }
    assert_eq!(dirty, bitmap.count());
    for sectors in [1, size_sectors / 2, size_sectors + 1, size_sectors.saturating_mul(2)] {
        if let Some(resized) = bitmap.resized(sectors) {
            bitmap.union(&resized);
        }
    }
    bitmap.set_all();
    assert_eq!(bitmap.count(), bitmap.bits());
}

/// The array whose vote file is looked at.
const ARRAY: [u8; 16] = [7; 16];

fn make_votes(random: &mut Random) -> Vec<u8> {
    let slot = |random: &mut Random| {
        let named = |random: &mut Random, most| (0..random.below(most)).map(|n| n as u64);
        let address = "w".repeat(random.below(300));
        let view = View {
            epoch: Epoch(random.next() as u32),
            count: random.next() as u32,
            torn: random.below(2) == 0,
            members: named(random, 40).map(NonZeroU64::new).collect(),
            voters: named(random, 70).map(NodeId).collect(),
            voted: named(random, 9).map(NodeId).collect(),
            witnesses: vec![Witness { node: NodeId(1), address }; random.below(4)],
        };
        let vote =
            Vote { granted: Epoch(random.next() as u32), to: random.next(), view: Some(view) };
        let mut slot = vote.encode(&ARRAY, random.next());
        let mut rest = slot.split_off(12);
        mutate(random, &mut rest, 128);
        if random.below(8) > 0 {
            slot[8..].copy_from_slice(&crc32c(&rest).to_le_bytes());
        }
        slot.append(&mut rest);
        slot
    };
    let mut file = slot(random);
    file.extend(slot(random));
    file
}

fn run_votes(bytes: &[u8]) {
    let Some((sequence, vote)) = Vote::newest(&ARRAY, bytes) else { return };
    assert_eq!(Vote::decode(&ARRAY, &vote.encode(&ARRAY, sequence)), Some((sequence, vote)));
}

/// A header and a record, behind one another.
fn make_journal(random: &mut Random) -> Vec<u8> {
    let header = Header {
        sequence: random.next(),
        log_bytes: random.next() >> random.below(64) << 12,
        tail: random.next() >> random.below(64) << 12,
        first: random.next(),
        mark: SetVersion::new(Epoch(random.next() as u32), random.next()),
        parts_only: random.below(2) == 0,
    };
    let record = Record {
        version: SetVersion::new(Epoch(random.next() as u32), random.next()),
        sequence: random.next(),
        kind: if random.below(2) == 0 { Kind::Content } else { Kind::Zeroes },
        holders: Roles(random.next()),
        len: random.next() as u32 & !511,
        rows: (0..random.below(504)).map(|_| random.next() & !511).collect(),
        crc: random.next() as u32,
    };
    let mut file = Vec::new();
    for mut page in [header.encode(&ARRAY), record.encode(&ARRAY)] {
        let mut rest = page.split_off(12);
        mutate(random, &mut rest, 128);
        rest.resize(4096 - 12, 0);
        if random.below(8) > 0 {
            page[8..].copy_from_slice(&crc32c(&rest).to_le_bytes());
        }
        page.append(&mut rest);
        file.append(&mut page);
    }
    file
}

fn run_journal(bytes: &[u8]) {
    let Some((first, second)) = bytes.split_at_checked(4096) else { return };
    let record = Record::decode(&ARRAY, second);
    if let Some(record) = &record {
        assert_eq!(Record::decode(&ARRAY, &record.encode(&ARRAY)).as_ref(), Some(record));
    }
    let Some(header) = Header::decode(&ARRAY, first) else { return };
    assert_eq!(Header::decode(&ARRAY, &header.encode(&ARRAY)), Some(header));
    let mut log = Log::new(&header);
    let look = log.look();
    log.looked(look, record.as_ref());
    log.append(SetVersion::new(Epoch(1), 1), 8192);
    let (_, first) = log.begins(SetVersion::new(Epoch(1), 1));
    log.trim(first);
}

fn make_bad_blocks(random: &mut Random) -> Vec<u8> {
    let mut bytes = include_bytes!("../seeds/bad-blocks").to_vec();
    for entry in 0..random.below(64) {
        let range = random.next() >> random.below(54) << 10 | random.next() & 0x3ff;
        bytes[entry * 8..entry * 8 + 8].copy_from_slice(&range.to_le_bytes());
    }
    mutate(random, &mut bytes, 512);
    bytes
}

fn run_bad_blocks(bytes: &[u8]) {
    for shift in [0, 3, 9, 63, 255] {
        let Ok(mut log) = BadBlocks::decode(bytes, shift) else { continue };
        let ranges = log.ranges().to_vec();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "not disjoint");
        let encoded = log.encode(shift);
        assert_eq!(BadBlocks::decode(&encoded, shift).as_ref(), Ok(&log), "encoding changed it");
        for change in bytes.chunks_exact(6).take(64) {
            change_log(&mut log, shift, change);
        }
    }
}

/// A sector, a length, and whether to insert or to remove; the log does all of it or nothing.
fn change_log(log: &mut BadBlocks, shift: u8, change: &[u8]) {
    let sector = little_endian(&change[..4]);
    let sectors = u64::from(change[4]);
    let before = log.clone();
    if change[5] & 1 == 0 {
        if log.insert(sector, sectors) {
            assert!(sectors == 0 || log.next_bad(sector, sectors) == Some((sector, sectors)));
        } else {
            assert_eq!(*log, before);
        }
    } else if log.remove(sector, sectors) {
        assert!(!log.overlaps(sector, sectors));
    } else {
        assert_eq!(*log, before);
    }
    let read = BadBlocks::decode(&log.encode(shift), shift).expect("what was written is read");
    let covers = |&(sector, sectors)| read.next_bad(sector, sectors) == Some((sector, sectors));
    assert!(log.ranges().iter().all(covers), "units only ever grow");
}

/// One byte of options, then three members.
fn make_members(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.next() as u8];
    for member in MEMBERS.chunks(MEMBER_BYTES) {
        let mut member = member.to_vec();
        let mut superblock = member[SUPERBLOCK].to_vec();
        if random.below(2) == 0 {
            mutate(random, &mut superblock, 512);
            superblock.resize(4096, 0);
            mend_superblock_1(&mut superblock);
        }
        member[SUPERBLOCK].copy_from_slice(&superblock);
        if random.below(4) == 0 {
            let mut bitmap = member[BITMAP].to_vec();
            mutate(random, &mut bitmap, 80);
            bitmap.resize(4096, 0);
            member[BITMAP].copy_from_slice(&bitmap);
        }
        bytes.extend(member);
    }
    bytes
}

fn run_assembly(bytes: &[u8]) {
    let Some((options, members)) = bytes.split_first() else { return };
    let read = |member: &[u8], sector: u64, length: u32| {
        assert!(length <= Candidate::MAX_READ_BYTES && length.is_multiple_of(512));
        assert!(sector + u64::from(length) / 512 <= DEVICE_SECTORS, "read beyond the device");
        let start = (sector as usize * 512).min(member.len());
        let mut found = member[start..(start + length as usize).min(member.len())].to_vec();
        found.resize(length as usize, 0);
        Ok(found)
    };
    let candidates = members.chunks(MEMBER_BYTES).enumerate().map(|(number, member)| {
        let reader = |sector, length| read(member, sector, length);
        Candidate::read(format!("m{number}"), DEVICE_SECTORS, reader)
    });
    let option = |bit: u8| options >> bit & 1 == 1;
    let options = Options { force: option(0), run: option(1), read_only: option(2) };
    let assembly = decide(candidates.collect(), options);
    if let Start::Refused { reason, next, .. } = assembly.start {
        assert!(!reason.is_empty() && !next.is_empty(), "a refusal says why and what next");
    }
}

/// A handshake that leads to the transmission phase, then requests, all mutated.
fn make_nbd(random: &mut Random) -> Vec<u8> {
    const OPTIONS: [u32; 8] = [1, 2, 3, 6, 7, 8, 9, 10];
    let mut bytes = vec![random.next() as u8, 0, 0, 0, random.below(4) as u8];
    for _ in 0..random.below(4) {
        let mut data = vec![0; random.below(24)];
        data.iter_mut().for_each(|byte| *byte = random.next() as u8 & random.next() as u8);
        bytes.extend(b"IHAVEOPT");
        bytes.extend(OPTIONS[random.below(OPTIONS.len())].to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    }
    // NBD_OPT_EXPORT_NAME without a name, or NBD_OPT_GO with an empty name and no requests.
    bytes.extend(b"IHAVEOPT");
    if random.below(2) == 0 {
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    } else {
        bytes.extend([0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0]);
    }
    for cookie in 0..random.below(6) as u64 {
        bytes.extend([0x25, 0x60, 0x95, 0x13, 0, random.below(32) as u8]);
        bytes.extend((random.below(9) as u16).to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend((random.next() >> random.below(64) & !511).to_be_bytes());
        let length = random.next() as u32 >> random.below(32);
        bytes.extend(if random.below(4) == 0 { length } else { length & !511 }.to_be_bytes());
    }
    if random.below(4) == 0 {
        let reach = bytes.len();
        mutate(random, &mut bytes, reach);
    }
    bytes
}
