//! Comparison of the members of a stopped array, outside ranges marked as out of sync.
//!
//! The devices themselves are compared, not the status of the machine. Differences are allowed
//! where the superblocks' mark of the resync, or with a bitmap its bits, ask for a resync.
//! Unreadable sectors and bad blocks are skipped.

use braid_array::Role;
use std::ops::Range;

use braid_array::SECTOR_BYTES;
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::geometry::Strip;

use crate::disk::Disk;
use crate::local::assembly;
use crate::local::scenario::Scenario;
use crate::local::shape::Shape;

const SECTOR: usize = SECTOR_BYTES as usize;

/// A stopped array's devices.
#[derive(Debug)]
pub struct Stopped<'a> {
    scenario: &'a Scenario,
    shape: &'a Shape,
    disks: &'a [Disk],
    /// The devices in sync, by role.
    members: Vec<Option<Held>>,
    /// The ranges of sync space that ask for a resync.
    marked: Vec<Range<u64>>,
}

/// A device in sync.
#[derive(Debug)]
struct Held {
    device: usize,
    /// Its data begin so many sectors behind where those of the array do: a spare that was away
    /// while all moved is where it was.
    behind: i64,
    bad_blocks: Vec<Range<u64>>,
}

impl Held {
    fn of(device: usize, disks: &[Disk], shape: &Shape) -> Self {
        let candidate = assembly::candidate(device, &disks[device]);
        let begins = candidate.superblock.map_or(shape.begins(), |own| own.data_offset);
        let log = candidate.bad_blocks.unwrap_or_default();
        let bad_blocks = log.ranges().iter().map(|(start, sectors)| *start..start + sectors);
        let behind = begins.cast_signed() - shape.begins().cast_signed();
        Self { device, behind, bad_blocks: bad_blocks.collect() }
    }
}

impl<'a> Stopped<'a> {
    /// `holders`: the device of each role that is in sync.
    pub fn new(
        scenario: &'a Scenario,
        shape: &'a Shape,
        disks: &'a [Disk],
        holders: &[Option<usize>],
    ) -> Self {
        let held = |device: &Option<usize>| device.map(|device| Held::of(device, disks, shape));
        let members = holders.iter().map(held).collect();
        let marked = holders.iter().flatten().find_map(|device| marked(disks, *device));
        Self { scenario, shape, disks, members, marked: marked.unwrap_or_default() }
    }

    /// The first difference that nothing marks.
    pub fn unmarked_difference(&self) -> Option<String> {
        self.first_difference(&self.marked).map(|what| what + ", unmarked")
    }

    /// The first difference, marked or not.
    pub fn difference(&self) -> Option<String> {
        self.first_difference(&[])
    }

    fn first_difference(&self, except: &[Range<u64>]) -> Option<String> {
        let mut end = self.shape.array_sectors();
        let mut differs: fn(&Self, u64) -> bool = Self::copies_differ;
        if self.scenario.has_parity() {
            end = self.shape.geometry.sync_sectors();
            differs = Self::stripe_differs;
        }
        let marked = |sector: &u64| except.iter().any(|range| range.contains(sector));
        let sector = (0..end).find(|sector| !marked(sector) && differs(self, *sector))?;
        Some(format!("the members differ at {sector} of sync space"))
    }

    /// Returns the content of a role at a device sector, if it is known.
    fn held(&self, role: Role, sector: u64) -> Option<&[u8]> {
        let Held { device, behind, bad_blocks } = self.members[role.index()].as_ref()?;
        let disk = &self.disks[*device];
        let sector = sector.checked_add_signed(*behind)?;
        let readable = !disk.blind() && !disk.unreadable().contains(&sector);
        let told = readable && !bad_blocks.iter().any(|range| range.contains(&sector));
        let at = sector as usize * SECTOR;
        told.then(|| &disk.image()[at..at + SECTOR])
    }

    fn copies_differ(&self, sector: u64) -> bool {
        let (geometry, data_offset) = self.shape.at(sector);
        let held = (0..geometry.copies()).filter_map(|copy| {
            let Strip { role, sector } = geometry.copy(sector, copy);
            self.held(role, data_offset + sector)
        });
        let held: Vec<&[u8]> = held.collect();
        held.windows(2).any(|pair| pair[0] != pair[1])
    }

    fn stripe_differs(&self, row: u64) -> bool {
        let Some((geometry, data_offset)) = self.shape.at_row(row) else { return false };
        let stripe = row / u64::from(geometry.chunk_sectors());
        let row = data_offset + row;
        let (p, q) = geometry.parity_roles(stripe);
        let indices = 0..geometry.data_disks();
        let data: Option<Vec<&[u8]>> = indices
            .clone()
            .map(|index| self.held(geometry.data_role(stripe, index), row))
            .collect();
        let Some(data) = data else { return false };
        let Some(p) = self.held(p, row) else { return false };
        let (coefs, q) = match q.map(|q| self.held(q, row)) {
            None => (Vec::new(), None),
            Some(None) => return false,
            Some(held) => (indices.map(|i| geometry.q_coef(stripe, i)).collect(), held),
        };
        let found = braid_parity::check(&data, &coefs, p, q);
        found.p_differs != 0 || found.q_differs != 0
    }
}

/// Returns the ranges that a device's superblock and bitmap mark as possibly out of sync.
fn marked(disks: &[Disk], device: usize) -> Option<Vec<Range<u64>>> {
    let candidate = assembly::candidate(device, &disks[device]);
    let mark = candidate.superblock.ok()?.resync_offset;
    Some(match candidate.bitmap {
        _ if mark == MAX_SECTOR => Vec::new(),
        Some(Ok(bitmap)) => {
            bitmap.dirty_ranges().map(|range| range.start.max(mark)..range.end).collect()
        }
        _ => std::iter::once(mark..MAX_SECTOR).collect(),
    })
}
