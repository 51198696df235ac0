//! The partial parity log.

use super::{CHUNK_SECTORS, Disk, MEMBER_SECTORS, UUID, geometry};
use braid_array::Role;
use braid_array::format::ppl::{PplArea, PplEntry, PplHeader};
use braid_array::format::{Superblock, Version};
use braid_array::level::Level;
use braid_array::log::ppl::{PplFix, PplScan};
use crc32c::crc32c;

/// First sector of the area.
const AREA: u64 = 16;

/// Room for 33 units of an entry of 4 KiB.
const RING: PplArea = PplArea { sector: AREA, sectors: 528, is_ring: true };

/// The content of partial parity of so many bytes.
fn partial_parity(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at / 3) as u8).collect()
}

fn entry(data_sector: u64, pp_bytes: u32, data_bytes: u32) -> PplEntry {
    let checksum = crc32c(&partial_parity(pp_bytes));
    PplEntry { data_sector, pp_bytes, data_bytes, parity_disk: 3, checksum }
}

/// Puts a unit at an offset of the area; gives the offset behind it.
fn put(disk: &mut Disk, offset: u64, generation: u64, entries: &[PplEntry]) -> u64 {
    let header = PplHeader { generation, entries: entries.to_vec() };
    disk.put(AREA + offset, &header.encode(UUID));
    let mut at = offset + 8;
    for entry in entries {
        disk.put(AREA + at, &partial_parity(entry.pp_bytes));
        at += u64::from(entry.pp_bytes) / 512;
    }
    at
}

/// A disk whose log has the units of these generations from its start on, each of one entry of
/// 4 KiB: 16 sectors.
fn disk(generations: &[u64]) -> Disk {
    let mut disk = Disk::new(4096);
    let mut offset = 0;
    for &generation in generations {
        offset = put(&mut disk, offset, generation, &[entry(8, 4096, 4096)]);
    }
    disk
}

fn scan(disk: &Disk, area: PplArea) -> PplScan {
    PplScan::read(area, UUID, &mut |sector, bytes| disk.read(sector, bytes)).unwrap()
}

fn scanned(disk: &Disk) -> PplScan {
    scan(disk, RING)
}

/// The unit that `disk` makes, in a scan that found nothing wrong.
fn newest(generation: u64) -> PplScan {
    let entries = vec![(entry(8, 4096, 4096), partial_parity(4096))];
    PplScan { generation, entries, ..PplScan::default() }
}

#[test]
fn the_newest_unit_ends_the_chain() {
    assert_eq!(scanned(&disk(&[5, 6, 9])), newest(9));
    // Behind it lies what was written before it, the last time around.
    assert_eq!(scanned(&disk(&[5, 6, 3, 4])), newest(6));
    // A header of another array ends the chain, too.
    let mut foreign = disk(&[5, 6]);
    let header = PplHeader { generation: 7, entries: Vec::new() };
    foreign.put(AREA + 32, &header.encode([8; 16]));
    assert_eq!(scanned(&foreign), newest(6));
    // A full ring: the chain ends with the area.
    let full: Vec<u64> = (1..34).collect();
    assert_eq!(scanned(&disk(&full)), newest(33));
    // One that was torn in writing has not happened.
    let mut torn = disk(&[5, 6, 7]);
    torn.damage(AREA + 32);
    assert_eq!(scanned(&torn), newest(6));
}

#[test]
fn a_single_log_is_its_start() {
    let single = PplArea { is_ring: false, ..RING };
    assert_eq!(scan(&disk(&[5, 6]), single), newest(5));
    // What lies elsewhere then says nothing of the start.
    let mut damaged = disk(&[5, 6]);
    damaged.damage(AREA);
    let blank = PplScan { generation: 7, blank: true, ..PplScan::default() };
    assert_eq!(scan(&damaged, single), blank);
}

#[test]
fn an_empty_log_has_a_unit_without_entries() {
    let mut disk = Disk::new(4096);
    put(&mut disk, 0, 0, &[]);
    assert_eq!(scanned(&disk), PplScan::default());
}

#[test]
fn what_was_torn_is_told_from_what_does_not_fit() {
    // The unit at the start: others of this array follow.
    let mut torn = disk(&[7, 3, 4]);
    torn.damage(AREA + 3);
    let expected = PplScan { generation: 5, torn: true, ..PplScan::default() };
    assert_eq!(scanned(&torn), expected);
    // Partial parity of the newest unit.
    let mut torn = Disk::new(4096);
    put(&mut torn, 0, 1, &[entry(8, 4096, 4096), entry(16, 8192, 8192), entry(0, 0, 4096)]);
    torn.damage(AREA + 16 + 9);
    let scan = scanned(&torn);
    let whole: Vec<u64> = scan.entries.iter().map(|(entry, _)| entry.data_sector).collect();
    assert_eq!((scan.torn, whole), (true, vec![8, 0]));

    let blank = PplScan { blank: true, ..PplScan::default() };
    assert_eq!(scanned(&Disk::new(4096)), blank);
    let mut noise = Disk::new(4096);
    noise.damage(AREA + 100);
    assert_eq!(scanned(&noise), blank);
    // That of another array was not torn.
    let mut foreign = disk(&[7, 3]);
    foreign.put(AREA, &PplHeader { generation: 9, entries: Vec::new() }.encode([8; 16]));
    assert_eq!(scanned(&foreign), PplScan { generation: 4, ..blank });
}

#[test]
fn what_a_unit_hides_that_cannot_be_does_not_count() {
    let impossible = PplScan { generation: 7, impossible: true, ..PplScan::default() };
    // One that ends behind the area.
    let mut beyond = disk(&[7]);
    let header = PplHeader { generation: 9, entries: vec![entry(8, 258 << 10, 258 << 10)] };
    beyond.put(AREA + 16, &header.encode(UUID));
    // What comes next is to be later than that one, too.
    assert_eq!(scanned(&beyond), PplScan { generation: 9, ..impossible.clone() });
    // One with an entry of no possible sizes.
    let mut uneven = disk(&[7]);
    let header = PplHeader { generation: 9, entries: vec![entry(8, 4096, 100)] };
    uneven.put(AREA + 16, &header.encode(UUID));
    assert_eq!(scanned(&uneven), impossible);
}

#[test]
fn a_log_that_cannot_be_read_is_an_error() {
    let disk = Disk::new(20);
    let error = PplScan::read(RING, UUID, &mut |sector, bytes| disk.read(sector, bytes));
    assert_eq!(error, Err("beyond the end".to_owned()));
}

/// What is to be made anew by one entry in a raid5 of four members, the parity of whose stripe 0 is
/// on
/// role 3. So many rows of each role are there.
fn fixes_with(entry: PplEntry, held: [u64; 4]) -> Result<Vec<PplFix>, String> {
    let partial = partial_parity(entry.pp_bytes);
    let geometry = geometry(Level::Raid5, 4);
    braid_array::log::ppl::fixes(&entry, &partial, &geometry, &|role| held[role.index()])
}

fn fixes(entry: PplEntry) -> Vec<PplFix> {
    fixes_with(entry, [MEMBER_SECTORS; 4]).unwrap()
}

/// Rows from a sector on, changed on these roles; `partial`: the sector of the partial parity.
fn fix(row: u64, sectors: u32, partial: Option<u64>, roles: &[u16]) -> PplFix {
    let part = |sector: u64| {
        let start = sector as u32 * 512;
        partial_parity(start + sectors * 512).split_off(start as usize)
    };
    let partial_parity = partial.map(part).unwrap_or_default();
    PplFix {
        parity: Role(3),
        data: roles.iter().copied().map(Role).collect(),
        row,
        sectors,
        partial_parity,
    }
}

#[test]
fn the_changed_disks_follow_from_the_sizes() {
    // One disk, the second of stripe 0.
    let one = fixes(entry(CHUNK_SECTORS + 8, 8192, 8192));
    assert_eq!(one, [fix(8, 16, Some(0), &[1])]);
    // Two of them, in the same rows.
    let two = fixes(entry(CHUNK_SECTORS + 8, 4096, 8192));
    assert_eq!(two, [fix(8, 8, Some(0), &[1, 2])]);
    // All, without partial parity.
    let all = fixes(entry(16, 0, 3 * 4096));
    assert_eq!(all, [fix(16, 8, None, &[0, 1, 2])]);
    // Sectors that are no blocks.
    let odd = fixes(entry(3, 512, 512));
    assert_eq!(odd, [fix(3, 1, Some(0), &[0])]);
    // A whole chunk of one disk.
    let chunk = fixes(entry(0, 65536, 65536));
    assert_eq!(chunk, [fix(0, 128, Some(0), &[0])]);
}

#[test]
fn a_chunk_of_partial_parity_is_for_a_range_of_the_stripe() {
    // From row 96 of the first disk to row 32 of the second.
    let apart = fixes(entry(96, 65536, 64 * 512));
    assert_eq!(apart, [fix(96, 32, Some(0), &[0]), fix(0, 32, Some(32), &[1])]);
    // From row 96 of the first disk to row 96 of the third.
    let most = fixes(entry(96, 65536, 256 * 512));
    assert_eq!(most, [fix(96, 32, Some(0), &[0, 1]), fix(0, 96, Some(32), &[1, 2])]);
    // The whole first disk and half of the second.
    let more = fixes(entry(0, 65536, 192 * 512));
    assert_eq!(more, [fix(0, 64, Some(0), &[0, 1]), fix(64, 64, Some(64), &[0])]);
}

#[test]
fn rows_whose_changed_data_is_away_are_skipped() {
    let two = entry(CHUNK_SECTORS + 8, 4096, 8192);
    let all = MEMBER_SECTORS;
    assert_eq!(fixes_with(two, [all, all, 0, all]), Ok(vec![]));
    // One that did not change may be away.
    assert_eq!(fixes_with(two, [0, all, all, all]), Ok(vec![fix(8, 8, Some(0), &[1, 2])]));
    // One that is being recovered, up to the middle of these rows.
    assert_eq!(fixes_with(two, [all, all, 12, all]), Ok(vec![fix(8, 4, Some(0), &[1, 2])]));
}

#[test]
fn an_entry_that_fits_no_stripe_is_refused() {
    let all = [MEMBER_SECTORS; 4];
    let array_sectors = 3 * MEMBER_SECTORS;
    for wrong in [
        entry(0, 4096, 0),
        entry(0, 4096, 6144),
        entry(0, 8192, 4096),
        entry(0, 4096, 4 * 4096),
        entry(0, 0, 512),
        entry(0, 0, 4 * 65536),
        entry(0, 65536 + 512, 65536),
        entry(0, 65536, 4 * 65536),
        // Behind the array, at its end, and at that of all numbers.
        entry(array_sectors, 4096, 4096),
        entry(array_sectors - 8, 4096, 2 * 4096),
        entry(u64::MAX - 100, 4096, 4096),
        entry(u64::MAX - 100, 4096, 2 * 4096),
        // From the last disk of the stripe into the next one.
        entry(2 * CHUNK_SECTORS, 4096, 2 * 4096),
    ] {
        assert!(fixes_with(wrong, all).is_err(), "{wrong:?}");
    }
    let wrong = PplEntry { parity_disk: 2, ..entry(0, 4096, 4096) };
    let error = fixes_with(wrong, all).unwrap_err();
    assert_eq!(error, "an entry for sector 0 has role 2 hold the parity, which role 3 does");
    // Of stripe 1, whose parity is on role 2.
    let other = entry(3 * CHUNK_SECTORS, 4096, 4096);
    assert!(fixes_with(other, all).is_err());
    let right = fixes_with(PplEntry { parity_disk: 2, ..other }, all).unwrap();
    assert_eq!(right[0].parity, Role(2));
    // The second half would be on the next stripe, whose parity is elsewhere.
    let across = entry(3 * CHUNK_SECTORS - 4, 4096, 4096);
    assert!(fixes_with(across, all).is_err());
}

#[test]
fn what_md_logged_is_replayed() {
    let superblock =
        Superblock::decode(Version::V1_2, 8, include_bytes!("../../data/ppl.superblock")).unwrap();
    let area = PplArea::of(&superblock).unwrap().unwrap();
    let mut disk = Disk::new(4096);
    let unit = include_bytes!("../../data/ppl.unit");
    disk.put(AREA, unit);
    let geometry = geometry(Level::Raid5, 3);
    let fixes = |disk: &Disk| {
        let read = &mut |sector, bytes| disk.read(sector, bytes);
        let scan = PplScan::read(area, superblock.set_uuid, read).unwrap();
        assert!(!scan.torn && !scan.impossible);
        let (entry, partial) = &scan.entries[0];
        let held = |_| MEMBER_SECTORS;
        braid_array::log::ppl::fixes(entry, partial, &geometry, &held).unwrap()
    };
    // 4 KiB at 4 KiB of the array.
    let partial_parity = unit[4096..].to_vec();
    let expected =
        PplFix { parity: Role(2), data: vec![Role(0)], row: 8, sectors: 8, partial_parity };
    assert_eq!(fixes(&disk), [expected]);
    // Then half of a row: both halves of the third stripe of its parity.
    disk.put(AREA + 16, include_bytes!("../../data/ppl-full-row.unit"));
    let partial_parity = Vec::new();
    let data = vec![Role(0), Role(1)];
    let expected = PplFix { parity: Role(2), data, row: 384, sectors: 64, partial_parity };
    assert_eq!(fixes(&disk), [expected]);
}
