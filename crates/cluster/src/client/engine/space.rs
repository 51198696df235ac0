//! Sync space: the keeper's view of the stripes of an array over nodes.

use braid_array::Role;
use braid_array::SECTOR_BYTES;
use braid_array::code::{Cell, Losses};
use braid_array::keeper::{BLOCK_SECTORS, Redundancy, Strips, SyncSpace};
use braid_array::level::Level;

use crate::client::Key;
use crate::family::{Family, FamilyError, XOR2D_NAME};
use crate::ids::StripeNo;
use crate::pipeline::Pipeline;

/// The sync space of an array over nodes, in sectors: the slices of all stripes, one after the
/// other. A slice takes as much of it as it has rows on each node, or of the array for raid10, so
/// that places between stripes are md's. [`key`](Self::key) finds the slice at a place,
/// [`range`](Self::range) the places of a slice. The client and the keeper each have a copy.
#[derive(Clone, Debug)]
pub(in crate::client) struct Space {
    family: Family,
    nodes: u16,
    losses: Losses,
    array_sectors: u64,
    stripes: u64,
    rows: u64,
    chunk_sectors: u64,
    slice_sectors: u64,
    /// Sectors of the space for each sector of a block.
    width: u64,
}

impl Space {
    pub(in crate::client) fn new(pipeline: &Pipeline) -> Result<Self, FamilyError> {
        let params = pipeline.params();
        let rows = u64::from(pipeline.rows());
        let in_array = matches!(params.family, Family::Md { level: Level::Raid10, .. });
        Ok(Self {
            family: params.family,
            nodes: params.nodes,
            losses: params.family.losses(params.nodes)?,
            array_sectors: pipeline.array_bytes() / SECTOR_BYTES,
            stripes: params.stripes,
            rows,
            chunk_sectors: u64::from(params.chunk_bytes) / SECTOR_BYTES,
            slice_sectors: u64::from(params.wide.bytes) / SECTOR_BYTES,
            width: if in_array { u64::from(pipeline.data_blocks()) } else { rows },
        })
    }

    /// The slice that a place is in.
    pub(in crate::client) const fn key(&self, sector: u64) -> Key {
        let within = sector % self.per_stripe();
        Key {
            stripe: StripeNo(sector / self.per_stripe()),
            slice: (within / (self.slice_sectors * self.width)) as u32,
        }
    }

    /// Where in the space a slice lies.
    pub(in crate::client) fn range(&self, key: Key) -> (u64, u64) {
        let first = u64::from(key.slice) * self.slice_sectors;
        let last = (first + self.slice_sectors).min(self.chunk_sectors);
        let start = key.stripe.0 * self.per_stripe();
        (start + first * self.width, start + last * self.width)
    }

    /// Places of a part of a slice, by bytes of its blocks; all of the slice where places are those
    /// of the array.
    pub(in crate::client) fn part(&self, key: Key, at: u32, len: u32) -> (u64, u64) {
        let (start, end) = self.range(key);
        if self.width != self.rows {
            return (start, end);
        }
        let first = u64::from(at) / SECTOR_BYTES - u64::from(key.slice) * self.slice_sectors;
        let last = first + u64::from(len).div_ceil(SECTOR_BYTES);
        (start + first * self.width, start + last * self.width)
    }

    /// Places that a block of each strip takes; `None` where places are those of the array.
    pub(in crate::client) fn places_of_block(&self) -> Option<u64> {
        (self.width == self.rows).then(|| BLOCK_SECTORS * self.width)
    }

    /// The part of the blocks of a stripe that lies between two places of a slice: first byte and
    /// length.
    pub(in crate::client) fn bytes_of(&self, start: u64, end: u64) -> (u32, u32) {
        let key = self.key(start);
        let (first, last) = self.range(key);
        let places = if self.width == self.rows { (start, end.min(last)) } else { (first, last) };
        let at = u64::from(key.slice) * self.slice_sectors + (places.0 - first) / self.width;
        let sectors = (places.1 - places.0) / self.width;
        ((at * SECTOR_BYTES) as u32, (sectors * SECTOR_BYTES) as u32)
    }

    const fn per_stripe(&self) -> u64 {
        self.chunk_sectors * self.width
    }

    /// The row of a member at which a byte of a block lies.
    fn row(&self, key: Key, row: u16, at: u32) -> u64 {
        let block = key.stripe.0 * self.rows + u64::from(row);
        block * self.chunk_sectors + u64::from(at) / SECTOR_BYTES
    }

    /// Rows of a stripe on each member.
    const fn stripe_rows(&self) -> u64 {
        self.chunk_sectors * self.rows
    }

    /// The slice that a row is in, where stripes do not take as much of the space as of a member.
    const fn key_of_row(&self, row: u64) -> Key {
        let within = row % self.stripe_rows();
        Key {
            stripe: StripeNo(row / self.stripe_rows()),
            slice: (within / (self.slice_sectors * self.rows)) as u32,
        }
    }
}

impl SyncSpace for Space {
    fn level_name(&self) -> String {
        match self.family {
            Family::Md { level, .. } => level.name().to_owned(),
            Family::Xor2d => XOR2D_NAME.to_owned(),
        }
    }

    fn roles(&self) -> u16 {
        self.nodes
    }

    fn redundancy(&self) -> Redundancy {
        match self.family {
            Family::Md { level: Level::Linear | Level::Raid0, .. } => Redundancy::None,
            Family::Md { level: Level::Raid1 | Level::Raid10, .. } => Redundancy::Copies,
            Family::Md { level: Level::Raid4 | Level::Raid5, .. } => Redundancy::Parity(1),
            Family::Md { level: Level::Raid6, .. } | Family::Xor2d => Redundancy::Parity(2),
        }
    }

    fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    fn member_sectors(&self) -> u64 {
        match self.redundancy() {
            Redundancy::None => 0,
            _ => self.stripes * self.rows * self.chunk_sectors,
        }
    }

    fn sync_sectors(&self) -> u64 {
        match self.redundancy() {
            Redundancy::None => 0,
            _ => self.stripes * self.per_stripe(),
        }
    }

    fn unit_sectors(&self) -> u64 {
        self.slice_sectors * self.rows
    }

    fn unit_left(&self, sector: u64) -> u64 {
        let within = sector % self.per_stripe();
        let slice = self.slice_sectors * self.width;
        let end = (within / slice + 1) * slice;
        end.min(self.per_stripe()) - within
    }

    fn done_below(&self, sector: u64) -> u64 {
        // Where a stripe has several rows, a slice of it has parts of all of them.
        if self.width == 1 { sector } else { sector / self.per_stripe() * self.per_stripe() }
    }

    fn is_by_role(&self) -> bool {
        self.width != self.rows
    }

    fn rows_left(&self, row: u64) -> u64 {
        let within = row % self.stripe_rows();
        let slice = self.slice_sectors * self.rows;
        let end = (within / slice + 1) * slice;
        end.min(self.stripe_rows()) - within
    }

    fn rows_done_below(&self, row: u64) -> u64 {
        if self.rows == 1 { row } else { row / self.stripe_rows() * self.stripe_rows() }
    }

    fn of_row(&self, _role: Role, row: u64) -> Option<(u64, u64)> {
        let (start, end) = self.range(self.key_of_row(row));
        Some((start, end - start))
    }

    fn row_of(&self, _role: Role, sector: u64) -> Option<u64> {
        Some(self.first_row(sector))
    }

    fn strips_at(&self, place: u64, end: u64) -> Strips {
        let key = self.key(place);
        let end = end.min(self.range(key).1);
        let nothing = Strips { places: end - place, ..Strips::default() };
        let Ok(code) = self.family.code(self.nodes, key.stripe.0) else { return nothing };
        let (at, len) = self.bytes_of(place, end);
        let strip = |cell: Cell| (cell.node, self.row(key, cell.row, at));
        Strips {
            sectors: u64::from(len) / SECTOR_BYTES,
            data: code.data().iter().map(|&cell| strip(cell)).collect(),
            sums: code.equations().iter().map(|equation| strip(equation.parity)).collect(),
            involved: code.data().iter().map(|&cell| code.involved(cell).to_vec()).collect(),
            ..nothing
        }
    }

    fn rows_of(&self, _role: Role, start: u64, end: u64) -> Vec<(u64, u64)> {
        let key = self.key(start);
        let (at, len) = self.bytes_of(start, end);
        let rows = 0..self.rows as u16;
        rows.map(|row| (self.row(key, row, at), u64::from(len) / SECTOR_BYTES)).collect()
    }

    fn first_row(&self, sector: u64) -> u64 {
        if !self.is_by_role() {
            return sector;
        }
        let key = self.key(sector);
        key.stripe.0 * self.stripe_rows() + u64::from(key.slice) * self.slice_sectors * self.rows
    }

    fn survives(&self, lost: &dyn Fn(Role) -> bool) -> bool {
        self.losses.survives(lost)
    }
}
