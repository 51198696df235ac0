//! mdadm's backups.

use super::super::front::Maps;
use super::super::{BackupError, Settlement, SettlingWrite};
use super::*;
use crate::refusal::Advised;

/// The header of a backup file: both halves.
pub(super) fn header(uuid: u8, mtime: u64, first: [u64; 3], second: [u64; 3]) -> Vec<u8> {
    let mut header = b"md_backup_data-2".to_vec();
    header.extend([uuid; 16]);
    for number in [mtime, first[0], first[1], first[2], 0, second[0], second[1], second[2], 0] {
        header.extend(number.to_le_bytes());
    }
    header.resize(Halfway::BACKUP_HEADER_BYTES, 0);
    header
}

/// A change of the layout that needs backups: the data begin where they did.
fn in_place(options: Options) -> Halfway {
    let array = relaid(16 * 40, false);
    let array = Superblock { feature_map: feature::RESHAPE_ACTIVE, ..array };
    halfway(&array, &[], options)
}

#[test]
fn a_backup_wins_over_the_array() {
    let mut halfway = in_place(READ);
    let refusal = halfway.pieces().unwrap_err();
    assert!(refusal.next.advice.contains("--backup-file"), "{refusal}");
    assert!(in_place(FORCE).pieces().is_ok());
    // The first half is behind the position, the second is not; it begins 64 sectors further on.
    let header = header(7, 10_000, [8, 320, 320], [320, 640, 320]);
    halfway.add_backup("b", 1000, &header).unwrap();
    let pieces = halfway.pieces().unwrap();
    let places = pieces.whole.members.iter().map(|member| &member.superblock);
    let places: Vec<_> = places.map(|sb| (sb.data_offset, sb.data_size)).collect();
    assert_eq!(places, [(0, 640), (0, 320), (960, 2048 - 960)]);
    let backup = &pieces.arrays[1].members[0];
    assert_eq!((backup.device.as_str(), backup.superblock.data_offset), ("b", 328));
    assert_eq!(backup.superblock.data_size, 320);
}

#[test]
fn what_is_no_backup_of_this_reshape_is_refused() {
    let add = |header: &[u8], options| in_place(options).add_backup("b", 1000, header);
    let good = |mtime| header(7, mtime, [8, 640, 320], [320, 0, 0]);
    assert_eq!(add(&[0; 512], READ), Err(BackupError::NoMagic));
    assert_eq!(add(b"md_backup_data-2", READ), Err(BackupError::NoMagic));
    let foreign = add(&header(8, 10_000, [8, 0, 8], [0; 3]), READ).unwrap_err();
    assert!(matches!(foreign, BackupError::Foreign { .. }), "{foreign}");
    assert_eq!(add(&good(10_000), READ), Ok(()));
    for mtime in [10_000 - 7201, 10_000 + 601] {
        let why = add(&good(mtime), READ).unwrap_err();
        assert!(matches!(why, BackupError::Time { .. }) && !why.next().is_empty(), "{why}");
        assert_eq!(add(&good(mtime), FORCE), Ok(()));
    }
    for first in [[900, 640, 320], [u64::MAX, 640, 320], [8, u64::MAX, 320], [8, 640, u64::MAX]] {
        let header = header(7, 10_000, first, [0; 3]);
        assert_eq!(add(&header, READ), Err(BackupError::Places), "{first:?}");
    }
}

/// A backup in two halves of `in_place`, of 20 units from here on, as it was copied when `moved`
/// units were moved; `done` are moved by now.
fn copied(told: u64, copied: u64, done: u64) -> (Halfway, Disks) {
    let content = noise(2 * SIZE_SECTORS, 3);
    let mut halfway = in_place_at(told);
    let mut disks = Disks::new(&halfway);
    for stripe in 0..SIZE_SECTORS / 8 {
        disks.write(&halfway, Side::Old, stripe, &content);
    }
    let mut file = vec![0; 8 * 512];
    for stripe in 0..done {
        if stripe == copied {
            file.extend(by_old_map(&halfway, &mut disks, told * 16, 320));
        }
        disks.write(&halfway, Side::New, stripe, &content);
    }
    if copied >= done {
        file.extend(by_old_map(&halfway, &mut disks, told * 16, 320));
    }
    disks.0.insert("b".to_owned(), file);
    let header = header(7, 10_000, [8, told * 16, 160], [160, told * 16 + 160, 160]);
    halfway.add_backup("b", 8 + 320, &header).unwrap();
    (halfway, disks)
}

fn in_place_at(unit: u64) -> Halfway {
    let array = Superblock { feature_map: feature::RESHAPE_ACTIVE, ..relaid(16 * unit, false) };
    halfway(&array, &[], READ)
}

fn by_old_map(halfway: &Halfway, disks: &mut Disks, start: u64, sectors: u64) -> Vec<u8> {
    let mut reader = disks.reader();
    let mut maps = Maps::of(halfway, &mut reader).unwrap();
    let blocks = (start..start + sectors).step_by(8);
    blocks.flat_map(|at| maps.data(Side::Old, at, 8).unwrap()).collect()
}

#[test]
fn a_backup_is_in_doubt_unless_something_was_moved_after_it() {
    // Position, moved when it was copied, and now.
    for (told, before, now, is_sure) in [
        (40, 40, 45, true),
        (40, 40, 59, true),
        (40, 40, 40, false),
        (40, 60, 60, false),
        (40, 45, 45, false),
        // All that it holds was moved, and the position is far behind: md did not wait.
        (40, 40, 60, false),
    ] {
        let (mut halfway, mut disks) = copied(told, before, now);
        let said = halfway.weigh(&mut disks.reader());
        assert_eq!(said.is_none(), is_sure, "{told} {before} {now}: {said:?}");
        assert_eq!(halfway.backups.len(), 2);
    }
}

#[test]
fn what_a_backup_no_longer_holds_was_moved() {
    let mut halfway = in_place_at(40);
    let header = header(7, 10_000, [8, 60 * 16, 160], [160, 0, 0]);
    halfway.add_backup("b", 8 + 320, &header).unwrap();
    let pieces = halfway.pieces().unwrap();
    let places = pieces.whole.members.iter().map(|member| &member.superblock);
    let places: Vec<_> = places.map(|sb| (sb.data_offset, sb.data_size)).collect();
    assert_eq!(places, [(0, 960), (0, 160), (1120, 2048 - 1120)]);
}

/// The array that grows, where no shift of the data is possible: the fourth device was a spare.
fn growing_in_place(position: u64) -> Superblock {
    let reshape = Reshape { position, new_offset: 0, ..growing().reshape };
    Superblock { feature_map: feature::RESHAPE_ACTIVE, reshape, ..growing() }
}

#[test]
fn backups_behind_the_data_of_new_members_are_found() {
    let end = DATA_OFFSET + SIZE_SECTORS;
    let start = end - 8 - 48;
    let written = header(7, 10_000, [start, 0, 48], [0; 3]);
    let mut first = b"md_backup_data-1".to_vec();
    first.extend_from_slice(&written[16..]);
    let dropped = {
        let mut header = first.clone();
        header[48..64].fill(0);
        header
    };
    let found = |before: &[u8], behind: &[u8], device: &str| {
        let mut halfway = halfway(&growing_in_place(0), &[], READ);
        let mut disks = Disks::new(&halfway);
        disks.at(device, start - 8, 1).copy_from_slice(before);
        disks.at(device, end - 8, 1).copy_from_slice(behind);
        halfway.add_backups_on_members(&mut disks.reader()).unwrap();
        let kept = halfway.backups.iter().map(|one| (one.data.clone(), one.array.clone()));
        (kept.collect::<Vec<_>>(), halfway.has_backup)
    };
    assert_eq!(found(&first, &first, "d3"), (vec![(start..start + 48, 0..48)], true));
    assert_eq!(found(&first, &first, "d2"), (vec![], false), "a member of before");
    assert_eq!(found(&dropped, &first, "d3"), (vec![], true));
    assert_eq!(found(&noise(1, 5), &first, "d3"), (vec![], false), "half written");
    let foreign = header(8, 10_000, [start, 0, 48], [0; 3]);
    assert_eq!(found(&foreign, &foreign, "d3"), (vec![], false));
}

pub(super) fn apply(disks: &mut Disks, settlement: &Settlement) {
    for SettlingWrite { device, sector, bytes } in &settlement.data {
        let sectors = bytes.len() as u64 / SECTOR_BYTES;
        disks.at(device, *sector, sectors).copy_from_slice(bytes);
    }
}

#[test]
fn what_a_backup_holds_is_written_where_the_new_map_has_it() {
    let now = time_code(10_100, 1);
    let array = growing_in_place(0);
    let content = noise(2 * SIZE_SECTORS, 3);
    let mut halfway = halfway(&array, &[], READ);
    let mut disks = Disks::new(&halfway);
    for stripe in 0..SIZE_SECTORS / 8 {
        disks.write(&halfway, Side::Old, stripe, &content);
    }
    // The first unit of two was moved when the power went off.
    disks.write(&halfway, Side::New, 0, &content);
    let kept = 48 * SECTOR_BYTES as usize;
    disks.0.insert("b".to_owned(), [&[0; 8 * 512], &content[..kept]].concat());
    assert_eq!(disks.look(&mut halfway).unwrap(), None);
    let all = candidates(&array, &[]);
    assert!(halfway.settled(&all, now, false, &mut disks.reader()).is_none(), "without the backup");
    halfway.add_backup("b", 56, &header(7, 10_000, [8, 0, 48], [0; 3])).unwrap();
    let settlement = halfway.settled(&all, now, false, &mut disks.reader()).unwrap();
    // The first stripe is where it was: nothing shows that it was moved after the backup was made.
    halfway.weigh(&mut disks.reader()).expect("doubt");
    assert!(halfway.settled(&all, now, false, &mut disks.reader()).is_none(), "in doubt");
    halfway.force = true;
    assert!(halfway.settled(&all, now, false, &mut disks.reader()).is_some(), "forced");
    assert_eq!(settlement.position, 48);
    assert_eq!(settlement.metadata.len(), 4, "a superblock for each");
    apply(&mut disks, &settlement);
    let found: Vec<u8> = {
        let mut reader = disks.reader();
        let mut maps = Maps::of(&halfway, &mut reader).unwrap();
        (0..48).step_by(8).flat_map(|at| maps.data(Side::New, at, 8).unwrap()).collect()
    };
    assert!(found == content[..kept]);
    // Parity, too: of two stripes of four members.
    for row in [0, 8] {
        let mut sum = vec![0; 8 * 512];
        for device in 0..4 {
            let strip = disks.at(&number_name(device), DATA_OFFSET + row, 8);
            braid_parity::xor_into(&mut sum, &[strip]);
        }
        assert!(sum.iter().all(|byte| *byte == 0), "row {row}");
    }
    let start = decide(settlement.candidates, Options::default()).start;
    let Start::Ready { config, .. } = start else { panic!("{start:?}") };
    assert_eq!((config.superblock.reshape.position, config.superblock.events), (48, 11));
    assert_eq!(config.superblock.reshape.new_offset, 0);
}

#[test]
fn a_move_in_place_goes_on_once_it_reads_ahead_of_what_it_writes() {
    let goes_on = |position, utime| {
        let array = Superblock { utime, ..growing_in_place(position) };
        matches!(decide(candidates(&array, &[]), Options::default()).start, Start::Ready { .. })
    };
    let sure = time_code(10_000, 1);
    assert!(!goes_on(24, sure), "the next stripe lies upon one that is yet to be read");
    assert!(goes_on(48, sure));
    assert!(!goes_on(48, 10_000), "md may be further on than it says");
    assert!(goes_on(96, 10_000));
}

#[test]
fn the_position_that_the_data_tell_is_gone_on_from() {
    let now = time_code(10_100, 1);
    // What was moved last is there twice, and is moved again: nothing shows that its parity was
    // written.
    for (blank, found) in [(60..60, 44), (56..60, 44)] {
        let mut content = noise(2 * SIZE_SECTORS, 3);
        let sector = |unit: usize| unit * 16 * SECTOR_BYTES as usize;
        content[sector(blank.start)..sector(blank.end)].fill(0);
        let (mut halfway, mut disks) = moved(40, 60, false, &content, &[]);
        disks.look(&mut halfway).unwrap();
        let all = candidates(&relaid(40 * 16, false), &[]);
        let settlement = halfway.settled(&all, now, false, &mut disks.reader()).unwrap();
        assert_eq!(settlement.position, 16 * found);
        assert!(settlement.data.is_empty());
        let start = decide(settlement.candidates, Options::default()).start;
        let Start::Ready { config, .. } = start else { panic!("{start:?}") };
        assert_eq!(config.superblock.reshape.position, 16 * found);
    }
    // Old stripes may have been written over in part: nothing is computed from them.
    let content = noise(2 * SIZE_SECTORS, 3);
    let (mut halfway, mut disks) = moved(40, 60, false, &content, &[0]);
    let _ = disks.look(&mut halfway);
    let all = candidates(&relaid(40 * 16, false), &[0]);
    assert!(halfway.settled(&all, now, false, &mut disks.reader()).is_none());
}

#[test]
fn another_layout_in_place_goes_on_and_saves_to_the_file() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let now = time_code(10_100, 1);
    let array = Superblock { feature_map: feature::RESHAPE_ACTIVE, ..relaid(16 * 40, false) };
    let all = candidates(&array, &[]);
    let (mut halfway, mut disks) = copied(40, 40, 45);
    let settled = |halfway: &Halfway, disks: &mut Disks, saves| {
        halfway.settled(&all, now, saves, &mut disks.reader())
    };
    assert_eq!(halfway.weigh(&mut disks.reader()), None);
    assert!(settled(&halfway, &mut disks, false).is_none(), "nothing takes what is overwritten");
    let settlement = settled(&halfway, &mut disks, true).unwrap();
    assert!(settlement.saves() && settlement.is_of_md);
    assert_eq!(settlement.position, 60 * 16, "behind both halves");
    apply(&mut disks, &settlement);
    let found: Vec<u8> = {
        let mut reader = disks.reader();
        let mut maps = Maps::of(&halfway, &mut reader).unwrap();
        (0..960).step_by(8).flat_map(|at| maps.data(Side::New, at, 8).unwrap()).collect()
    };
    assert!(found == content[..found.len()]);
    let start = decide_saving(settlement.candidates, Options::default()).start;
    assert!(matches!(start, Start::Ready { .. }), "{start:?}");
    // Of one that holds nothing any more nothing is known.
    let mut dropped = in_place_at(40);
    dropped.add_backup("b", 8 + 320, &header(7, 10_000, [8, 0, 0], [0; 3])).unwrap();
    assert!(settled(&dropped, &mut disks, true).is_none());
    dropped.force = true;
    assert_eq!(settled(&dropped, &mut disks, true).map(|one| one.position), Some(16 * 40));
}

#[test]
fn braids_backup_of_what_is_in_place_may_be_old() {
    let add = |utime| {
        let array = relaid(16 * 60, false);
        let array = Superblock { feature_map: feature::RESHAPE_ACTIVE, utime, ..array };
        let header = header(7, 10_000, [8, 640, 320], [0; 3]);
        halfway(&array, &[], READ).add_backup("b", 1000, &header)
    };
    assert_eq!(add(time_code(99_000, 1)), Ok(()));
    assert!(matches!(add(99_000), Err(BackupError::Time { .. })), "md's");
}
