//! What a journal's blocks record of writes: pages of 4 KiB, data first, then sums.

use std::collections::VecDeque;

use super::super::job::{Job, Kind};
use super::super::lane::Lane;
use super::change::{Contents, changes};
use super::journal::Ring;
use crate::action::Compute;
use crate::format::journal::page_crc_seed;
use crate::format::journal::{BLOCK_BYTES, BLOCK_SECTORS, HEADER_BYTES, MetaBlock, Payload};
use crate::keeper::UNIT_SECTORS;
use crate::{Buf, SECTOR_BYTES};

/// One page of data, or of a stripe's sums.
#[derive(Clone, Debug)]
pub(super) struct Record {
    place: Place,
    /// The page; of RAID 6 the second sum's after it.
    pages: Vec<Buf>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Sector of the array.
    Data(u64),
    /// Row of the members.
    Sums(u64),
}

impl Record {
    /// Bytes of the block that tell of it: 16, and a checksum for each page.
    fn payload_bytes(&self) -> u32 {
        16 + 4 * self.pages.len() as u32
    }
}

/// The records of a write; none where it is no write of stripes.
pub(super) fn records(job: &Job, lane: &Lane) -> Vec<Record> {
    let start = match &job.kind {
        Kind::Write { unit, .. } => unit.start,
        _ => return Vec::new(),
    };
    let zero = lane.pool.zero.slice(0, BLOCK_BYTES);
    let page = |contents: Contents, number: u32| match contents {
        Contents::Buf(buf) => buf.slice(number * BLOCK_BYTES, BLOCK_BYTES),
        Contents::Zeroes => zero,
    };
    let changes = changes(job, &lane.map);
    let mut records = Vec::new();
    let mut sums = Vec::new();
    for change in &changes {
        let row = start + u64::from(change.rows.start);
        let pages = change.rows.sectors() / BLOCK_SECTORS as u32;
        for (strip, buf) in &change.data {
            let sector = lane.map.data_sector(row, *strip);
            let contents = buf.map_or(Contents::Zeroes, Contents::Buf);
            records.extend((0..pages).map(|number| Record {
                place: Place::Data(sector + u64::from(number) * BLOCK_SECTORS),
                pages: vec![page(contents, number)],
            }));
        }
        sums.extend((0..pages).map(|number| Record {
            place: Place::Sums(row + u64::from(number) * BLOCK_SECTORS),
            pages: change.sums.iter().map(|contents| page(*contents, number)).collect(),
        }));
    }
    records.extend(sums);
    records
}

/// What is recorded at once.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) jobs: Vec<usize>,
    records: Vec<Record>,
    /// Of all pages, in order.
    crcs: Vec<u32>,
    /// How many records each block tells of.
    blocks: Vec<usize>,
}

/// A block, and where what it tells of is to be written.
pub(super) struct Block {
    pub(super) meta: MetaBlock,
    /// Position in the ring, and contents.
    pub(super) contents: Vec<(u64, Buf)>,
}

impl Block {
    /// Where its pages lie in the ring.
    pub(super) fn pages(self) -> impl Iterator<Item = u64> {
        self.contents.into_iter().flat_map(|(start, buf)| {
            (0..u64::from(buf.len / BLOCK_BYTES)).map(move |page| start + page * BLOCK_SECTORS)
        })
    }
}

impl Records {
    /// Takes of those that wait as many as fit into so many blocks, and into the ring: has it
    /// `room` for so many sectors?
    pub(super) fn take(
        waiting: &mut VecDeque<(usize, Vec<Record>)>,
        most_blocks: usize,
        room: impl Fn(u64) -> bool,
    ) -> Self {
        let mut taken = Self::default();
        while let Some((_, records)) = waiting.front() {
            let before = taken.records.len();
            taken.records.extend_from_slice(records);
            let blocks = cut(&taken.records);
            let pages: usize = taken.records.iter().map(|record| record.pages.len()).sum();
            let sectors = (blocks.len() + pages) as u64 * BLOCK_SECTORS;
            if blocks.len() > most_blocks || !room(sectors) {
                taken.records.truncate(before);
                break;
            }
            taken.blocks = blocks;
            taken.jobs.extend(waiting.pop_front().map(|(job, _)| job));
        }
        let pages = taken.pages().count();
        taken.crcs = vec![0; pages];
        taken
    }

    /// Pages of data for these sectors, in a strip.
    pub(super) fn of_data(sectors: &[u64], strip: Buf) -> Self {
        let record = |(number, sector): (u32, &u64)| Record {
            place: Place::Data(*sector),
            pages: vec![strip.slice(number * BLOCK_BYTES, BLOCK_BYTES)],
        };
        let records: Vec<Record> = (0..).zip(sectors).map(record).collect();
        let blocks = cut(&records);
        Self { crcs: vec![0; records.len()], blocks, records, jobs: Vec::new() }
    }

    /// One block that tells of nothing.
    pub(super) fn empty_block() -> Self {
        Self { blocks: vec![0], ..Self::default() }
    }

    fn pages(&self) -> impl Iterator<Item = Buf> + '_ {
        self.records.iter().flat_map(|record| record.pages.iter().copied())
    }

    /// The checksums that are to be made, one for each page.
    pub(super) fn sums(&self, set_uuid: [u8; 16]) -> impl Iterator<Item = Compute> + '_ {
        let before = page_crc_seed(set_uuid);
        self.pages().map(move |page| Compute::Crc { before, inputs: vec![page] })
    }

    /// The checksum of a page.
    pub(super) fn note_crc(&mut self, page: u16, crc: u32) {
        self.crcs[usize::from(page)] = crc;
    }

    pub(super) const fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// How much of the ring it takes.
    pub(super) fn sectors(&self) -> u64 {
        (self.blocks.len() + self.crcs.len()) as u64 * BLOCK_SECTORS
    }

    /// The blocks, from the ring's head on.
    pub(super) fn blocks(&self, ring: &Ring) -> Vec<Block> {
        let mut position = ring.head;
        let mut records = self.records.iter();
        let mut crcs = self.crcs.iter().copied();
        let mut blocks = Vec::new();
        for (seq, count) in (ring.seq..).zip(&self.blocks) {
            let at = position;
            position = ring.after(position, BLOCK_SECTORS);
            let mut contents: Vec<(u64, Buf)> = Vec::new();
            let mut payloads = Vec::new();
            for record in records.by_ref().take(*count) {
                let checksums = crcs.by_ref().take(record.pages.len()).collect();
                payloads.push(match record.place {
                    Place::Data(sector) => Payload::Data { sector, checksums },
                    Place::Sums(sector) => Payload::Parity { sector, checksums },
                });
                for page in &record.pages {
                    append(&mut contents, position, *page);
                    position = ring.after(position, BLOCK_SECTORS);
                }
            }
            let meta = MetaBlock { seq, position: at, payloads };
            blocks.push(Block { meta, contents });
        }
        blocks
    }
}

/// Adds a page, which grows the last write where both lie behind one another.
fn append(contents: &mut Vec<(u64, Buf)>, position: u64, page: Buf) {
    if let Some((start, buf)) = contents.last_mut()
        && *start + u64::from(buf.len) / SECTOR_BYTES == position
        && buf.offset + u64::from(buf.len) == page.offset
    {
        buf.len += page.len;
        return;
    }
    contents.push((position, page));
}

/// How many records each block tells of.
fn cut(records: &[Record]) -> Vec<usize> {
    let mut blocks = Vec::new();
    let mut used = BLOCK_BYTES;
    for record in records {
        if used + record.payload_bytes() > BLOCK_BYTES {
            blocks.push(0);
            used = HEADER_BYTES;
        }
        used += record.payload_bytes();
        if let Some(count) = blocks.last_mut() {
            *count += 1;
        }
    }
    blocks
}

/// How many blocks may be needed for one write of an array with so many members, or more: a batch
/// has as many at most.
pub(super) fn most_blocks(members: u64) -> u64 {
    let records = members * u64::from(UNIT_SECTORS) / BLOCK_SECTORS;
    let of_block = u64::from(BLOCK_BYTES - HEADER_BYTES) / 24;
    (records / of_block + 2).max(8)
}
