//! What a journal tells, by the rules of the kernel's `raid5-cache.c`, but for three: a journal whose
//! first block cannot be trusted is not taken for an empty one; a block that is the next one, as it
//! was written, and cannot be followed is no end, since what comes after it was acknowledged, too;
//! and no payload is believed beyond its block.

use std::collections::BTreeMap;

use super::{MAX_READ_BYTES, ReadSectors};
use crate::format::Superblock;
use crate::format::journal::{
    BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload, SEQ_JUMP, numbers, page_checksum,
};
use crate::geometry::{Geometry, Strip};

/// Where a journal lies on its device, and where the first record is that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalArea {
    /// First sector on the device.
    pub start: u64,
    /// Size in sectors: whole blocks.
    pub sectors: u64,
    /// Position of the first block that counts.
    pub tail: u64,
}

impl JournalArea {
    /// That of the journal device with this superblock.
    ///
    /// # Errors
    /// When the superblock says what cannot be: the reason, for people.
    pub fn of(superblock: &Superblock) -> Result<Self, String> {
        let sectors = superblock.data_size / BLOCK_SECTORS * BLOCK_SECTORS;
        let tail = superblock.recovery_offset;
        if !tail.is_multiple_of(BLOCK_SECTORS) || tail >= sectors {
            return Err(format!("its tail, sector {tail}, is not within the journal"));
        }
        Ok(Self { start: superblock.data_offset, sectors, tail })
    }

    const fn after(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.sectors
    }
}

/// A page that is to be brought in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Whose.
    pub role: u16,
    /// Where: a sector of the member's data area.
    pub row: u64,
    /// Where it lies in the journal.
    pub position: u64,
}

/// What is to be done by a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalScan {
    /// Where it lies.
    pub area: JournalArea,
    /// Position behind the last block that counts.
    pub end: u64,
    /// A sequence number that no block behind the end can have.
    pub next_seq: u64,
    /// Blocks that count.
    pub blocks: u64,
    /// To be written as they are.
    pub pages: Vec<Page>,
    /// Data without parity, as an array leaves it whose journal writes back: sectors of the array,
    /// and where they lie in the journal. To be written after the pages, with parity.
    pub data: Vec<(u64, u64)>,
}

/// One block of a journal, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The block.
    pub block: MetaBlock,
    /// All its pages are as they were written.
    pub whole: bool,
}

/// The blocks of a journal that follow one another from its tail on.
pub struct Blocks<'a> {
    area: JournalArea,
    set_uuid: [u8; 16],
    read: &'a mut ReadSectors<'a>,
    position: u64,
    seq: Option<u64>,
    /// How much of the ring is left.
    left: u64,
}

impl<'a> Blocks<'a> {
    /// From the tail on.
    pub fn new(area: JournalArea, set_uuid: [u8; 16], read: &'a mut ReadSectors<'a>) -> Self {
        Self { area, set_uuid, read, position: area.tail, seq: None, left: area.sectors }
    }

    /// The next block; `None` where the journal ends.
    ///
    /// # Errors
    /// Why the device cannot be read, or why the next block, which is there, cannot be followed; of
    /// the first block, also why it is none.
    pub fn next_block(&mut self) -> Result<Option<Found>, String> {
        if self.left < BLOCK_SECTORS {
            return Ok(None);
        }
        let bytes = (self.read)(self.area.start + self.position, BLOCK_BYTES)?;
        let is_next = numbers(&bytes).is_some_and(|(seq, position)| {
            position == self.position && self.seq.is_none_or(|next| next == seq)
        });
        let block = match MetaBlock::decode(&bytes, self.set_uuid) {
            Ok(block) if is_next => block,
            Err(error) if self.seq.is_none() || is_next && error.is_whole() => {
                return Err(self.unusable(&error.to_string()));
            }
            Ok(_) if self.seq.is_none() => return Err(self.unusable("it is of another place")),
            _ => return Ok(None),
        };
        let sectors = (1 + block.pages() as u64) * BLOCK_SECTORS;
        if sectors > self.left {
            return Err(self.unusable("it reaches around the journal"));
        }
        let whole = self.pages_are_whole(&block)?;
        self.left -= sectors;
        self.position = self.area.after(self.position, sectors);
        self.seq = Some(block.seq.wrapping_add(1));
        Ok(Some(Found { block, whole }))
    }

    /// Why the block at the position that is reached cannot be followed.
    fn unusable(&self, reason: &str) -> String {
        let which = if self.seq.is_none() { "its first block" } else { "a block" };
        format!("{which}, at sector {}: {reason}", self.position)
    }

    fn pages_are_whole(&mut self, block: &MetaBlock) -> Result<bool, String> {
        let checksums: Vec<u32> = block
            .payloads
            .iter()
            .flat_map(|payload| match payload {
                Payload::Data { checksums, .. } | Payload::Parity { checksums, .. } => {
                    checksums.as_slice()
                }
                Payload::Flush { .. } => &[],
            })
            .copied()
            .collect();
        let mut position = self.area.after(self.position, BLOCK_SECTORS);
        let mut rest = checksums.as_slice();
        while !rest.is_empty() {
            let to_end = (self.area.sectors - position) / BLOCK_SECTORS;
            let most = u64::from(MAX_READ_BYTES / BLOCK_BYTES);
            let count = (rest.len() as u64).min(to_end).min(most);
            let (now, later) = rest.split_at(count as usize);
            let bytes = (self.read)(self.area.start + position, count as u32 * BLOCK_BYTES)?;
            let mut pages = bytes.chunks_exact(BLOCK_BYTES as usize).zip(now);
            if !pages.all(|(page, sum)| page_checksum(self.set_uuid, page) == *sum) {
                return Ok(false);
            }
            position = self.area.after(position, count * BLOCK_SECTORS);
            rest = later;
        }
        Ok(true)
    }
}

impl JournalScan {
    /// A journal in which nothing was recorded yet, whose first block is to have this number.
    #[must_use]
    pub const fn new(area: JournalArea, first_seq: u64) -> Self {
        Self {
            area,
            end: area.tail,
            next_seq: first_seq,
            blocks: 0,
            pages: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Reads a journal.
    ///
    /// # Errors
    /// Why it cannot be read or trusted, for people.
    pub fn read(
        area: JournalArea,
        set_uuid: [u8; 16],
        geometry: &Geometry,
        read: &mut ReadSectors<'_>,
    ) -> Result<Self, String> {
        let mut read = |sector, bytes| read(sector, bytes);
        let mut blocks = Blocks::new(area, set_uuid, &mut read);
        let mut stripes = Stripes::new(geometry);
        let mut count = 0;
        let mut end = area.tail;
        let mut last_seq = 0;
        while let Some(Found { block, whole }) = blocks.next_block()? {
            if count == 0 && !whole {
                // The tail moves to blocks that are whole.
                let tail = area.tail;
                return Err(format!(
                    "its first block, at sector {tail}, has a page that is damaged"
                ));
            }
            if !whole {
                break;
            }
            stripes.take(&block, &area)?;
            count += 1;
            last_seq = block.seq;
            end = blocks.position;
        }
        let next_seq = last_seq.wrapping_add(SEQ_JUMP);
        let (pages, data) = stripes.finish();
        Ok(Self { area, end, next_seq, blocks: count, pages, data })
    }

    /// Is there anything to be brought in place?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.data.is_empty()
    }
}

/// What was recorded of each stripe, and not yet of its parity.
struct Stripes<'a> {
    geometry: &'a Geometry,
    /// Data recorded since the last parity, by row and role: sector of the array, and position.
    data: BTreeMap<(u64, u16), (u64, u64)>,
    /// To be written as they are.
    pages: BTreeMap<(u64, u16), u64>,
}

impl<'a> Stripes<'a> {
    const fn new(geometry: &'a Geometry) -> Self {
        Self { geometry, data: BTreeMap::new(), pages: BTreeMap::new() }
    }

    /// Takes a block in, unless it tells of what is not within the array.
    fn take(&mut self, block: &MetaBlock, area: &JournalArea) -> Result<(), String> {
        if !block.payloads.iter().all(|payload| self.fits(payload)) {
            let position = block.position;
            return Err(format!(
                "a block, at sector {position}, tells of what is not within the array"
            ));
        }
        let mut position = area.after(block.position, BLOCK_SECTORS);
        for payload in &block.payloads {
            match payload {
                Payload::Data { sector, checksums } => {
                    for page in 0..checksums.len() as u64 {
                        let sector = sector + page * BLOCK_SECTORS;
                        let Strip { role, sector: row } = self.geometry.copy(sector, 0);
                        let at = area.after(position, page * BLOCK_SECTORS);
                        self.data.insert((row, role), (sector, at));
                    }
                }
                Payload::Parity { sector, checksums } => {
                    self.complete(*sector, position, checksums.len(), area);
                }
                Payload::Flush { rows } => {
                    for row in rows {
                        self.forget(*row);
                    }
                }
            }
            position = area.after(position, payload.pages() as u64 * BLOCK_SECTORS);
        }
        Ok(())
    }

    fn fits(&self, payload: &Payload) -> bool {
        let within = |sector: u64, pages: usize, size: u64| {
            let end = sector.checked_add(pages as u64 * BLOCK_SECTORS);
            sector.is_multiple_of(BLOCK_SECTORS) && end.is_some_and(|end| end <= size)
        };
        match payload {
            Payload::Data { sector, checksums } => {
                within(*sector, checksums.len(), self.geometry.array_sectors())
            }
            Payload::Parity { sector, checksums } => {
                let sums = self.geometry.parity_disks() as usize;
                checksums.len() == sums && within(*sector, 1, self.geometry.member_sectors())
            }
            Payload::Flush { .. } => true,
        }
    }

    /// The parity of a row is recorded: with the data recorded before it is to be written. Without
    /// any it tells of nothing.
    fn complete(&mut self, row: u64, position: u64, sums: usize, area: &JournalArea) {
        let of_row: Vec<_> =
            self.data.range((row, 0)..=(row, u16::MAX)).map(|(k, v)| (*k, *v)).collect();
        if of_row.is_empty() {
            return;
        }
        for (place, (_, at)) in of_row {
            self.data.remove(&place);
            self.pages.insert(place, at);
        }
        let (p, q) = self.geometry.parity_roles(row / u64::from(self.geometry.chunk_sectors()));
        for (number, role) in (0..sums as u64).zip(std::iter::once(p).chain(q)) {
            let at = area.after(position, number * BLOCK_SECTORS);
            self.pages.insert((row, role), at);
        }
    }

    /// What was recorded of a row counts no more.
    fn forget(&mut self, row: u64) {
        let keys = (row, 0)..=(row, u16::MAX);
        let places: Vec<_> = self.data.range(keys.clone()).map(|(place, _)| *place).collect();
        places.iter().for_each(|place| _ = self.data.remove(place));
        let places: Vec<_> = self.pages.range(keys).map(|(place, _)| *place).collect();
        places.iter().for_each(|place| _ = self.pages.remove(place));
    }

    fn finish(self) -> (Vec<Page>, Vec<(u64, u64)>) {
        let pages = self.pages.into_iter();
        let pages = pages.map(|((row, role), position)| Page { role, row, position }).collect();
        (pages, self.data.into_values().collect())
    }
}
