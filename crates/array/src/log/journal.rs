//! Reading a journal, by the rules of the kernel's `raid5-cache.c`, but for three: a journal whose
//! first block cannot be trusted is not taken for an empty one; a block that is the next one, as it
//! was written, and cannot be followed is no end, since what comes after it was acknowledged, too;
//! and no payload is believed beyond its block.

use crate::Role;
use std::collections::BTreeMap;

use super::{MAX_READ_BYTES, ReadSectors};
use crate::format::Superblock;
use crate::format::journal::{
    BLOCK_BYTES, BLOCK_SECTORS, JournalError, MetaBlock, Payload, SEQ_JUMP, numbers, page_checksum,
};
use crate::geometry::{Geometry, Strip};

/// The place of a journal on its device, and of the first record that counts.
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
    /// Returns the area of the journal device with this superblock.
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
pub struct JournalPage {
    /// Role of the member.
    pub role: Role,
    /// Sector of the member's data area.
    pub row: u64,
    /// Position in the journal.
    pub position: u64,
}

/// Pages of data without parity that are recorded anew together.
pub const MOVED_PAGES: u64 = 16;

/// The work that a journal leaves to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalScan {
    /// Area of the journal.
    pub area: JournalArea,
    /// Position behind the last block that counts.
    pub end: u64,
    /// A sequence number that no block behind the end can have.
    pub next_seq: u64,
    /// Blocks that count.
    pub blocks: u64,
    /// Pages to be written as they are.
    pub pages: Vec<JournalPage>,
    /// Data without parity, as an array leaves it whose journal writes back: sectors of the array,
    /// and where they lie in the journal. To be written after the pages, with parity.
    pub data: Vec<(u64, u64)>,
}

/// A block of a journal, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    /// The block.
    pub block: MetaBlock,
    /// Pages that are not as they were written, counted over all payloads.
    pub damaged: Vec<usize>,
    /// All of what it tells of is within the array.
    pub is_within: bool,
}

impl FoundBlock {
    /// Returns whether the block is to be brought in place. Nothing counts behind a block that is
    /// not.
    #[must_use]
    pub const fn counts(&self) -> bool {
        self.damaged.is_empty() && self.is_within
    }
}

/// The reason why a journal ends where it does: the fault of the block that would be next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalEnd {
    /// All of the ring is in use.
    #[error("the ring is full")]
    Full,
    /// The bytes are no block.
    #[error(transparent)]
    NoBlock(#[from] JournalError),
    /// The block is the next one, as it was written, and says what cannot be.
    #[error("{0}")]
    Impossible(JournalError),
    /// The block says that it lies at another position.
    #[error("it is of another place: sector {0}")]
    OtherPlace(u64),
    /// The block is from another time.
    #[error("it has sequence number {found}, and {expected} would be next")]
    OtherSeq {
        /// Its sequence number.
        found: u64,
        /// The sequence number that follows the block before.
        expected: u64,
    },
    /// Its pages would lie over the first blocks.
    #[error("its pages do not fit between it and the tail")]
    TooLong,
    /// The block was not recorded completely, or has changed since.
    #[error("it has a page that is damaged")]
    Damaged,
    /// The block is of an array of another shape.
    #[error("it tells of what is not within the array")]
    Beyond,
}

impl JournalEnd {
    /// Returns whether the block was recorded completely, and cannot be followed. Its writes may
    /// have been acknowledged.
    const fn is_impossible(self) -> bool {
        matches!(self, Self::Impossible(_) | Self::TooLong | Self::Beyond)
    }
}

/// The blocks of a journal that follow one another from its tail on.
pub struct Blocks<'a> {
    area: JournalArea,
    set_uuid: [u8; 16],
    geometry: &'a Geometry,
    read: &'a mut ReadSectors<'a>,
    position: u64,
    seq: Option<u64>,
    /// Sectors of the ring that are left.
    left: u64,
    end: Option<(u64, JournalEnd)>,
}

impl<'a> Blocks<'a> {
    /// Begins at the tail.
    pub fn new(
        area: JournalArea,
        set_uuid: [u8; 16],
        geometry: &'a Geometry,
        read: &'a mut ReadSectors<'a>,
    ) -> Self {
        let JournalArea { tail: position, sectors: left, .. } = area;
        Self { area, set_uuid, geometry, read, position, seq: None, left, end: None }
    }

    /// Returns the next block; the last one may be one that does not [count](Found::counts). `None`
    /// where the journal [ends](Self::end).
    ///
    /// # Errors
    /// The reason why the device cannot be read.
    pub fn next_block(&mut self) -> Result<Option<FoundBlock>, String> {
        if self.end.is_some() {
            return Ok(None);
        }
        let block = match self.block()? {
            Ok(block) => block,
            Err(end) => {
                self.end = Some((self.position, end));
                return Ok(None);
            }
        };
        let damaged = self.damaged_pages(&block)?;
        let is_within = block.payloads.iter().all(|payload| fits(payload, self.geometry));
        if !damaged.is_empty() {
            self.end = Some((self.position, JournalEnd::Damaged));
        } else if !is_within {
            self.end = Some((self.position, JournalEnd::Beyond));
        } else {
            let sectors = sectors(&block);
            self.left -= sectors;
            self.position = self.area.after(self.position, sectors);
            self.seq = Some(block.seq.wrapping_add(1));
        }
        Ok(Some(FoundBlock { block, damaged, is_within }))
    }

    /// Returns where the journal ends and why, once it does.
    #[must_use]
    pub const fn end(&self) -> Option<(u64, JournalEnd)> {
        self.end
    }

    /// The block that lies where the next one would.
    fn block(&mut self) -> Result<Result<MetaBlock, JournalEnd>, String> {
        if self.left < BLOCK_SECTORS {
            return Ok(Err(JournalEnd::Full));
        }
        let bytes = (self.read)(self.area.start + self.position, BLOCK_BYTES)?;
        let is_next = numbers(&bytes).is_some_and(|(seq, position)| {
            position == self.position && self.seq.is_none_or(|next| next == seq)
        });
        let block = match MetaBlock::decode(&bytes, self.set_uuid) {
            Ok(block) => block,
            Err(error) if is_next && error.is_whole() => {
                return Ok(Err(JournalEnd::Impossible(error)));
            }
            Err(error) => return Ok(Err(error.into())),
        };
        let found = block.seq;
        Ok(match self.seq {
            _ if block.position != self.position => Err(JournalEnd::OtherPlace(block.position)),
            Some(expected) if expected != found => Err(JournalEnd::OtherSeq { found, expected }),
            _ if sectors(&block) > self.left => Err(JournalEnd::TooLong),
            _ => Ok(block),
        })
    }

    fn damaged_pages(&mut self, block: &MetaBlock) -> Result<Vec<usize>, String> {
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
        let mut damaged = Vec::new();
        let mut position = self.area.after(self.position, BLOCK_SECTORS);
        let mut rest = checksums.as_slice();
        while !rest.is_empty() {
            let to_end = (self.area.sectors - position) / BLOCK_SECTORS;
            let most = u64::from(MAX_READ_BYTES / BLOCK_BYTES);
            let count = (rest.len() as u64).min(to_end).min(most);
            let first = checksums.len() - rest.len();
            let (now, later) = rest.split_at(count as usize);
            let bytes = (self.read)(self.area.start + position, count as u32 * BLOCK_BYTES)?;
            let pages = bytes.chunks_exact(BLOCK_BYTES as usize).zip(now);
            for (number, (page, sum)) in (first..).zip(pages) {
                if page_checksum(self.set_uuid, page) != *sum {
                    damaged.push(number);
                }
            }
            position = self.area.after(position, count * BLOCK_SECTORS);
            rest = later;
        }
        Ok(damaged)
    }
}

/// Returns how many sectors of the ring a block takes, with its pages.
fn sectors(block: &MetaBlock) -> u64 {
    (1 + block.pages() as u64) * BLOCK_SECTORS
}

/// Returns whether the payload is within the array.
fn fits(payload: &Payload, geometry: &Geometry) -> bool {
    let within = |sector: u64, pages: usize, size: u64| {
        let end = sector.checked_add(pages as u64 * BLOCK_SECTORS);
        sector.is_multiple_of(BLOCK_SECTORS) && end.is_some_and(|end| end <= size)
    };
    match payload {
        Payload::Data { sector, checksums } => {
            within(*sector, checksums.len(), geometry.array_sectors())
        }
        Payload::Parity { sector, checksums } => {
            let sums = geometry.parity_disks() as usize;
            checksums.len() == sums && within(*sector, 1, geometry.member_sectors())
        }
        Payload::Flush { .. } => true,
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
    /// The reason why it cannot be read or trusted, for people.
    pub fn read(
        area: JournalArea,
        set_uuid: [u8; 16],
        geometry: &Geometry,
        read: &mut ReadSectors<'_>,
    ) -> Result<Self, String> {
        let mut read = |sector, bytes| read(sector, bytes);
        let mut blocks = Blocks::new(area, set_uuid, geometry, &mut read);
        let mut stripes = Stripes::new(geometry);
        let mut count = 0;
        let mut last_seq = 0;
        while let Some(found) = blocks.next_block()? {
            if found.counts() {
                stripes.take(&found.block, &area);
                count += 1;
                last_seq = found.block.seq;
            }
        }
        let end = match blocks.end() {
            // The tail moves to blocks that are whole.
            Some((position, end)) if count == 0 || end.is_impossible() => {
                let which = if count == 0 { "its first block" } else { "a block" };
                return Err(format!("{which}, at sector {position}: {end}"));
            }
            end => end.map_or(area.tail, |(position, _)| position),
        };
        let next_seq = last_seq.wrapping_add(SEQ_JUMP);
        let (pages, data) = stripes.finish();
        Ok(Self { area, end, next_seq, blocks: count, pages, data })
    }

    /// Returns the journal as it goes on where none of its records count.
    #[must_use]
    pub(crate) const fn emptied(&self) -> Self {
        let Self { area, end, next_seq, .. } = *self;
        Self::new(JournalArea { tail: end, ..area }, next_seq)
    }

    /// Returns whether the data without parity can be recorded anew behind all else, before they
    /// are forgotten. These are recorded [so many](MOVED_PAGES) at a time.
    #[must_use]
    pub const fn has_room_to_move(&self) -> bool {
        let pages = self.data.len() as u64;
        let blocks = pages.div_ceil(MOVED_PAGES);
        let used = (self.end + self.area.sectors - self.area.tail) % self.area.sectors;
        let full = used == 0 && self.blocks > 0;
        let needed = (pages + blocks + 2) * BLOCK_SECTORS;
        pages == 0 || !full && used + needed <= self.area.sectors
    }

    /// Returns whether there is nothing to be brought in place.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.data.is_empty()
    }
}

/// The records of each stripe that are not followed by its parity.
struct Stripes<'a> {
    geometry: &'a Geometry,
    /// Data recorded since the last parity, by row and role: sector of the array, and position.
    data: BTreeMap<(u64, Role), (u64, u64)>,
    /// Pages to be written as they are.
    pages: BTreeMap<(u64, Role), u64>,
}

impl<'a> Stripes<'a> {
    const fn new(geometry: &'a Geometry) -> Self {
        Self { geometry, data: BTreeMap::new(), pages: BTreeMap::new() }
    }

    /// Takes a block in.
    fn take(&mut self, block: &MetaBlock, area: &JournalArea) {
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
    }

    /// The parity of a row is recorded: with the data recorded before it is to be written. Without
    /// any it tells of nothing.
    fn complete(&mut self, row: u64, position: u64, sums: usize, area: &JournalArea) {
        let of_row: Vec<_> = self
            .data
            .range((row, Role(0))..=(row, Role(u16::MAX)))
            .map(|(k, v)| (*k, *v))
            .collect();
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

    /// Forgets the records of a row: they count no more.
    fn forget(&mut self, row: u64) {
        let keys = (row, Role(0))..=(row, Role(u16::MAX));
        let places: Vec<_> = self.data.range(keys.clone()).map(|(place, _)| *place).collect();
        places.iter().for_each(|place| _ = self.data.remove(place));
        let places: Vec<_> = self.pages.range(keys).map(|(place, _)| *place).collect();
        places.iter().for_each(|place| _ = self.pages.remove(place));
    }

    fn finish(self) -> (Vec<JournalPage>, Vec<(u64, u64)>) {
        let pages = self.pages.into_iter();
        let pages =
            pages.map(|((row, role), position)| JournalPage { role, row, position }).collect();
        (pages, self.data.into_values().collect())
    }
}
