//! An array as it is read by a hypothesis.

use braid_array::geometry::{Geometry, Strip};
use braid_array::{Role, SECTOR_BYTES};

use crate::bytes::is_zero;
use crate::recover::hypothesis::Hypothesis;
use crate::recover::sums::Members;

/// Inodes that are looked at.
pub(super) const MOST_INODES: usize = 240;

/// An array as a hypothesis has it.
pub(super) struct Array<'a, 'b, 'c> {
    members: &'a mut Members<'b, 'c>,
    one: &'a Hypothesis,
    geometry: Geometry,
}

impl<'a, 'b, 'c> Array<'a, 'b, 'c> {
    pub(super) fn of(one: &'a Hypothesis, members: &'a mut Members<'b, 'c>) -> Option<Self> {
        let geometry = one.shape.geometry(one.member_sectors(&members.sizes()))?;
        Some(Self { members, one, geometry })
    }
}

impl Array<'_, '_, '_> {
    /// Where in the array the file system begins, in sectors.
    pub(super) const fn origin(&self) -> u64 {
        self.one.origin
    }

    /// So many sectors of the array.
    pub(super) fn read(&mut self, sector: u64, sectors: u64) -> Option<Vec<u8>> {
        let chunk = u64::from(self.geometry.chunk_sectors().max(8));
        let mut bytes = Vec::new();
        let mut at = sector;
        while at < sector + sectors {
            let count = (sector + sectors - at).min(chunk - at % chunk);
            bytes.extend(self.piece(at, count)?);
            at += count;
        }
        Some(bytes)
    }

    /// A part of a chunk: of the member that has it, or of the others by the sum of their row.
    fn piece(&mut self, sector: u64, sectors: u64) -> Option<Vec<u8>> {
        if sector >= self.geometry.array_sectors() {
            return None;
        }
        let length = (sectors * SECTOR_BYTES) as usize;
        for copy in 0..self.geometry.copies() {
            let strip = self.geometry.copy(sector, copy);
            if self.one.roles.get(strip.role.index())?.is_some() {
                return self.strip(strip, length);
            }
        }
        if self.one.shape.level.parity_disks() == 0 {
            return None;
        }
        let strip = self.geometry.copy(sector, 0);
        let stripe = strip.sector / u64::from(self.geometry.chunk_sectors());
        let (_, q) = self.geometry.parity_roles(stripe);
        let mut strips = Vec::new();
        for role in (0..self.geometry.raid_disks() as u16).map(Role) {
            if role != strip.role && Some(role) != q {
                strips.push(self.strip(Strip { role, sector: strip.sector }, length)?);
            }
        }
        let strips: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
        let mut sum = vec![0; length];
        braid_parity::xor(&mut sum, &strips);
        Some(sum)
    }

    fn strip(&mut self, strip: Strip, length: usize) -> Option<Vec<u8>> {
        let place = (*self.one.roles.get(strip.role.index())?)?;
        self.members.bytes(place.member, place.data_offset + strip.sector, length)
    }
}

/// Returns whether a file ends so many bytes from the beginning of its last block, with zeroes
/// behind.
pub(super) fn ends_here(block: &[u8], length: u64) -> bool {
    let (text, rest) = block.split_at((length as usize).min(block.len()));
    is_zero(rest) && !is_zero(text)
}
