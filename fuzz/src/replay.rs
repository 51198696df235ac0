//! What md's logs say of a crashed array, where what lies on the device means no good: whatever it
//! is, what is to be replayed stays within the array, and within what the log can hold.

use braid_array::Role;
use braid_array::format::journal::{MetaBlock, Payload, page_checksum};
use braid_array::format::ppl::{PplArea, PplEntry, PplHeader};
use braid_array::geometry::{Geometry, Shape};
use braid_array::level::{Layout, Level, ParityLayout};
use braid_array::log::journal::{Blocks, JournalArea, JournalScan};
use braid_array::log::ppl::{PplScan, fixes};
use crc32c::crc32c;

use crate::logs::{ARRAY, mend_block, mend_header};
use crate::mutate::{Random, mutate};

const CHUNK_SECTORS: u64 = 32;
const MEMBER_SECTORS: u64 = 1024;
const SECTOR_BYTES: usize = 512;
/// Where the area of either log begins.
const LOG: u64 = 16;
/// Its length.
const LOG_SECTORS: u64 = 528;
const LOG_BYTES: usize = LOG_SECTORS as usize * SECTOR_BYTES;

/// Reads a device that has these bytes where its log is, and no more.
fn read(log: &[u8], sector: u64, bytes: u32) -> Result<Vec<u8>, String> {
    let end = sector + u64::from(bytes) / SECTOR_BYTES as u64;
    assert!(sector >= LOG && end <= LOG + LOG_SECTORS, "read beyond the log");
    let start = (sector - LOG) as usize * SECTOR_BYTES;
    let found = log.get(start..start + bytes as usize);
    found.map(<[u8]>::to_vec).ok_or_else(|| "beyond the end".to_owned())
}

fn geometry(level: Level) -> Geometry {
    let shape = Shape {
        level,
        layout: Layout::Parity(ParityLayout::LeftSymmetric),
        raid_disks: 5,
        chunk_sectors: CHUNK_SECTORS as u32,
        size_sectors: MEMBER_SECTORS,
        member_data_sectors: &[],
    };
    Geometry::new(&shape).expect("an array")
}

/// A number that is often small.
fn number(random: &mut Random) -> u64 {
    let bits = [4, 8, 12, 64][random.below(4)];
    random.next() >> (64 - bits)
}

/// Bytes at a sector of the log, if there is room; sometimes changed, but for their checksum.
fn put(random: &mut Random, log: &mut [u8], sector: u64, mut bytes: Vec<u8>, mend: fn(&mut [u8])) {
    if random.below(8) == 0 {
        let length = bytes.len();
        mutate(random, &mut bytes, length);
        bytes.resize(length, 0);
        if random.below(4) > 0 {
            mend(&mut bytes);
        }
    }
    let at = sector as usize * SECTOR_BYTES;
    if let Some(place) = log.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(&bytes);
    }
}

/// One byte of options, then a log with units behind one another, of one stripe.
pub(crate) fn make_ppl(random: &mut Random) -> Vec<u8> {
    let mut log = vec![0; LOG_BYTES];
    let stripe = random.below(4) as u64;
    let (parity, _) = geometry(Level::Raid5).parity_roles(stripe);
    let mut generation = number(random);
    let mut sector = 0;
    while sector < LOG_SECTORS && random.below(12) > 0 {
        let entries = (0..random.below(4)).map(|_| logged(random, stripe, parity)).collect();
        let header = PplHeader { generation, entries };
        put(random, &mut log, sector, header.encode(ARRAY), mend_header);
        sector += header.unit_bytes() / SECTOR_BYTES as u64;
        generation = if random.below(8) == 0 { number(random) } else { generation + 1 };
    }
    [vec![random.next() as u8], log].concat()
}

/// An entry whose partial parity is zeroes, often one that fits.
fn logged(random: &mut Random, stripe: u64, parity: Role) -> PplEntry {
    let rows = 1 + random.below(40) as u32;
    let changed = 1 + random.below(4) as u32;
    let row = number(random) % CHUNK_SECTORS;
    let first = (stripe * 4 + random.below(4) as u64) * CHUNK_SECTORS + row;
    let pp_bytes = [rows * 512, rows * 512, 0, CHUNK_SECTORS as u32 * 512][random.below(4)];
    let odd = random.below(8) == 0;
    PplEntry {
        data_sector: if odd { number(random) } else { first },
        pp_bytes,
        data_bytes: rows * changed * 512,
        parity_disk: if odd { number(random) as u32 } else { parity.0.into() },
        checksum: crc32c(&vec![0; pp_bytes as usize]),
    }
}

pub(crate) fn run_ppl(bytes: &[u8]) {
    let [options, log @ ..] = bytes else { return };
    let is_ring = options & 1 == 0;
    let area = PplArea { sector: LOG, sectors: LOG_SECTORS, is_ring };
    let scan = PplScan::read(area, ARRAY, &mut |sector, bytes| read(log, sector, bytes));
    let Ok(scan) = scan else { return };
    let parity_bytes: usize = scan.entries.iter().map(|(_, parity)| parity.len()).sum();
    assert!(parity_bytes <= LOG_BYTES, "more than the log can hold");
    assert!(scan.entries.is_empty() || !scan.blank && !scan.impossible);
    let geometry = geometry(Level::Raid5);
    let held = |role: Role| if options >> role.0 & 2 == 0 { MEMBER_SECTORS } else { 100 };
    for (entry, parity) in &scan.entries {
        let Ok(fixes) = fixes(entry, parity, &geometry, &held) else { continue };
        let rows: u64 = fixes.iter().map(|fix| u64::from(fix.sectors)).sum();
        assert!(rows <= CHUNK_SECTORS, "an entry is of one stripe");
        for fix in fixes {
            let end = fix.row + u64::from(fix.sectors);
            assert!(fix.sectors > 0 && end <= MEMBER_SECTORS);
            assert_eq!(fix.parity, geometry.parity_roles(fix.row / CHUNK_SECTORS).0);
            let bytes = fix.partial_parity.len();
            assert!(bytes == 0 || bytes == fix.sectors as usize * SECTOR_BYTES);
            assert!(!fix.data.is_empty() && !fix.data.contains(&fix.parity));
            assert!(fix.data.iter().all(|role| end <= held(*role)), "what is not there");
        }
    }
}

/// One byte of options, the place of the tail, then a log with blocks behind one another.
pub(crate) fn make_journal(random: &mut Random) -> Vec<u8> {
    let zeroes = page_checksum(ARRAY, &[0; 4096]);
    let raid6 = random.below(2) == 0;
    let mut log = vec![0; LOG_BYTES];
    let tail = random.below(LOG_SECTORS as usize / 8) as u64 * 8;
    let mut seq = number(random);
    let mut position = tail;
    while random.below(12) > 0 {
        let mut payloads = Vec::new();
        for _ in 0..random.below(8) {
            let checksum = if random.below(32) == 0 { 0 } else { zeroes };
            let stripe = if random.below(64) == 0 { number(random) } else { number(random) % 100 };
            let sector = stripe & !7;
            payloads.push(match random.below(5) {
                0..3 => Payload::Data { sector, checksums: vec![checksum] },
                3 => Payload::Parity { sector, checksums: vec![checksum; 1 + usize::from(raid6)] },
                _ => Payload::Flush { rows: vec![sector; random.below(3)] },
            });
        }
        let block = MetaBlock { seq, position, payloads };
        put(random, &mut log, position, block.encode(ARRAY), mend_block);
        seq = if random.below(16) == 0 { number(random) } else { seq.wrapping_add(1) };
        position = (position + 8 * (1 + block.pages() as u64)) % LOG_SECTORS;
    }
    [vec![u8::from(raid6), (tail / 8) as u8], log].concat()
}

pub(crate) fn run_journal(bytes: &[u8]) {
    let [options, tail, log @ ..] = bytes else { return };
    let level = if options & 1 == 0 { Level::Raid5 } else { Level::Raid6 };
    let tail = u64::from(*tail) * 8;
    if tail >= LOG_SECTORS {
        return;
    }
    let area = JournalArea { start: LOG, sectors: LOG_SECTORS, tail };
    let mut device = |sector, bytes| read(log, sector, bytes);
    let geometry = geometry(level);
    let mut blocks = Blocks::new(area, ARRAY, &geometry, &mut device);
    let mut count = 0;
    while let Ok(Some(_)) = blocks.next_block() {
        count += 1;
        assert!(count <= LOG_SECTORS / 8, "more blocks than the log can hold");
    }
    let mut device = |sector, bytes| read(log, sector, bytes);
    let Ok(scan) = JournalScan::read(area, ARRAY, &geometry, &mut device) else { return };
    assert!(scan.blocks <= count);
    let pages = (scan.pages.len() + scan.data.len()) as u64;
    assert!(8 * (pages + scan.blocks) <= LOG_SECTORS, "more than the log can hold");
    let within = |from: u64| from.is_multiple_of(8) && from < LOG_SECTORS;
    assert!(within(scan.end));
    for page in &scan.pages {
        assert!(within(page.position) && page.role.0 < 5 && page.row + 8 <= MEMBER_SECTORS);
    }
    assert!(scan.pages.is_sorted_by(|one, two| (one.row, one.role) < (two.row, two.role)));
    let array_sectors = geometry.array_sectors();
    assert!(scan.data.iter().all(|(sector, from)| within(*from) && *sector < array_sectors));
}
