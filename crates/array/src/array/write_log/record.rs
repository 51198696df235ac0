//! Contents of a journal's blocks: pages of 4 KiB, data first, then sums.

use std::collections::VecDeque;

use super::super::lane::Lane;
use super::super::recording::{LeftPage, Recorded, Way};
use super::change::{Contents, changes};
use super::ring::Ring;
use crate::action::Compute;
use crate::format::journal::page_crc_seed;
use crate::format::journal::{BLOCK_BYTES, BLOCK_SECTORS, HEADER_BYTES, MetaBlock, Payload};
use crate::keeper::UNIT_SECTORS;
use crate::{Buf, SECTOR_BYTES};

/// One page of data, or of a stripe's sums.
#[derive(Clone, Debug)]
pub(super) struct Record {
    place: RecordPlace,
    /// The page; of RAID 6 the second sum's after it.
    pages: Vec<Buf>,
}

#[derive(Clone, Copy, Debug)]
enum RecordPlace {
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

/// A write that waits to be recorded.
#[derive(Debug)]
pub(super) struct WaitingWrite {
    pub(super) job: usize,
    pub(super) records: Vec<Record>,
    /// Room is kept for it.
    pub(super) kept_for: bool,
}

/// The records of a write; none where it is no write of stripes.
pub(super) fn records(recorded: Recorded<'_>, lane: &Lane) -> Vec<Record> {
    let Recorded::Write { start, way, .. } = recorded else { return Vec::new() };
    if let Way::Back(pages) = way {
        let data = |page: &LeftPage| Record {
            place: RecordPlace::Data(page.sector(&lane.map)),
            pages: vec![page.buf],
        };
        return pages.iter().map(data).collect();
    }
    let zero = lane.pool.zero.slice(0, BLOCK_BYTES);
    let page = |contents: Contents, number: u32| match contents {
        Contents::Buf(buf) => buf.slice(number * BLOCK_BYTES, BLOCK_BYTES),
        Contents::Zeroes => zero,
    };
    let changes = changes(recorded, &lane.map);
    let mut records = Vec::new();
    let mut sums = Vec::new();
    for change in &changes {
        let row = start + u64::from(change.rows.start);
        let pages = change.rows.sectors() / BLOCK_SECTORS as u32;
        let data = if *way == Way::Destage { &[] } else { change.data.as_slice() };
        for (strip, buf) in data {
            let sector = lane.map.data_sector(row, *strip);
            let contents = buf.map_or(Contents::Zeroes, Contents::Buf);
            records.extend((0..pages).map(|number| Record {
                place: RecordPlace::Data(sector + u64::from(number) * BLOCK_SECTORS),
                pages: vec![page(contents, number)],
            }));
        }
        // Sums of rows without recorded data tell of nothing.
        let tells = |number: &u32| {
            let row = change.rows.start + number * BLOCK_SECTORS as u32;
            *way != Way::Destage || lane.dirty.has_row(start, row)
        };
        sums.extend((0..pages).filter(tells).map(|number| Record {
            place: RecordPlace::Sums(row + u64::from(number) * BLOCK_SECTORS),
            pages: change.sums.iter().map(|contents| page(*contents, number)).collect(),
        }));
    }
    records.extend(sums);
    records
}

/// Records that are written at once.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) jobs: Vec<usize>,
    records: Vec<Record>,
    /// The checksums of all pages, in order.
    crcs: Vec<u32>,
    /// The number of records that each block tells of.
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
    /// Takes of those that wait as many as fit into so many blocks, and into the ring: `room` tells
    /// whether it has so many sectors, for a write for which room is kept or for another.
    pub(super) fn take(
        waiting: &mut VecDeque<WaitingWrite>,
        most_blocks: usize,
        room: impl Fn(u64, bool) -> bool,
    ) -> Self {
        let mut taken = Self::default();
        while let Some(next) = waiting.front() {
            let before = taken.records.len();
            taken.records.extend_from_slice(&next.records);
            let blocks = cut(&taken.records);
            let pages: usize = taken.records.iter().map(|record| record.pages.len()).sum();
            let sectors = (blocks.len() + pages) as u64 * BLOCK_SECTORS;
            if blocks.len() > most_blocks || !room(sectors, next.kept_for) {
                taken.records.truncate(before);
                break;
            }
            taken.blocks = blocks;
            taken.jobs.extend(waiting.pop_front().map(|next| next.job));
        }
        let pages = taken.pages().count();
        taken.crcs = vec![0; pages];
        taken
    }

    /// Pages of data for these sectors, in a strip.
    pub(super) fn of_data(sectors: &[u64], strip: Buf) -> Self {
        let record = |(number, sector): (u32, &u64)| Record {
            place: RecordPlace::Data(*sector),
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

    /// Returns how much of the ring it takes.
    pub(super) fn sectors(&self) -> u64 {
        (self.blocks.len() + self.crcs.len()) as u64 * BLOCK_SECTORS
    }

    /// The blocks, from the ring's head on.
    pub(super) fn blocks(&self, ring: &Ring) -> Vec<Block> {
        let mut position = ring.head;
        let mut records = self.records.iter();
        let mut crcs = self.crcs.iter().copied();
        let mut blocks = Vec::new();
        for (number, count) in (0..).zip(&self.blocks) {
            let seq = ring.seq.wrapping_add(number);
            let at = position;
            position = ring.after(position, BLOCK_SECTORS);
            let mut contents: Vec<(u64, Buf)> = Vec::new();
            let mut payloads = Vec::new();
            for record in records.by_ref().take(*count) {
                let checksums = crcs.by_ref().take(record.pages.len()).collect();
                payloads.push(match record.place {
                    RecordPlace::Data(sector) => Payload::Data { sector, checksums },
                    RecordPlace::Sums(sector) => Payload::Parity { sector, checksums },
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

/// Counts the records that each block tells of.
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

/// Returns how many blocks may be needed for one write of an array with so many members, or more: a
/// batch has as many at most.
pub(super) fn most_blocks(members: u64) -> u64 {
    let records = members * u64::from(UNIT_SECTORS) / BLOCK_SECTORS;
    let of_block = u64::from(BLOCK_BYTES - HEADER_BYTES) / 24;
    (records / of_block + 2).max(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberId;

    /// Pages that lie apart in memory, so many records of one each.
    fn records(count: u64, pages: usize) -> Vec<Record> {
        let page = |number: u64| Buf { offset: number * 10_000, len: BLOCK_BYTES };
        let record = |number| Record {
            place: RecordPlace::Data(number * BLOCK_SECTORS),
            pages: vec![page(number); pages],
        };
        (0..count).map(record).collect()
    }

    fn waiting<const N: usize>(writes: [Vec<Record>; N]) -> VecDeque<WaitingWrite> {
        let writes = writes.into_iter().enumerate();
        writes.map(|(job, records)| WaitingWrite { job, records, kept_for: false }).collect()
    }

    #[test]
    fn a_block_tells_of_as_many_records_as_have_room() {
        // 20 bytes each, of 4064.
        assert_eq!(cut(&records(203, 1)), [203]);
        assert_eq!(cut(&records(204, 1)), [203, 1]);
        // 24 bytes each.
        assert_eq!(cut(&records(170, 2)), [169, 1]);
        assert_eq!(cut(&[]), [0; 0]);
    }

    #[test]
    fn what_has_no_room_waits_and_what_comes_after_it_too() {
        let mut waiting = waiting([records(2, 1), records(5, 1), records(1, 1)]);
        let taken = Records::take(&mut waiting, 8, |sectors, _| sectors <= 5 * BLOCK_SECTORS);
        assert_eq!((taken.jobs.as_slice(), taken.sectors()), (&[0][..], 3 * BLOCK_SECTORS));
        assert_eq!(waiting.iter().map(|next| next.job).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn pages_go_on_at_the_start_of_the_ring() {
        let sectors = 4 * BLOCK_SECTORS;
        let head = 3 * BLOCK_SECTORS;
        let ring = Ring { member: MemberId(9), start: 2048, sectors, tail: 16, head, seq: 7 };
        let mut waiting = waiting([records(1, 1)]);
        let blocks = Records::take(&mut waiting, 8, |_, _| true).blocks(&ring);
        assert_eq!((blocks[0].meta.seq, blocks[0].meta.position), (7, head));
        assert_eq!(blocks[0].contents, [(0, Buf { offset: 0, len: BLOCK_BYTES })]);
    }

    #[test]
    fn pages_behind_one_another_are_written_at_once() {
        let page = |number: u64| Buf { offset: number * 4096, len: BLOCK_BYTES };
        let mut contents = Vec::new();
        for (position, number) in [(8, 0), (16, 1), (32, 2), (40, 4)] {
            append(&mut contents, position, page(number));
        }
        let both = Buf { offset: 0, len: 2 * BLOCK_BYTES };
        assert_eq!(contents, [(8, both), (32, page(2)), (40, page(4))]);
    }
}
