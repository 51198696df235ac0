//! Tables that no program writes.

use super::{Flaw, NoTable, Partition, PartitionType, Remark, Table, TableKind, read};
use crate::crc::crc32;
use crate::image::tests::Torn;

const LINUX: [u8; 16] = *b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4";

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

fn entry(disk: &mut [u8], sector: usize, index: usize, kind: u8, first: u32, sectors: u32) {
    let at = sector * 512 + 446 + index * 16;
    disk[at + 4] = kind;
    put(disk, at + 8, first.to_le_bytes());
    put(disk, at + 12, sectors.to_le_bytes());
    put(disk, sector * 512 + 510, [0x55, 0xaa]);
}

/// A disk of 1 MiB with these partitions in its GPT, first and last sector each.
fn gpt(partitions: &[(u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    entry(&mut disk, 0, 0, 0xee, 1, 2047);
    let mut entries = vec![0; 128 * 128];
    for (index, (first, last)) in partitions.iter().enumerate() {
        put(&mut entries, index * 128, LINUX);
        put(&mut entries, index * 128 + 32, first.to_le_bytes());
        put(&mut entries, index * 128 + 40, last.to_le_bytes());
    }
    for (here, other, entries_at) in [(1, 2047, 2), (2047, 1, 2015)] {
        let at = here as usize * 512;
        let at_entries = entries_at as usize * 512;
        disk[at_entries..at_entries + entries.len()].copy_from_slice(&entries);
        let header = &mut disk[at..at + 92];
        put(header, 0, *b"EFI PART\0\0\x01\0");
        put(header, 12, 92_u32.to_le_bytes());
        put::<8>(header, 24, u64::to_le_bytes(here));
        put::<8>(header, 32, u64::to_le_bytes(other));
        put::<8>(header, 72, u64::to_le_bytes(entries_at));
        put(header, 80, 128_u32.to_le_bytes());
        put(header, 84, 128_u32.to_le_bytes());
        put(header, 88, crc32(&entries).to_le_bytes());
        sign(header);
    }
    disk
}

/// Gives a header the checksum that it should have.
fn sign(header: &mut [u8]) {
    put(header, 16, [0; 4]);
    let crc = crc32(&header[..92]);
    put(header, 16, crc.to_le_bytes());
}

fn numbers(table: &Table) -> Vec<u32> {
    table.partitions.iter().map(|partition| partition.number).collect()
}

#[test]
fn ranges_that_overlap_or_are_none_are_told() {
    let disk = gpt(&[(100, 300), (200, 250), (301, 400), (399, 2014), (9, 8), (0, u64::MAX)]);
    let table = read(&mut disk.as_slice()).unwrap();
    assert_eq!(numbers(&table), [1, 2, 3, 4]);
    assert_eq!(
        table.remarks,
        [
            Remark::NoRange { number: 5 },
            Remark::NoRange { number: 6 },
            Remark::Overlap { first: 1, second: 2 },
            Remark::Overlap { first: 3, second: 4 },
        ]
    );
}

#[test]
fn sectors_that_cannot_be_read_cost_a_copy_or_the_first_sector() {
    let bytes = gpt(&[(100, 300)]);
    let whole = read(&mut bytes.as_slice()).unwrap();
    let mut torn = Torn { bytes, torn: vec![512..1024] };
    let table = read(&mut torn).unwrap();
    assert_eq!(table.partitions, whole.partitions);
    let [Remark::BackupUsed { why: Flaw::Unreadable(why) }] = &table.remarks[..] else {
        panic!("{:?}", table.remarks)
    };
    assert_eq!(why.to_string(), "512 bytes at byte 512 cannot be read: medium error");
    torn.torn = vec![0..512, 2047 * 512..2048 * 512];
    let table = read(&mut torn).unwrap();
    assert_eq!(table.partitions, whole.partitions);
    assert!(matches!(table.remarks[..], [Remark::BackupBroken { .. }, Remark::NotProtected]));
    // Entries that are not used are not missed.
    torn.torn = vec![1536..2048, 2016 * 512..2017 * 512];
    let table = read(&mut torn).unwrap();
    assert_eq!((table.partitions, table.remarks), (whole.partitions, vec![]));
    // The first four are missing in both copies, the fifth is not.
    let bytes = gpt(&[(100, 200), (201, 300), (301, 400), (401, 500), (501, 600)]);
    let mut torn = Torn { bytes, torn: vec![1024..1536, 2015 * 512..2016 * 512] };
    let table = read(&mut torn).unwrap();
    assert_eq!(numbers(&table), [5]);
    let [Remark::EntriesDamaged { why: Flaw::Unreadable(why) }] = &table.remarks[..] else {
        panic!("{:?}", table.remarks)
    };
    assert_eq!((why.offset_bytes, why.bytes), (1024, 512));
    torn.torn = vec![0..1 << 20];
    assert!(matches!(read(&mut torn), Err(NoTable::Unreadable(_))));
}

#[test]
fn headers_that_ask_for_too_much_are_refused() {
    let cases: [(&str, usize, u32); 5] = [
        ("HeaderSize", 12, 513),
        ("SizeOfPartitionEntry", 84, 0),
        ("SizeOfPartitionEntry", 84, 192),
        ("NumberOfPartitionEntries", 80, 8193),
        ("MyLBA", 24, 2),
    ];
    for (name, at, value) in cases {
        let mut disk = gpt(&[(100, 300)]);
        for header in [512, 2047 * 512] {
            put(&mut disk[header..], at, value.to_le_bytes());
            sign(&mut disk[header..header + 512]);
        }
        let Err(NoTable::Damaged { primary, .. }) = read(&mut disk.as_slice()) else {
            panic!("{name} {value} is taken")
        };
        assert!(matches!(primary, Flaw::Field { field, .. } if field == name), "{primary}");
    }
}

#[test]
fn an_mbr_that_does_not_announce_the_gpt_counts() {
    let mut disk = gpt(&[(100, 300)]);
    entry(&mut disk, 0, 0, 0xfd, 8, 16);
    let table = read(&mut disk.as_slice()).unwrap();
    assert_eq!((table.kind, &table.remarks[..]), (TableKind::Mbr, &[Remark::GptToo][..]));
    let partition = Partition {
        number: 1,
        start_bytes: 8 * 512,
        size_bytes: 16 * 512,
        kind: PartitionType::Mbr(0xfd),
        name: String::new(),
    };
    assert_eq!(table.partitions, [partition]);
    let mut disk = vec![0; 1 << 20];
    entry(&mut disk, 0, 0, 0xee, 1, 2047);
    let error = read(&mut disk.as_slice()).unwrap_err().to_string();
    assert!(error.starts_with("the GPT is damaged: no signature at byte 512"), "{error}");
}

#[test]
fn chains_are_followed_as_far_as_linux_follows_them() {
    let mut disk = vec![0; 600 * 512];
    entry(&mut disk, 0, 1, 0x05, 10, 590);
    for sector in 10..599 {
        entry(&mut disk, sector, 0, 0x83, 1, 1);
        entry(&mut disk, sector, 1, 0x05, sector as u32 + 1 - 10, 2);
    }
    let table = read(&mut disk.as_slice()).unwrap();
    assert_eq!(table.partitions.len(), 257);
    assert_eq!(table.remarks.last(), Some(&Remark::TooLong));
    // Rubbish in the last two entries, and a chain that ends in the open.
    let mut disk = vec![0; 600 * 512];
    entry(&mut disk, 0, 1, 0x05, 10, 100);
    entry(&mut disk, 10, 0, 0x83, 1, 20);
    entry(&mut disk, 10, 2, 0x77, 3, 4_000_000);
    entry(&mut disk, 10, 3, 0x05, 50, 10);
    let table = read(&mut disk.as_slice()).unwrap();
    assert_eq!(numbers(&table), [2, 5]);
    let why = Flaw::Absent { at_bytes: 60 * 512 };
    assert_eq!(table.remarks, [Remark::CutOff { why }]);
}

#[test]
fn what_is_no_table_is_none() {
    let mut sectors = vec![0; 8192];
    assert_eq!(read(&mut sectors.as_slice()), Err(NoTable::None));
    put(&mut sectors, 510, [0x55, 0xaa]);
    assert_eq!(read(&mut sectors.as_slice()), Err(NoTable::None));
    entry(&mut sectors, 0, 0, 0x07, 1, 2);
    put(&mut sectors, 3, *b"NTFS    ");
    assert_eq!(read(&mut sectors.as_slice()), Err(NoTable::None));
    assert_eq!(read(&mut [0x55; 10].as_slice()), Err(NoTable::None));
    assert_eq!(read(&mut [].as_slice()), Err(NoTable::None));
}
