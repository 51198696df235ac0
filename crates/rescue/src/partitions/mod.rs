//! Partition tables: GPT (UEFI specification 2.10, chapter 5) and MBR with logical partitions, as
//! Linux numbers them.

mod gpt;
mod mbr;
mod remark;
#[cfg(test)]
mod tests;
mod types;

use crate::image::{Image, Unreadable};

pub use remark::{Flaw, Remark};
pub use types::PartitionType;

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The kind of table.
    pub kind: TableKind,
    /// Bytes in a sector of the disk, in which the table counts: 512 or 4096. An MBR says so only
    /// by its logical partitions; without those it is taken to count in 512.
    pub sector_bytes: u64,
    /// In the table's order, logical ones at the end.
    pub partitions: Vec<Partition>,
    /// Remarks: all that is not as it should be.
    pub remarks: Vec<Remark>,
}

/// The kinds of tables that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// GUID Partition Table.
    Gpt,
    /// Master Boot Record, also called DOS table.
    Mbr,
}

/// A partition, as its table has it; it may end beyond the end of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number in Linux: place in a GPT or among an MBR's four, from 1; logical ones from 5.
    pub number: u32,
    /// Where it begins, from the beginning of the image.
    pub start_bytes: u64,
    /// Its length; `start_bytes` and this together are at most `u64::MAX`.
    pub size_bytes: u64,
    /// The purpose that the table names.
    pub kind: PartitionType,
    /// Its name, in a GPT. Fit to be printed.
    pub name: String,
}

impl Partition {
    fn end_bytes(&self) -> u64 {
        self.start_bytes + self.size_bytes
    }
}

/// The reason for which there is no partition table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTable {
    /// Nothing says that there is one.
    #[error("no partition table")]
    None,
    /// There was a GPT, and neither copy can be used.
    #[error("the GPT is damaged: {primary}; its backup: {backup}")]
    Damaged {
        /// The error in the primary one.
        primary: Flaw,
        /// The error in the other one.
        backup: Flaw,
    },
    /// The first sector cannot be read, and there is no GPT.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Reads the partition table of a disk: that which Linux uses if there are two kinds. At most 2 MiB
/// and 256 sectors of logical partitions are read for each sector size.
///
/// # Errors
/// [`NoTable`].
pub fn read(image: &mut dyn Image) -> Result<Table, NoTable> {
    let first = mbr::First::read(image);
    let gpt = gpt::read(image);
    let mut table = match (first, gpt) {
        (Ok(mbr::First::Table(entries)), gpt) => {
            let mut table = mbr::table(image, &entries);
            if matches!(gpt, Ok(_) | Err(NoTable::Damaged { .. })) {
                table.remarks.push(Remark::GptToo);
            }
            table
        }
        (first, Ok(mut table)) => {
            if !matches!(first, Ok(mbr::First::Protective)) {
                table.remarks.push(Remark::NotProtected);
            }
            table
        }
        (Ok(mbr::First::Protective), Err(NoTable::None)) => return Err(gpt::gone(image)),
        (Err(unreadable), Err(NoTable::None)) => return Err(unreadable.into()),
        (_, Err(why)) => return Err(why),
    };
    look_at_ranges(&mut table, image.size_bytes());
    Ok(table)
}

/// Remarks on partitions beyond the end, and on those that share bytes.
fn look_at_ranges(table: &mut Table, size_bytes: u64) {
    for partition in &table.partitions {
        let missing = partition.end_bytes().saturating_sub(size_bytes);
        if missing > 0 {
            table.remarks.push(Remark::BeyondEnd { number: partition.number, bytes: missing });
        }
    }
    let data = table.partitions.iter().filter(|partition| !partition.kind.is_extended());
    let mut sorted: Vec<&Partition> = data.collect();
    sorted.sort_by_key(|partition| partition.start_bytes);
    let mut reaches: Option<&Partition> = None;
    for partition in sorted {
        if let Some(before) = reaches
            && before.end_bytes() > partition.start_bytes
        {
            let overlap = Remark::Overlap { first: before.number, second: partition.number };
            table.remarks.push(overlap);
        }
        if reaches.is_none_or(|before| before.end_bytes() < partition.end_bytes()) {
            reaches = Some(partition);
        }
    }
}
