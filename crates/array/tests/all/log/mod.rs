//! What the logs of a stopped or crashed array say: made by hand with the codecs, and cut from what
//! Linux md wrote (see `../data/README.md`).

mod journal;
mod ppl;

use braid_array::format::{Superblock, Version};
use braid_array::geometry::{Geometry, Shape};
use braid_array::level::{Layout, Level, ParityLayout};

const UUID: [u8; 16] = [7; 16];
const CHUNK_SECTORS: u64 = 128;
const MEMBER_SECTORS: u64 = 8192;

/// A device in memory.
#[derive(Clone)]
struct Disk(Vec<u8>);

impl Disk {
    fn new(sectors: u64) -> Self {
        Self(vec![0; sectors as usize * 512])
    }

    fn put(&mut self, sector: u64, bytes: &[u8]) {
        self.0[sector as usize * 512..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Changes a byte of a sector.
    fn damage(&mut self, sector: u64) {
        self.0[sector as usize * 512 + 40] ^= 1;
    }
}

impl Disk {
    fn read(&self, sector: u64, bytes: u32) -> Result<Vec<u8>, String> {
        assert!(bytes <= 1 << 20 && bytes.is_multiple_of(512));
        let start = sector as usize * 512;
        let found = self.0.get(start..start + bytes as usize);
        found.map(<[u8]>::to_vec).ok_or_else(|| "beyond the end".to_owned())
    }
}

/// Of an array of this level, chunks of 64 KiB, left-symmetric: the parity of stripe 0 is on the
/// last role, or the last two, and its data on the others in order.
fn geometry(level: Level, raid_disks: u32) -> Geometry {
    let shape = Shape {
        level,
        layout: Layout::Parity(ParityLayout::LeftSymmetric),
        raid_disks,
        chunk_sectors: CHUNK_SECTORS as u32,
        size_sectors: MEMBER_SECTORS,
        member_data_sectors: &[],
    };
    Geometry::new(&shape).unwrap()
}

/// The superblock of a member, its data behind 4096 sectors.
fn superblock(feature_map: u32) -> Superblock {
    Superblock {
        version: Version::V1_2,
        feature_map,
        set_uuid: UUID,
        super_offset: 8,
        data_offset: 4096,
        data_size: MEMBER_SECTORS,
        ..Superblock::blank()
    }
}
