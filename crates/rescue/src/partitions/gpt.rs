//! GUID Partition Table (UEFI specification 2.10, 5.3): a header in sector 1, its entries behind
//! it, and a copy of both that ends with the disk's last sector.

use uuid::Uuid;

use super::{Flaw, NoTable, Partition, PartitionType, Remark, Table, TableKind};
use crate::bytes::{guid, u32_le, u64_le, utf16};
use crate::crc::crc32;
use crate::image::{Image, read as read_bytes, read_patchy};

/// Sector sizes that disks have. Images of disks behind a dock that translates have the other one.
const SECTOR_SIZES: [u64; 2] = [512, 4096];

const SIGNATURE: &[u8] = b"EFI PART";

/// A header's length when the specification was made; later ones are longer.
const HEADER_BYTES: u64 = 92;

/// The most that all entries may take: 64 times what everybody writes.
const MAX_ENTRIES_BYTES: u64 = 1 << 20;

/// The fields of a header.
struct Header {
    alternate_sector: u64,
    entries_at_bytes: u64,
    entry_bytes: usize,
    entries: usize,
    entries_crc: u32,
}

/// A header with its entries.
struct Copy {
    header: Header,
    entries: Vec<u8>,
    /// The error in the entries.
    flaw: Option<Flaw>,
}

/// The GPT of an image. Chooses the sounder of two in different sector sizes: the other one may
/// have been left by a dock that translates sectors.
pub(super) fn read(image: &mut dyn Image) -> Result<Table, NoTable> {
    let mut tables = Vec::new();
    let mut gone = None;
    for sector_bytes in SECTOR_SIZES {
        match read_sized(image, sector_bytes) {
            Ok(table) => tables.push(table),
            Err(NoTable::None) => {}
            Err(why) => {
                gone.get_or_insert(why);
            }
        }
    }
    let doubts = |table: &Table| {
        let doubt = |remark: &Remark| match remark {
            Remark::EntriesDamaged { .. } => 2,
            Remark::BackupUsed { .. } => 1,
            _ => 0,
        };
        table.remarks.iter().map(doubt).max()
    };
    tables.into_iter().min_by_key(doubts).ok_or_else(|| gone.unwrap_or(NoTable::None))
}

/// The remark where an MBR announces a GPT that is not there.
pub(super) fn gone(image: &dyn Image) -> NoTable {
    let sector_bytes = SECTOR_SIZES[0];
    let backup_at_bytes = (image.size_bytes() / sector_bytes).saturating_sub(1) * sector_bytes;
    NoTable::Damaged {
        primary: Flaw::Absent { at_bytes: sector_bytes },
        backup: Flaw::Absent { at_bytes: backup_at_bytes },
    }
}

fn read_sized(image: &mut dyn Image, sector_bytes: u64) -> Result<Table, NoTable> {
    let last_sector = (image.size_bytes() / sector_bytes).saturating_sub(1);
    let primary = read_copy(image, sector_bytes, 1);
    // Where the primary one says, as the image may be longer than the disk was.
    let named = primary.as_ref().map_or(last_sector, |copy| copy.header.alternate_sector);
    let mut backup = read_copy(image, sector_bytes, last_sector);
    if backup.is_err() && named != last_sector && named > 1 {
        backup = read_copy(image, sector_bytes, named);
    }
    let mut remarks = Vec::new();
    if named != last_sector {
        remarks.push(Remark::BackupElsewhere { at_bytes: named.saturating_mul(sector_bytes) });
    }
    let (primary, primary_flaw) = seen(primary);
    let (backup, backup_flaw) = seen(backup);
    let copy = match (primary_flaw, backup_flaw) {
        (None, None) => primary,
        (None, Some(why)) => {
            remarks.push(Remark::BackupBroken { why });
            primary
        }
        (Some(why), None) => {
            remarks.push(Remark::BackupUsed { why });
            backup
        }
        (Some(first), Some(second)) => {
            if primary.is_none() && backup.is_none() {
                return Err(neither(first, second));
            }
            let why = if primary.is_some() { first } else { second };
            remarks.push(Remark::EntriesDamaged { why });
            primary.or(backup)
        }
    };
    let copy = copy.ok_or(NoTable::None)?;
    let mut partitions = Vec::new();
    for index in 0..copy.header.entries {
        let entry = &copy.entries[index * copy.header.entry_bytes..];
        partitions.extend(partition(index, entry, sector_bytes, &mut remarks));
    }
    Ok(Table { kind: TableKind::Gpt, sector_bytes, partitions, remarks })
}

/// A copy as far as there is one, and what is wrong.
fn seen(copy: Result<Copy, Flaw>) -> (Option<Copy>, Option<Flaw>) {
    match copy {
        Ok(mut copy) => {
            let flaw = copy.flaw.take();
            (Some(copy), flaw)
        }
        Err(flaw) => (None, Some(flaw)),
    }
}

/// Returns whether there was a GPT, if neither header can be used.
fn neither(primary: Flaw, backup: Flaw) -> NoTable {
    let nothing = |flaw: &Flaw| matches!(flaw, Flaw::Absent { .. } | Flaw::Unreadable(_));
    if nothing(&primary) && nothing(&backup) {
        return NoTable::None;
    }
    NoTable::Damaged { primary, backup }
}

/// The header in this sector and the entries that it names; those may be damaged.
fn read_copy(image: &mut dyn Image, sector_bytes: u64, sector: u64) -> Result<Copy, Flaw> {
    let at_bytes = sector.saturating_mul(sector_bytes);
    let bytes = read_bytes(image, at_bytes, sector_bytes as usize)?;
    if !bytes.starts_with(SIGNATURE) {
        return Err(Flaw::Absent { at_bytes });
    }
    let header = Header::decode(&bytes, at_bytes, sector_bytes, sector)?;
    let entries_bytes = header.entries * header.entry_bytes;
    let mut found = read_patchy(image, header.entries_at_bytes, entries_bytes);
    let mut entries = std::mem::take(&mut found.bytes);
    entries.resize(entries_bytes, 0);
    let mut flaw = None;
    if crc32(&entries) != header.entries_crc {
        let changed = Flaw::Checksum { what: "entries", at_bytes: header.entries_at_bytes };
        flaw = Some(found.unreadable().map_or(changed, Flaw::Unreadable));
    }
    Ok(Copy { header, entries, flaw })
}

impl Header {
    fn decode(bytes: &[u8], at_bytes: u64, sector_bytes: u64, sector: u64) -> Result<Self, Flaw> {
        let small = |at: usize| u32_le(bytes, at).unwrap_or_default();
        let large = |at: usize| u64_le(bytes, at).unwrap_or_default();
        let wrong = |field, value| Flaw::Field { field, value, at_bytes };
        let header_bytes = u64::from(small(12));
        if !(HEADER_BYTES..=sector_bytes).contains(&header_bytes) {
            return Err(wrong("HeaderSize", header_bytes));
        }
        let mut summed = bytes[..header_bytes as usize].to_vec();
        summed[16..20].fill(0);
        if crc32(&summed) != small(16) {
            return Err(Flaw::Checksum { what: "header", at_bytes });
        }
        if large(24) != sector {
            return Err(wrong("MyLBA", large(24)));
        }
        let entries = u64::from(small(80));
        let entry_bytes = u64::from(small(84));
        // 128 times a power of two.
        if entry_bytes < 128 || !entry_bytes.is_power_of_two() || entry_bytes > MAX_ENTRIES_BYTES {
            return Err(wrong("SizeOfPartitionEntry", entry_bytes));
        }
        if entries > MAX_ENTRIES_BYTES / entry_bytes {
            return Err(wrong("NumberOfPartitionEntries", entries));
        }
        let entries_at_bytes = large(72).checked_mul(sector_bytes);
        Ok(Self {
            alternate_sector: large(32),
            entries_at_bytes: entries_at_bytes
                .ok_or_else(|| wrong("PartitionEntryLBA", large(72)))?,
            entry_bytes: entry_bytes as usize,
            entries: entries as usize,
            entries_crc: small(88),
        })
    }
}

/// The partition of an entry; `None` where there is none, or one that is no range.
fn partition(
    index: usize,
    entry: &[u8],
    sector_bytes: u64,
    remarks: &mut Vec<Remark>,
) -> Option<Partition> {
    let kind = guid(entry, 0).filter(|kind| *kind != Uuid::nil())?;
    let number = index as u32 + 1;
    let range = || {
        let first_sector = u64_le(entry, 32)?;
        let sectors = u64_le(entry, 40)?.checked_add(1)?.checked_sub(first_sector)?;
        let start_bytes = first_sector.checked_mul(sector_bytes)?;
        let size_bytes = sectors.checked_mul(sector_bytes).filter(|size| *size > 0)?;
        start_bytes.checked_add(size_bytes)?;
        Some((start_bytes, size_bytes))
    };
    let Some((start_bytes, size_bytes)) = range() else {
        remarks.push(Remark::NoRange { number });
        return None;
    };
    let name = utf16(entry.get(56..128)?);
    Some(Partition { number, start_bytes, size_bytes, kind: PartitionType::Guid(kind), name })
}
