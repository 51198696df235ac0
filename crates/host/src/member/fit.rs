//! Images that are longer or shorter than the devices that they were made of.

use std::sync::Arc;

use braid_array::SECTOR_BYTES;
use braid_array::format::{Superblock, Version};
use braid_rescue::map_file::MapFile;

use super::MemberFile;

/// Bytes before the end of an image that are searched for the superblock.
const MOST_EXCESS_BYTES: u64 = 4 << 20;
/// A superblock 1.0 begins at a multiple of this.
const STEP_SECTORS: u64 = 8;
/// More than any device has.
const MOST_SECTORS: u64 = 1 << 50;

impl MemberFile {
    /// Shortens an image that is longer than its device was: a superblock 1.0 near the end marks
    /// the end of the device, and records its own place. Returns whether the image was shortened.
    pub fn trim_excess(&mut self) -> bool {
        if self.block_device || self.part.is_some() {
            return false;
        }
        let end = self.sectors / STEP_SECTORS * STEP_SECTORS;
        let start = end.saturating_sub(MOST_EXCESS_BYTES / SECTOR_BYTES);
        let bytes = ((end - start) * SECTOR_BYTES) as usize;
        let Ok(bytes) = self.read_at(start * SECTOR_BYTES, bytes) else { return false };
        let step = (STEP_SECTORS * SECTOR_BYTES) as usize;
        let blocks = bytes.chunks(step).enumerate().rev();
        let mut ends = blocks.filter_map(|(index, block)| {
            let sector = start + index as u64 * STEP_SECTORS;
            let sectors = sector + 2 * STEP_SECTORS;
            let found = Superblock::decode(Version::V1_0, sector, block);
            (found.is_ok() && sectors <= self.sectors).then_some(sectors)
        });
        let Some(sectors) = ends.next() else { return false };
        self.sectors = sectors;
        true
    }

    /// Extends an image that was cut off to the length of its device; the missing part counts as
    /// unreadable. Returns whether a part was missing.
    pub fn fill_up(&mut self, sectors: u64) -> bool {
        if sectors <= self.sectors || sectors > MOST_SECTORS {
            return false;
        }
        let start = self.start_bytes();
        let end = start + self.sectors * SECTOR_BYTES;
        let map = self.lost.take().map_or_else(|| MapFile::all_rescued(end), Arc::unwrap_or_clone);
        self.lost = Some(Arc::new(map.of_longer(start + sectors * SECTOR_BYTES)));
        self.sectors = sectors;
        true
    }
}
