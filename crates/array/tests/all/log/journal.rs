//! The write journal.

use super::{Disk, MEMBER_SECTORS, UUID, geometry};
use braid_array::Role;
use braid_array::format::journal::{MetaBlock, Payload, SEQ_JUMP, page_checksum};
use braid_array::format::superblock::{DevRole, feature};
use braid_array::format::{Superblock, Version};
use braid_array::geometry::Geometry;
use braid_array::level::Level;
use braid_array::log::journal::{Blocks, JournalArea, JournalEnd, JournalPage, JournalScan};

const DATA_OFFSET: u64 = 2048;
const FIRST_SEQ: u64 = 100;

/// What goes into a block.
#[derive(Clone, Copy)]
enum Item<'a> {
    Data(u64),
    /// P of a stripe.
    Parity(u64),
    /// P and Q.
    Parities(u64),
    Flush(&'a [u64]),
}
use Item::{Data, Flush, Parities, Parity};

/// Role, sector and position.
type MemberPage = (Role, u64, u64);

/// Array sector and position.
type ArrayPage = (u64, u64);

/// A journal that is written as md writes it.
struct Log {
    disk: Disk,
    area: JournalArea,
    position: u64,
    seq: u64,
    pages: u32,
}

impl Log {
    /// Without a block.
    fn new(sectors: u64, tail: u64) -> Self {
        let area = JournalArea { start: DATA_OFFSET, sectors, tail };
        let disk = Disk::new(DATA_OFFSET + sectors);
        Self { disk, area, position: tail, seq: FIRST_SEQ, pages: 0 }
    }

    /// The checksum of a page that is different each time, and goes to this position.
    fn page(&mut self, position: u64) -> u32 {
        self.pages += 1;
        let page: Vec<u8> = (0..4096).map(|at| (at as u32 * self.pages / 9) as u8).collect();
        self.disk.put(DATA_OFFSET + position, &page);
        page_checksum(UUID, &page)
    }

    /// The position so many sectors behind another one.
    fn behind(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.area.sectors
    }

    /// A block and its pages; gives its position.
    fn block(&mut self, items: &[Item<'_>]) -> u64 {
        let position = self.position;
        let mut at = self.behind(position, 8);
        let mut payloads = Vec::new();
        for item in items {
            let payload = match *item {
                Data(sector) => Payload::Data { sector, checksums: vec![self.page(at)] },
                Parity(sector) => Payload::Parity { sector, checksums: vec![self.page(at)] },
                Parities(sector) => {
                    let p = self.page(at);
                    let second = self.behind(at, 8);
                    Payload::Parity { sector, checksums: vec![p, self.page(second)] }
                }
                Flush(stripes) => Payload::Flush { rows: stripes.to_vec() },
            };
            at = self.behind(at, payload.pages() as u64 * 8);
            payloads.push(payload);
        }
        let block = MetaBlock { seq: self.seq, position, payloads };
        self.disk.put(DATA_OFFSET + position, &block.encode(UUID));
        self.seq += 1;
        self.position = at;
        position
    }

    fn scan(&self) -> Result<JournalScan, String> {
        self.scan_of(&raid5())
    }

    fn scan_of(&self, geometry: &Geometry) -> Result<JournalScan, String> {
        let read = &mut |sector, bytes| self.disk.read(sector, bytes);
        JournalScan::read(self.area, UUID, geometry, read)
    }

    /// What is to be written to members, and to the array; the log ends where it was written to.
    fn replay(&self) -> (Vec<MemberPage>, Vec<ArrayPage>) {
        let scan = self.scan().unwrap();
        assert_eq!((scan.end, scan.next_seq), (self.position, self.seq - 1 + SEQ_JUMP));
        let pages = scan.pages.iter().map(|page| (page.role, page.row, page.position)).collect();
        (pages, by_row(scan.data))
    }

    /// Why it cannot be used: a block at this position.
    fn refused(&self, position: u64) {
        let error = self.scan().unwrap_err();
        assert!(error.contains(&format!("at sector {position}")), "{error}");
    }
}

/// In the order of their sectors.
fn by_row(mut data: Vec<ArrayPage>) -> Vec<ArrayPage> {
    data.sort_unstable();
    data
}

/// Three members; the first stripe has array sectors 0 to 127 on role 0, 128 to 255 on role 1 and
/// its parity on role 2.
fn raid5() -> Geometry {
    geometry(Level::Raid5, 3)
}

#[test]
fn data_with_its_parity_goes_to_members() {
    let mut log = Log::new(1024, 0);
    log.block(&[Data(8), Data(136), Parity(8)]);
    log.block(&[]);
    log.block(&[Data(144), Parity(16), Data(152), Parity(24)]);
    let (pages, data_only) = log.replay();
    let first = [(Role(0), 8, 8), (Role(1), 8, 16), (Role(2), 8, 24)];
    let second = [(Role(1), 16, 48), (Role(2), 16, 56), (Role(1), 24, 64), (Role(2), 24, 72)];
    assert_eq!(pages, [&first[..], &second].concat());
    assert_eq!(data_only, []);
    assert_eq!(log.scan().unwrap().blocks, 3);
}

#[test]
fn the_newest_page_of_each_place_counts() {
    let mut log = Log::new(1024, 0);
    log.block(&[Data(8), Parity(8)]);
    log.block(&[Data(136), Parity(8)]);
    log.block(&[Data(8), Parity(8)]);
    let (pages, _) = log.replay();
    assert_eq!(pages, [(Role(0), 8, 56), (Role(1), 8, 32), (Role(2), 8, 64)]);
}

#[test]
fn data_without_parity_goes_to_the_array() {
    let mut log = Log::new(1024, 0);
    log.block(&[Data(8)]);
    log.block(&[Data(136), Data(0)]);
    log.block(&[Data(8)]);
    assert_eq!(log.replay(), (vec![], vec![(0, 32), (8, 48), (136, 24)]));
    // The parity of the stripe at 8 comes, of all its data.
    log.block(&[Parity(8)]);
    let pages = vec![(Role(0), 8, 48), (Role(1), 8, 24), (Role(2), 8, 64)];
    assert_eq!(log.replay(), (pages, vec![(0, 32)]));
    // And data after that.
    log.block(&[Data(136)]);
    let pages = vec![(Role(0), 8, 48), (Role(1), 8, 24), (Role(2), 8, 64)];
    assert_eq!(log.replay(), (pages, vec![(0, 32), (136, 80)]));
}

#[test]
fn parity_alone_has_its_data_on_the_members() {
    let mut log = Log::new(1024, 0);
    log.block(&[Parity(8), Parity(16)]);
    log.block(&[Data(8)]);
    assert_eq!(log.replay(), (vec![], vec![(8, 32)]));
}

#[test]
fn stripes_that_were_flushed_are_forgotten() {
    let mut log = Log::new(1024, 0);
    log.block(&[Data(8), Parity(8), Data(16), Parity(16)]);
    log.block(&[Data(136), Parity(8)]);
    log.block(&[Flush(&[8, 24, u64::MAX])]);
    assert_eq!(log.replay().0, [(Role(0), 16, 24), (Role(2), 16, 32)]);
    log.block(&[Data(8), Parity(8), Flush(&[16])]);
    assert_eq!(log.replay().0, [(Role(0), 8, 80), (Role(2), 8, 88)]);
}

#[test]
fn pages_and_blocks_go_on_at_the_start_of_the_ring() {
    let mut log = Log::new(128, 112);
    // The block ends before the ring does, its second page lies at the start.
    log.block(&[Data(8), Parity(8)]);
    assert_eq!(log.position, 8);
    log.block(&[Data(136), Parity(8)]);
    let (pages, _) = log.replay();
    assert_eq!(pages, [(Role(0), 8, 120), (Role(1), 8, 16), (Role(2), 8, 24)]);
}

#[test]
fn what_is_behind_the_end_does_not_count() {
    let mut log = Log::new(1024, 0);
    log.block(&[Data(0), Parity(0)]);
    log.block(&[Data(8), Parity(8)]);
    // A log from before begins there, and its first block has a lower number.
    log.seq -= 7;
    log.block(&[Data(16), Parity(16)]);
    log.position = 48;
    log.seq = FIRST_SEQ + 2;
    assert_eq!(log.replay().0.len(), 4);
    // A block that was written for another position.
    let at_24 = log.disk.0[(DATA_OFFSET as usize + 24) * 512..][..4096].to_vec();
    log.disk.put(DATA_OFFSET + 48, &at_24);
    assert_eq!(log.replay().0.len(), 4);
    // A block that makes no sense, and is not the next one.
    let mut block = MetaBlock { seq: 3, position: 48, payloads: Vec::new() };
    log.disk.put(DATA_OFFSET + 48, &senseless(&block));
    assert_eq!(log.replay().0.len(), 4);
    // The next one.
    block.seq = FIRST_SEQ + 2;
    log.disk.put(DATA_OFFSET + 48, &senseless(&block));
    log.refused(48);
}

/// A block with a wrong size and a right checksum.
fn senseless(block: &MetaBlock) -> Vec<u8> {
    let mut bytes = block.encode(UUID);
    bytes[12] = 1;
    bytes[4..8].fill(0);
    let sum = page_checksum(UUID, &bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_block_that_was_torn_ends_the_log() {
    for torn in [24, 32, 40, 48] {
        let mut log = Log::new(1024, 0);
        log.block(&[Data(0), Parity(0)]);
        log.block(&[Data(8), Data(16), Parity(8)]);
        log.block(&[Data(8), Parity(8)]);
        log.disk.damage(DATA_OFFSET + torn);
        log.position = 24;
        log.seq = FIRST_SEQ + 1;
        assert_eq!(log.replay().0, [(Role(0), 0, 8), (Role(2), 0, 16)], "torn at {torn}");
    }
}

#[test]
fn a_ring_may_be_full() {
    let mut log = Log::new(72, 24);
    for sector in [0, 8, 16] {
        log.block(&[Data(sector), Parity(sector)]);
    }
    assert_eq!((log.position, log.replay().0.len()), (24, 6));
    // Even when the first block could follow the last one: it has been read.
    log.seq = FIRST_SEQ + 3;
    log.block(&[Data(24), Parity(24)]);
    assert_eq!(log.scan().unwrap().blocks, 1);
    // More than the ring has, and more than is left of it.
    let mut log = Log::new(32, 0);
    log.block(&[Data(0), Data(8), Data(16), Data(24)]);
    log.refused(0);
    let mut log = Log::new(32, 0);
    log.block(&[]);
    let head = log.disk.0[DATA_OFFSET as usize * 512..][..4096].to_vec();
    log.block(&[Data(0), Data(8), Data(16)]);
    log.disk.put(DATA_OFFSET, &head);
    log.refused(8);
}

#[test]
fn a_damaged_head_is_no_empty_log() {
    let damaged = |at: u64| {
        let mut log = Log::new(1024, 64);
        log.block(&[Data(0), Parity(0)]);
        log.disk.damage(DATA_OFFSET + at);
        log
    };
    for at in [64, 72, 80] {
        damaged(at).refused(64);
    }
    let mut elsewhere = Log::new(1024, 64);
    elsewhere.block(&[]);
    elsewhere.area.tail = 72;
    elsewhere.refused(72);
    let mut unread = Log::new(1024, 64);
    unread.disk.0.truncate((DATA_OFFSET as usize + 65) * 512);
    assert_eq!(unread.scan(), Err("beyond the end".to_owned()));
}

#[test]
fn the_tail_is_a_block_of_the_ring() {
    let sound = Superblock {
        data_offset: DATA_OFFSET,
        data_size: 1029,
        recovery_offset: 1016,
        roles: vec![DevRole::Journal],
        ..super::superblock(feature::JOURNAL)
    };
    let area = JournalArea { start: DATA_OFFSET, sectors: 1024, tail: 1016 };
    assert_eq!(JournalArea::of(&sound), Ok(area));
    for tail in [1, 1020, 1024, u64::MAX] {
        let wrong = Superblock { recovery_offset: tail, ..sound.clone() };
        let reason = format!("its tail, sector {tail}, is not within the journal");
        assert_eq!(JournalArea::of(&wrong), Err(reason));
    }
}

#[test]
fn what_does_not_fit_the_array_is_refused() {
    let refused = |item: Item<'_>| {
        let mut log = Log::new(1024, 0);
        log.block(&[]);
        log.block(&[item]);
        log.refused(8);
    };
    refused(Data(2 * MEMBER_SECTORS));
    refused(Data(u64::MAX - 7));
    refused(Parity(MEMBER_SECTORS));
    refused(Parity(u64::MAX - 7));
    refused(Parities(8));
    let mut log = Log::new(1024, 0);
    log.block(&[Parity(8)]);
    assert!(log.scan_of(&geometry(Level::Raid6, 4)).is_err());
}

#[test]
fn raid6_has_two_parities() {
    let mut log = Log::new(64, 24);
    log.block(&[Data(8), Parities(8)]);
    log.block(&[]);
    let found = log.scan_of(&geometry(Level::Raid6, 4)).unwrap();
    // P of the first stripe is on role 3, Q on role 0, its data behind that.
    let page = |role, position| JournalPage { role, row: 8, position };
    assert_eq!(found.pages, [page(Role(0), 48), page(Role(1), 32), page(Role(3), 40)]);
    assert_eq!((found.end, found.blocks), (0, 2));
}

#[test]
fn people_see_all_blocks() {
    let mut log = Log::new(1024, 0);
    log.block(&[Data(8), Parity(8)]);
    log.block(&[Data(16), Flush(&[8])]);
    log.disk.damage(DATA_OFFSET + 32);
    let geometry = geometry(Level::Raid5, 3);
    let seen = {
        let read = &mut |sector, bytes| log.disk.read(sector, bytes);
        let mut blocks = Blocks::new(log.area, UUID, &geometry, read);
        let mut next = || blocks.next_block().unwrap();
        [next(), next()].map(|found| {
            let found = found.unwrap();
            (found.block.position, found.block.payloads.len(), found.damaged)
        })
    };
    assert_eq!(seen, [(0, 2, vec![]), (24, 2, vec![0])]);
    log.disk.damage(DATA_OFFSET);
    let read = &mut |sector, bytes| log.disk.read(sector, bytes);
    let mut blocks = Blocks::new(log.area, UUID, &geometry, read);
    assert_eq!(blocks.next_block(), Ok(None));
    assert!(matches!(blocks.end(), Some((0, JournalEnd::NoBlock(_)))), "{:?}", blocks.end());
}

#[test]
fn what_md_logged_is_replayed() {
    let superblock = include_bytes!("../../data/journal.superblock");
    let superblock = Superblock::decode(Version::V1_2, 8, superblock).unwrap();
    let area = JournalArea::of(&superblock).unwrap();
    assert_eq!((area.start, area.sectors, area.tail), (2048, 6144, 64));
    let mut disk = Disk::new(8192);
    disk.put(area.start + area.tail, include_bytes!("../../data/journal.log"));
    let read = &mut |sector, bytes| disk.read(sector, bytes);
    let found = JournalScan::read(area, superblock.set_uuid, &raid5(), read).unwrap();
    let page = |role, position| JournalPage { role, row: 16, position };
    assert_eq!(found.pages, [page(Role(1), 72), page(Role(2), 80)]);
    assert_eq!(by_row(found.data), [(24, 144), (136, 128), (216, 96), (224, 112)]);
    assert_eq!((found.end, found.blocks), (152, 5));
}

#[test]
fn what_has_no_parity_needs_room_to_be_recorded_anew() {
    let scan = |sectors: u64, end: u64, pages: u64| JournalScan {
        area: JournalArea { start: 0, sectors, tail: 80 },
        end,
        next_seq: 1,
        blocks: 1,
        pages: Vec::new(),
        data: (0..pages).map(|page| (page * 8, page * 8)).collect(),
    };
    // Seventeen pages come with two blocks, and two blocks are kept free.
    let used = 160;
    let needed = (17 + 2 + 2) * 8;
    assert!(scan(used + needed, 80 + used, 17).has_room_to_move());
    assert!(!scan(used + needed - 8, 80 + used, 17).has_room_to_move());
    assert!(scan(used + needed - 8, 80 + used, 0).has_room_to_move());
    // All of the ring is in use.
    assert!(!scan(4096, 80, 1).has_room_to_move());
}
