//! Content of the volumes, read without any machine: blocks by stripe and cell, whether parities
//! fit, and the array's content without some of the nodes.

use braid_array::Role;
use braid_array::assemble::{read_bad_blocks, read_bitmap};
use braid_array::code::{Cell, Recovery, StripeCode};
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{BadBlocks, BadBlocksError, Bitmap, DevRole, Superblock, Version};
use braid_array::level::Level;
use braid_cluster::Family;
use braid_cluster::assemble::Candidate;
use braid_cluster::client::Found;
use braid_cluster::journal::{HEADERS_BYTES, Header};
use braid_cluster::pipeline::Params;

use super::scenario::ClusterScenario;
use crate::disk::Disk;
use crate::judge::Judge;
use crate::report::Failure;
use crate::rng::Rng;

/// The array's id.
pub(super) const ARRAY: [u8; 16] = [7; 16];

/// The name of every node's volume.
pub const VOLUME: &str = "data";

/// Where data begins on a volume.
pub const DATA_SECTOR: u64 = 64;
/// Where the superblock lies.
const SUPER_SECTOR: u64 = 8;
/// Where the bitmap lies, and how many sectors it has.
const BITMAP_SECTOR: u64 = 16;
const BITMAP_SECTORS: u64 = 8;
/// Where their bad-block logs begin.
const LOG_SECTOR: u64 = 24;
const LOG_SECTORS: u64 = 8;

/// Size of a volume beyond the array's part.
const SPARE_SECTORS: u64 = 64;

/// Places and kinds of the blocks of an array on its volumes.
#[derive(Debug)]
pub struct Layout {
    params: Params,
    /// By stripe, until they repeat.
    codes: Vec<StripeCode>,
}

impl Layout {
    /// Creates the layout of an array with these parameters.
    ///
    /// # Panics
    /// Panics if the family has no code; no scenario draws such a family.
    pub fn new(params: Params) -> Self {
        let Params { family, nodes, .. } = params;
        let stripes = 0..u64::from(family.period(nodes));
        let code = |stripe| family.code(nodes, stripe).expect("a scenario's family has a code");
        Self { params, codes: stripes.map(code).collect() }
    }

    /// The code of a stripe.
    pub fn code(&self, stripe: u64) -> &StripeCode {
        &self.codes[(stripe % self.codes.len() as u64) as usize]
    }

    /// Data blocks of a stripe.
    pub fn data_blocks(&self) -> u64 {
        self.codes[0].data().len() as u64
    }

    /// Size of the array.
    pub fn sectors(&self) -> u64 {
        let Params { stripes, chunk_bytes, .. } = self.params;
        stripes * self.data_blocks() * u64::from(chunk_bytes) / 512
    }

    /// The space in which resync and bitmap count, as md has it.
    pub(super) fn sync_sectors(&self) -> u64 {
        let Params { family, stripes, chunk_bytes, .. } = self.params;
        match family {
            Family::Md { level: Level::Raid10, .. } => self.sectors(),
            _ => stripes * u64::from(self.codes[0].rows()) * u64::from(chunk_bytes) / 512,
        }
    }

    pub(super) fn sector(&self, stripe: u64, cell: Cell) -> u64 {
        let block = stripe * u64::from(self.codes[0].rows()) + u64::from(cell.row);
        DATA_SECTOR + block * u64::from(self.params.chunk_bytes) / 512
    }

    /// A block of a stripe, as it lies on its volume.
    fn block<'a>(&self, disks: &[&'a Disk], stripe: u64, cell: Cell) -> &'a [u8] {
        let at = self.sector(stripe, cell) as usize * 512;
        &disks[cell.node.index()].image()[at..at + self.params.chunk_bytes as usize]
    }
}

/// Volumes with superblocks, and zeroes for data; where the scenario has it so with parities that
/// hold anything, with a bitmap, and with journals.
///
/// # Panics
/// When such a bitmap does not fit.
pub fn create(
    layout: &Layout,
    set_uuid: [u8; 16],
    scenario: &ClusterScenario,
    rng: &mut Rng,
) -> Vec<Disk> {
    let &ClusterScenario { dirty, bitmap_chunk_bytes, journal_bytes, .. } = scenario;
    let params = &layout.params;
    let rows = u64::from(layout.code(0).rows());
    let data_sectors = params.stripes * rows * u64::from(params.chunk_bytes) / 512;
    let device_sectors = DATA_SECTOR + data_sectors + SPARE_SECTORS;
    let (level, md_layout) = params.family.encode();
    let mut bitmap = bitmap_chunk_bytes.map(|chunk| {
        let sectors = layout.sync_sectors();
        Bitmap::new([7; 16], sectors, Some(chunk), BITMAP_SECTORS).expect("it fits")
    });
    if dirty && let Some(bitmap) = &mut bitmap {
        bitmap.set_all();
    }
    let mut disks = Vec::new();
    for role in Role::all(params.nodes) {
        let mut roles: Vec<DevRole> = Role::all(params.nodes).map(DevRole::Active).collect();
        roles.resize(usize::from(params.nodes).next_multiple_of(128), DevRole::Spare);
        let superblock = Superblock {
            set_uuid,
            level,
            layout: md_layout,
            size_sectors: data_sectors,
            chunk_sectors: params.chunk_bytes / 512,
            raid_disks: params.nodes.into(),
            data_offset: DATA_SECTOR,
            data_size: device_sectors - DATA_SECTOR,
            super_offset: SUPER_SECTOR,
            dev_number: role.0.into(),
            device_uuid: [role.0 as u8 + 1; 16],
            feature_map: if bitmap.is_some() { feature::BITMAP_OFFSET } else { 0 },
            bitmap_offset_sectors: (BITMAP_SECTOR - SUPER_SECTOR) as i32,
            bblog_size_sectors: LOG_SECTORS as u16,
            bblog_offset_sectors: (LOG_SECTOR - SUPER_SECTOR) as i32,
            resync_offset: if dirty { 0 } else { MAX_SECTOR },
            roles,
            ..Superblock::blank()
        };
        let journal_sectors = journal_bytes / 4096 * 8;
        let sectors = device_sectors + journal_sectors;
        let mut disk = blank(sectors, scenario, &set_uuid);
        disk.put(SUPER_SECTOR, &superblock.encode());
        if let Some(bitmap) = &bitmap {
            disk.put(BITMAP_SECTOR, &bitmap.encode_page(0));
        }
        disks.push(disk);
    }
    if dirty {
        spoil(layout, &mut disks, rng);
    }
    disks
}

/// A volume that is blank but for its journal, if it has one.
pub fn blank(sectors: u64, scenario: &ClusterScenario, set_uuid: &[u8; 16]) -> Disk {
    let mut disk = Disk::new(sectors);
    if let Some(header) = Header::new(scenario.journal_bytes, scenario.parts_only) {
        disk.put(sectors - HEADERS_BYTES / 512, &header.encode(set_uuid));
    }
    disk
}

/// Parities of no data: anything.
fn spoil(layout: &Layout, disks: &mut [Disk], rng: &mut Rng) {
    for stripe in 0..layout.params.stripes {
        for equation in layout.code(stripe).equations() {
            let cell = equation.parity;
            let garbage = vec![rng.next() as u8; layout.params.chunk_bytes as usize];
            let sector = layout.sector(stripe, cell);
            disks[cell.node.index()].put(sector, &garbage);
        }
    }
}

/// The superblock on a volume.
pub fn superblock(disk: &Disk) -> Result<Superblock, String> {
    let bytes = disk.bytes(SUPER_SECTOR, 4096).map_err(|error| format!("superblock: {error}"))?;
    let decoded = Superblock::decode(Version::V1_2, SUPER_SECTOR, &bytes);
    decoded.map_err(|error| format!("superblock: {error}"))
}

/// Reads the metadata of a volume.
pub fn found(disk: &Disk) -> Result<Found, String> {
    let superblock = superblock(disk)?;
    let bitmap = superblock.bitmap_sector().and_then(|sector| own_bitmap(disk, sector));
    Ok(Found { superblock, bitmap })
}

/// Returns the candidate for assembly on the volume of the node at this address, if it carries a
/// member.
pub fn candidate(disk: &Disk, address: String) -> Option<Candidate> {
    let Found { superblock, bitmap } = found(disk).ok()?;
    let bad_blocks = bad_blocks(disk, &superblock);
    Some(Candidate {
        address,
        volume: VOLUME.to_owned(),
        bytes: disk.image().len() as u64,
        superblock: Ok(superblock),
        bitmap: bitmap.map(Ok),
        bad_blocks,
    })
}

/// Reads the bad-block log of the member with this superblock.
pub fn bad_blocks(disk: &Disk, superblock: &Superblock) -> Result<BadBlocks, BadBlocksError> {
    read_bad_blocks(superblock, disk.sectors(), &mut |sector, len| disk.bytes(sector, len))
}

/// The bitmap that lies there, if it can be read.
fn own_bitmap(disk: &Disk, sector: u64) -> Option<Bitmap> {
    read_bitmap(sector, disk.sectors(), &mut |sector, len| disk.bytes(sector, len)).ok()
}

/// The bitmap of an array that consists of these volumes: all their bits that count.
pub fn bitmap(disks: &[&Disk]) -> Result<Option<Bitmap>, String> {
    let superblocks = disks.iter().map(|disk| superblock(disk)).collect::<Result<Vec<_>, _>>()?;
    let events = superblocks.iter().map(|superblock| superblock.events).max().unwrap_or(0);
    let mut merged: Option<Bitmap> = None;
    let mut any = None;
    for (disk, superblock) in disks.iter().zip(&superblocks) {
        let Some(sector) = superblock.bitmap_sector() else { continue };
        let Some(found) = own_bitmap(disk, sector) else { continue };
        any = Some(found.clone());
        if found.stale(superblock.set_uuid, events) {
            continue;
        }
        match &mut merged {
            Some(merged) => merged.union(&found),
            None => merged = Some(found),
        }
    }
    if merged.is_none()
        && let Some(unknown) = &mut any
    {
        unknown.set_all();
    }
    Ok(merged.or(any))
}

fn sum(inputs: &[(u8, &[u8])], len: usize) -> Vec<u8> {
    let coefs: Vec<u8> = inputs.iter().map(|(coef, _)| *coef).collect();
    let blocks: Vec<&[u8]> = inputs.iter().map(|(_, block)| *block).collect();
    let mut out = vec![0; len];
    braid_parity::combine(&mut [&mut out], &coefs, &blocks, false);
    out
}

/// Returns for each stripe whether no member has it in its bad-block log.
pub fn known(layout: &Layout, disks: &[&Disk]) -> Vec<bool> {
    let unknown = |disk: &&Disk| {
        let superblock = superblock(disk).ok()?;
        bad_blocks(disk, &superblock).ok()
    };
    let unknown: Vec<BadBlocks> = disks.iter().map(|d| unknown(d).unwrap_or_default()).collect();
    let sectors = u64::from(layout.params.chunk_bytes) / 512;
    let known = |stripe: u64| {
        let mut cells = layout.code(stripe).cells();
        cells.all(|cell| !unknown[cell.node.index()].overlaps(layout.sector(stripe, cell), sectors))
    };
    (0..layout.params.stripes).map(known).collect()
}

/// The first parity that does not fit its data.
pub fn misfit(layout: &Layout, disks: &[&Disk]) -> Option<String> {
    let known = known(layout, disks);
    for stripe in (0..layout.params.stripes).filter(|stripe| known[*stripe as usize]) {
        for equation in layout.code(stripe).equations() {
            let term = |term: &braid_array::code::Term| {
                (term.coef, layout.block(disks, stripe, term.cell))
            };
            let terms: Vec<(u8, &[u8])> = equation.terms.iter().map(term).collect();
            let right = sum(&terms, layout.params.chunk_bytes as usize);
            let cell = equation.parity;
            let found = layout.block(disks, stripe, cell);
            if let Some(byte) = right.iter().zip(found).position(|(right, found)| right != found) {
                return Some(format!(
                    "stripe {stripe}: the parity at row {} of node {} is wrong at byte {byte}",
                    cell.row, cell.node
                ));
            }
        }
    }
    None
}

/// Checks that all parities fit, and that the content is allowed: as decoded without each of these
/// sets of nodes.
///
/// # Errors
/// Returns the first error found.
pub fn judge(
    layout: &Layout,
    disks: &[&Disk],
    without: &[&[Role]],
    judge: &mut Judge,
) -> Result<(), Failure> {
    if let Some(misfit) = misfit(layout, disks) {
        return Err(Failure(misfit));
    }
    for lost in without {
        let stripes = 0..layout.params.stripes;
        let known = known(layout, disks);
        let data: Vec<u8> = stripes.flat_map(|stripe| data(layout, disks, stripe, lost)).collect();
        let stripe_sectors = layout.sectors() / layout.params.stripes;
        let excused = |sector: u64| !known[(sector / stripe_sectors) as usize];
        judge.content(0, &data, &excused)?;
    }
    Ok(())
}

/// The data of a stripe, decoded without the `lost` nodes.
///
/// # Panics
/// When the code does not survive that.
pub fn data(layout: &Layout, disks: &[&Disk], stripe: u64, lost: &[Role]) -> Vec<u8> {
    let code = layout.code(stripe);
    let recovery = Recovery::plan(code, lost).expect("as many as the code survives");
    let len = layout.params.chunk_bytes as usize;
    let mut found: Vec<(Cell, Vec<u8>)> = Vec::new();
    for step in recovery.steps() {
        let term = |term: &braid_array::code::Term| {
            let back = found.iter().find(|(cell, _)| *cell == term.cell);
            (term.coef, back.map_or_else(|| layout.block(disks, stripe, term.cell), |b| &b.1))
        };
        let inputs: Vec<(u8, &[u8])> = step.inputs.iter().map(term).collect();
        found.push((step.cell, sum(&inputs, len)));
    }
    let mut bytes = Vec::new();
    for &cell in code.data() {
        let back = found.iter().find(|(other, _)| *other == cell);
        bytes.extend_from_slice(
            back.map_or_else(|| layout.block(disks, stripe, cell), |back| &back.1),
        );
    }
    bytes
}
