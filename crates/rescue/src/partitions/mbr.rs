//! Master Boot Record: four entries in the first sector, and logical partitions in a chain of
//! sectors that begins with an extended one. Numbered as `block/partitions/msdos.c` of Linux does.

use super::{Flaw, Partition, PartitionType, Remark, Table, TableKind};
use crate::bytes::{lies_at, u32_le};
use crate::image::{Image, Unreadable, read};

const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
const SIGNATURE_AT: usize = 510;
const SIGNATURE: &[u8] = &[0x55, 0xaa];

/// The type of the entry that stands for a GPT.
const PROTECTIVE: u8 = 0xee;

/// The most sectors of a chain that are read: Linux has no more numbers.
const MAX_CHAIN: usize = 256;

/// Names where a file system's first sector has them, which looks like an MBR otherwise.
const BOOT_SECTORS: [(usize, &[u8]); 5] =
    [(3, b"NTFS    "), (3, b"EXFAT   "), (3, b"-FVE-FS-"), (54, b"FAT"), (82, b"FAT32")];

/// An entry that is in use.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Its place among the four.
    index: usize,
    kind: PartitionType,
    first_sector: u32,
    sectors: u32,
}

/// The contents of the first sector.
pub(super) enum First {
    /// No table.
    Nothing,
    /// A table that announces a GPT.
    Protective,
    /// The entries of a table.
    Table(Vec<Entry>),
}

impl First {
    pub(super) fn read(image: &mut dyn Image) -> Result<Self, Unreadable> {
        if image.size_bytes() < 512 {
            return Ok(Self::Nothing);
        }
        let sector = read(image, 0, 512)?;
        let boots = BOOT_SECTORS.iter().any(|(at, name)| lies_at(&sector, *at, name));
        // Linux knows a table by that, too: 0 or 0x80 is all that may be there.
        let marked = |index: usize| sector[ENTRIES_AT + index * ENTRY_BYTES] & 0x7f == 0;
        if !lies_at(&sector, SIGNATURE_AT, SIGNATURE) || boots || !(0..4).all(marked) {
            return Ok(Self::Nothing);
        }
        let entries = entries(&sector);
        if entries.iter().any(|entry| entry.kind == PartitionType::Mbr(PROTECTIVE)) {
            return Ok(Self::Protective);
        }
        Ok(if entries.is_empty() { Self::Nothing } else { Self::Table(entries) })
    }
}

/// The entries in use of a sector with the signature.
fn entries(sector: &[u8]) -> Vec<Entry> {
    let entry = |index: usize| {
        let at = ENTRIES_AT + index * ENTRY_BYTES;
        let kind = *sector.get(at + 4)?;
        let first_sector = u32_le(sector, at + 8)?;
        let sectors = u32_le(sector, at + 12)?;
        // Linux gives a number to what has a length, whatever its type.
        (sectors != 0).then_some(Entry {
            index,
            kind: PartitionType::Mbr(kind),
            first_sector,
            sectors,
        })
    };
    (0..4).filter_map(entry).collect()
}

/// The table that the first sector begins.
pub(super) fn table(image: &mut dyn Image, primary: &[Entry]) -> Table {
    let extended = primary.iter().find(|entry| entry.kind.is_extended());
    let mut sector_bytes = 512;
    if let Some(extended) = extended
        && chain_sector(image, u64::from(extended.first_sector) * 512).is_err()
        && chain_sector(image, u64::from(extended.first_sector) * 4096).is_ok()
    {
        sector_bytes = 4096;
    }
    let place = |entry: &Entry| partition(entry.index as u32 + 1, 0, entry, sector_bytes);
    let partitions = primary.iter().map(place).collect();
    let mut table = Table { kind: TableKind::Mbr, sector_bytes, partitions, remarks: Vec::new() };
    if let Some(extended) = extended {
        logical(image, extended, &mut table);
    }
    table
}

fn partition(number: u32, base_sector: u64, entry: &Entry, sector_bytes: u64) -> Partition {
    Partition {
        number,
        // 32 bits each, of the base and of the entry: far from the end of 64.
        start_bytes: (base_sector + u64::from(entry.first_sector)) * sector_bytes,
        size_bytes: u64::from(entry.sectors) * sector_bytes,
        kind: entry.kind,
        name: String::new(),
    }
}

/// The entries of a sector of the chain.
fn chain_sector(image: &mut dyn Image, at_bytes: u64) -> Result<Vec<Entry>, Flaw> {
    let sector = read(image, at_bytes, 512)?;
    if !lies_at(&sector, SIGNATURE_AT, SIGNATURE) {
        return Err(Flaw::Absent { at_bytes });
    }
    Ok(entries(&sector))
}

/// Follows the chain. Each sector of it has a logical partition, from that sector on, and the way
/// to the next sector, from the beginning of the extended partition on.
fn logical(image: &mut dyn Image, extended: &Entry, table: &mut Table) {
    let sector_bytes = table.sector_bytes;
    let first = u64::from(extended.first_sector);
    let end = first + u64::from(extended.sectors);
    let mut seen = Vec::new();
    let mut here = first;
    let mut room = u64::from(extended.sectors);
    let mut number = 5;
    loop {
        let at_bytes = here * sector_bytes;
        if seen.contains(&here) {
            return table.remarks.push(Remark::Loop { at_bytes });
        }
        if seen.len() == MAX_CHAIN {
            return table.remarks.push(Remark::TooLong);
        }
        seen.push(here);
        let entries = match chain_sector(image, at_bytes) {
            Ok(entries) => entries,
            Err(why) => return table.remarks.push(Remark::CutOff { why }),
        };
        for entry in entries.iter().filter(|entry| !entry.kind.is_extended()) {
            let last = u64::from(entry.first_sector) + u64::from(entry.sectors);
            // The last two are often rubbish; Linux takes them where they fit.
            if entry.index >= 2 && (last > room || here + last > end) {
                continue;
            }
            table.partitions.push(partition(number, here, entry, sector_bytes));
            number += 1;
        }
        let Some(next) = entries.iter().find(|entry| entry.kind.is_extended()) else { return };
        here = first + u64::from(next.first_sector);
        room = u64::from(next.sectors);
    }
}
