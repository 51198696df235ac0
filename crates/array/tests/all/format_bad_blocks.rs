//! The bad-block log against one that Linux md wrote, and its operations against a plain model.

use braid_array::format::{BadBlocks, BadBlocksError};

const LOG: &[u8] = include_bytes!("../data/v12.bblog");

fn log_of(ranges: &[(u64, u64)]) -> BadBlocks {
    let mut log = BadBlocks::default();
    for (sector, sectors) in ranges {
        assert!(log.insert(*sector, *sectors));
    }
    log
}

#[test]
fn what_md_wrote_is_read_although_it_is_out_of_order() {
    let log = BadBlocks::decode(LOG, 0).unwrap();
    assert_eq!(log.ranges(), [(10_000, 8), (20_000, 700)]);
    // md's order of the two last entries is its own; written again they are sorted.
    let bytes = log.encode(0);
    assert_eq!(bytes.len(), 4096);
    assert_eq!(bytes[..8], LOG[..8]);
    assert_eq!((&bytes[8..16], &bytes[16..24]), (&LOG[16..24], &LOG[8..16]));
    assert_eq!(bytes[24..], LOG[24..]);
    assert_eq!(BadBlocks::decode(&bytes, 0).unwrap(), log);
}

#[test]
fn units_of_several_sectors_grow_outwards() {
    let log = log_of(&[(7, 2), (24, 8)]);
    let read = BadBlocks::decode(&log.encode(3), 3).unwrap();
    assert_eq!(read.ranges(), [(0, 16), (24, 8)]);
}

#[test]
fn insert_and_remove_do_what_a_set_of_sectors_does() {
    const SECTORS: u64 = 12;
    // All pairs of an insertion or removal, after each of a few starting logs.
    let ranges = || (0..SECTORS).flat_map(|start| (1..=SECTORS - start).map(move |n| (start, n)));
    for start in [vec![], vec![(2, 3)], vec![(0, 2), (5, 1), (9, 3)]] {
        let base = log_of(&start);
        for (sector, sectors) in ranges() {
            let mut grown = base.clone();
            let mut shrunk = base.clone();
            assert!(grown.insert(sector, sectors) && shrunk.remove(sector, sectors));
            for at in 0..SECTORS {
                let inside = (sector..sector + sectors).contains(&at);
                let before = base.overlaps(at, 1);
                assert_eq!(grown.overlaps(at, 1), before || inside);
                assert_eq!(shrunk.overlaps(at, 1), before && !inside);
            }
            for log in [&grown, &shrunk] {
                let apart = log.ranges().windows(2).all(|w| w[0].0 + w[0].1 < w[1].0);
                assert!(apart, "{:?}", log.ranges());
                assert_eq!(&BadBlocks::decode(&log.encode(0), 0).unwrap(), log);
            }
        }
    }
}

#[test]
fn next_bad_is_clipped_to_the_range() {
    let log = log_of(&[(10, 5), (20, 5)]);
    assert_eq!(log.next_bad(0, 10), None);
    assert_eq!(log.next_bad(0, 11), Some((10, 1)));
    assert_eq!(log.next_bad(12, 100), Some((12, 3)));
    assert_eq!(log.next_bad(15, 5), None);
    assert_eq!(log.next_bad(15, u64::MAX), Some((20, 5)));
    assert_eq!(log.next_bad(12, 0), None);
}

#[test]
fn a_full_log_refuses_and_keeps_what_it_has() {
    let mut log = log_of(&(0..511).map(|i| (i * 10, 1)).collect::<Vec<_>>());
    let before = log.clone();
    assert!(!log.insert(1 << 30, 513), "needs two entries, one is free");
    assert_eq!(log, before);
    assert!(log.insert(1 << 30, 512));
    assert_eq!(BadBlocks::decode(&log.encode(0), 0).unwrap(), log);
    let before = log.clone();
    assert!(!log.remove((1 << 30) + 5, 1), "splitting needs one more entry");
    assert!(!log.insert(u64::MAX, 2) && !log.insert(1 << 54, 1));
    assert_eq!(log, before);
    assert!(log.insert(1, 9), "joins two ranges");
    assert!(log.remove((1 << 30) + 5, 1));
}

#[test]
fn hostile_logs_are_refused() {
    assert_eq!(
        BadBlocks::decode(&[0; 4104], 0).unwrap_err(),
        BadBlocksError::TooLarge { bytes: 4104 }
    );
    let entry = ((1u64 << 53) << 10 | 1).to_le_bytes();
    assert!(BadBlocks::decode(&entry, 0).is_ok());
    for shift in [1, 12, 16] {
        assert_eq!(
            BadBlocks::decode(&entry, shift).unwrap_err(),
            BadBlocksError::OutOfRange { entry: 0 }
        );
    }
    for shift in [17, 64, 255] {
        let error = BadBlocks::decode(&[], shift).unwrap_err();
        assert_eq!(error, BadBlocksError::Shift { shift });
    }
    let long: Vec<u8> = (0..512u64).flat_map(|i| (i << 21 | 1023).to_le_bytes()).collect();
    assert_eq!(BadBlocks::decode(&long, 0).unwrap_err(), BadBlocksError::TooMany);
}

#[test]
fn an_entry_beyond_the_last_unit_is_refused() {
    let last = (1u64 << 54) - 1;
    let entry = |units: u64| (last << 10 | units).to_le_bytes();
    let log = BadBlocks::decode(&entry(1), 0).unwrap();
    assert_eq!(BadBlocks::decode(&log.encode(0), 0).unwrap(), log);
    let beyond = BadBlocks::decode(&entry(2), 0);
    assert_eq!(beyond.unwrap_err(), BadBlocksError::OutOfRange { entry: 0 });
}
