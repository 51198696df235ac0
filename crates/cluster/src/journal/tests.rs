use super::*;
use crate::ids::Epoch;

const ARRAY: [u8; 16] = [7; 16];

fn record(version: u64, sequence: u64, rows: usize) -> Record {
    let rows = (0..rows as u64).map(|row| row * 65536).collect();
    Record {
        version: SetVersion::new(Epoch(3), version),
        sequence,
        kind: Kind::Content,
        holders: Roles(0b1011),
        len: 4096,
        rows,
        crc: 0x1234_5678,
    }
}

#[test]
fn pages_come_back_and_nothing_else_is_one() {
    let header = Header {
        sequence: 5,
        log_bytes: 1 << 20,
        tail: 8192,
        first: 9,
        mark: SetVersion::new(Epoch(2), 8),
        parts_only: false,
    };
    for parts_only in [true, false] {
        let header = Header { parts_only, ..header };
        assert_eq!(Header::decode(&ARRAY, &header.encode(&ARRAY)), Some(header));
    }
    let bytes = header.encode(&ARRAY);
    let older = Header { sequence: 4, ..header }.encode(&ARRAY);
    assert_eq!(Header::newest(&ARRAY, &[older, bytes.clone()].concat()), Some(header));
    for kind in [Kind::Content, Kind::Zeroes, Kind::Void] {
        let record = Record { kind, ..record(1, 2, 3) };
        let bytes = record.encode(&ARRAY);
        assert_eq!(Record::decode(&ARRAY, &bytes), Some(record));
        for at in (0..4096).step_by(7) {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 4;
            assert_eq!(Record::decode(&ARRAY, &spoilt), None, "byte {at}");
        }
        assert_eq!(Record::decode(&[8; 16], &bytes), None);
        assert_eq!(Record::decode(&ARRAY, &bytes[..4095]), None);
    }
    assert_eq!(Header::decode(&ARRAY, &record(1, 2, 3).encode(&ARRAY)), None);
    assert_eq!(Header::new(8192, false), None);
}

/// Appends and trims at random; a start at any time finds what is needed.
#[test]
fn a_start_finds_all_that_is_needed_and_no_more() {
    let header = Header::new(20 * PAGE_BYTES, true).expect("room");
    let mut log = Log::new(&header);
    let mut header = header;
    let mut disk: std::collections::BTreeMap<u64, Record> = std::collections::BTreeMap::new();
    let mut kept: VecDeque<Record> = VecDeque::new();
    let mut state = 7_u64;
    let mut wrapped = 0;
    for version in 1..2000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let rows = (state >> 60) as usize % 5;
        let mut new = record(version, 0, rows);
        match log.append(new.version, new.bytes()) {
            Some((at, sequence)) => {
                new.sequence = sequence;
                wrapped += u32::from(at == 0);
                let end = at + new.bytes();
                disk.retain(|&other, old| other + old.bytes() <= at || end <= other);
                disk.insert(at, new.clone());
                kept.push_back(new);
            }
            None => {
                let mark = kept[kept.len() / 2].version;
                let (tail, first) = log.begins(mark);
                header = Header { tail, first, mark, ..header };
                log.trim(first);
                kept.retain(|record| record.version > mark);
            }
        }
        let mut found = Vec::new();
        let mut start = Log::new(&header);
        let mut look = Some(start.look());
        while let Some(at) = look {
            let here = disk.get(&at.at);
            let before = start.next;
            look = start.looked(at, here);
            if start.next > before {
                found.extend(here.cloned());
            }
        }
        assert_eq!(found, Vec::from(kept.clone()), "at version {version}");
    }
    assert!(wrapped > 50, "{wrapped}");
    assert_eq!(log.append(SetVersion::new(Epoch(9), 9), 19 * PAGE_BYTES), None);
    log.empty();
    assert!(log.append(SetVersion::new(Epoch(9), 9), 18 * PAGE_BYTES).is_some());
}
