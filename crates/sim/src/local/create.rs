//! A new array on blank devices, as `mdadm --create` leaves it.

use braid_array::Role;
use braid_array::format::journal::MetaBlock;
use braid_array::format::ppl::{self, PplArea, PplHeader};
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{Bitmap, DevRole, Superblock, Version};
use braid_array::geometry::{Geometry, Shape};
use braid_array::integrity::new_area;
use braid_array::level::{Layout, Level};

use crate::disk::Disk;
use crate::local::scenario::{Birth, Log, Scenario};
use crate::rng::Rng;

/// Sectors kept for the superblock, for the bitmap and for the bad-block log, each.
const AREA_SECTORS: u64 = 8;

/// The journal's number, which no member has.
const JOURNAL_NUMBER: u32 = 60;

/// Entries of `dev_roles`: room for members that come later.
const MAX_DEV: usize = 64;

/// Contents of a device that has never been part of the array.
const STALE: u8 = 0xa5;

/// Returns a device outside the array, filled with bytes that must not be read.
pub fn fresh_disk(scenario: &Scenario) -> Disk {
    let data_sectors = scenario.data_sectors.iter().copied().max().unwrap_or(0);
    let mut disk = Disk::new(scenario.device_sectors(data_sectors));
    disk.fill(STALE);
    disk
}

/// Where the data of this scenario lies.
pub fn geometry(scenario: &Scenario) -> Result<Geometry, String> {
    let layout = Layout::decode(scenario.level, scenario.layout, scenario.members.into())
        .map_err(|e| e.to_string())?;
    let shape = Shape {
        level: scenario.level,
        layout,
        raid_disks: scenario.members.into(),
        chunk_sectors: scenario.chunk_sectors,
        size_sectors: scenario.data_sectors[0],
        member_data_sectors: &scenario.data_sectors,
    };
    Geometry::new(&shape).map_err(|error| error.to_string())
}

/// The devices of a new array: members by role, then spares.
pub fn create(scenario: &Scenario, rng: &mut Rng) -> Vec<Disk> {
    let roles = usize::from(scenario.members);
    let count = roles + usize::from(scenario.spares);
    let set_uuid = uuid(rng);
    let mut disks = Vec::new();
    for device in 0..count {
        let data_sectors = scenario.data_sectors.get(device).or(scenario.data_sectors.last());
        let data_sectors = data_sectors.copied().unwrap_or(0);
        let device_sectors = scenario.device_sectors(data_sectors);
        let mut disk = Disk::new(device_sectors);
        if scenario.grows {
            // What is not used holds anything.
            disk.fill(STALE.wrapping_mul(2 * device as u8 + 1));
            let data_bytes = (data_sectors * braid_array::SECTOR_BYTES) as usize;
            disk.put(scenario.data_offset, &vec![0; data_bytes]);
        }
        let recovers = scenario.birth == Birth::Recovery && device == roles - 1;
        if device >= roles || recovers {
            disk.fill(STALE);
        }
        let mut superblock = superblock(scenario, device_sectors, data_sectors);
        superblock.set_uuid = set_uuid;
        superblock.device_uuid = uuid(rng);
        // mdadm gives the member that is to be recovered a device number beyond the roles.
        superblock.dev_number = if recovers { count as u32 } else { device as u32 };
        disk.put(superblock.super_offset, &superblock.encode());
        write_bitmap(scenario, &superblock, &mut disk);
        blank_bad_blocks(&superblock, &mut disk);
        begin_log(&superblock, &mut disk);
        begin_sums(scenario, &superblock, &mut disk, rng);
        disks.push(disk);
    }
    if let Log::Journal(sectors) = scenario.log {
        disks.push(journal(scenario, set_uuid, sectors, rng));
    }
    disks
}

/// The device that holds the journal.
fn journal(scenario: &Scenario, set_uuid: [u8; 16], sectors: u64, rng: &mut Rng) -> Disk {
    let device_sectors = scenario.device_sectors(sectors);
    let mut disk = Disk::new(device_sectors);
    disk.fill(STALE);
    let mut superblock = superblock(scenario, device_sectors, sectors);
    superblock.set_uuid = set_uuid;
    superblock.device_uuid = uuid(rng);
    superblock.dev_number = JOURNAL_NUMBER;
    disk.put(superblock.super_offset, &superblock.encode());
    blank_bad_blocks(&superblock, &mut disk);
    let block = MetaBlock { seq: rng.next() >> 32, position: 0, payloads: Vec::new() };
    disk.put(superblock.data_offset, &block.encode(set_uuid));
    disk
}

/// Logs in which nothing is recorded.
fn begin_log(superblock: &Superblock, disk: &mut Disk) {
    if let Ok(Some(area)) = PplArea::of(superblock) {
        let header = PplHeader { generation: 0, entries: Vec::new() };
        disk.put(area.sector, &header.encode(superblock.set_uuid));
    }
}

/// Checksums of which none is known.
fn begin_sums(scenario: &Scenario, superblock: &Superblock, disk: &mut Disk, rng: &mut Rng) {
    if !scenario.sums || scenario.stores {
        return;
    }
    let bytes = disk.bytes(superblock.super_offset, 4096).expect("a device is longer");
    let area = new_area(superblock, &bytes, uuid(rng)).expect("a device has room for it");
    area.iter().for_each(|(sector, bytes)| disk.put(*sector, bytes));
}

fn superblock(scenario: &Scenario, device_sectors: u64, data_sectors: u64) -> Superblock {
    let roles = usize::from(scenario.members);
    let in_sync = if scenario.birth == Birth::Recovery { roles - 1 } else { roles };
    let spares = roles..roles + usize::from(scenario.spares);
    let super_offset = match scenario.version {
        Version::V1_0 => (device_sectors - 16) & !7,
        Version::V1_1 => 0,
        Version::V1_2 => 8,
        Version::V0_90 => Version::V0_90.location(device_sectors).unwrap_or(0),
    };
    let towards_data: i32 = if scenario.version == Version::V1_0 { -1 } else { 1 };
    let area = AREA_SECTORS as i32 * towards_data;
    let striped = matches!(scenario.level, Level::Linear | Level::Raid0);
    let mut feature_map = 0;
    if scenario.bitmap_chunk_bytes.is_some() {
        feature_map |= feature::BITMAP_OFFSET;
    }
    let unequal = scenario.data_sectors.windows(2).any(|pair| pair[0] != pair[1]);
    let raid0_layout = scenario.level == Level::Raid0 && unequal;
    if raid0_layout {
        feature_map |= feature::RAID0_LAYOUT;
    }
    let (log_feature, log_place, log_sectors) = log_of(scenario, area);
    feature_map |= log_feature;
    let mut set_name = [0; 32];
    set_name[..7].copy_from_slice(b"sim:sim");
    Superblock {
        version: scenario.version,
        feature_map,
        set_name,
        ctime: 1_700_000_000,
        level: scenario.level.to_md(),
        layout: if scenario.level == Level::Raid0 && !raid0_layout { 0 } else { scenario.layout },
        size_sectors: if striped { 0 } else { scenario.data_sectors[0] },
        chunk_sectors: scenario.chunk_sectors,
        raid_disks: scenario.members.into(),
        bitmap_offset_sectors: log_place,
        data_offset: scenario.data_offset,
        data_size: data_sectors + scenario.unused_sectors,
        super_offset,
        bblog_size_sectors: if scenario.bad_block_log { AREA_SECTORS as u16 } else { 0 },
        bblog_offset_sectors: if scenario.bad_block_log {
            2 * area + log_sectors * towards_data
        } else {
            0
        },
        utime: 1_700_000_000,
        resync_offset: if scenario.birth == Birth::Resync { 0 } else { MAX_SECTOR },
        roles: (0..MAX_DEV)
            .map(|device| match device {
                _ if device < in_sync => DevRole::Active(Role::at(device)),
                _ if spares.contains(&device) => DevRole::Spare,
                _ if device == JOURNAL_NUMBER as usize && scenario.has_journal() => {
                    DevRole::Journal
                }
                _ if in_sync < roles && device == spares.end => DevRole::Spare,
                _ => DevRole::Faulty,
            })
            .collect(),
        ..Superblock::blank()
    }
}

/// The feature of the log; where the superblock puts it, or else the bitmap, which lies in an area
/// of this offset; and how much of the place next to the superblock it takes.
fn log_of(scenario: &Scenario, area: i32) -> (u32, i32, i32) {
    match scenario.log {
        Log::PartialParity(sectors) => {
            let before = -8 - i16::try_from(sectors).expect("small");
            let offset = if scenario.version == Version::V1_0 { before } else { 8 };
            let feature = if sectors < 528 { feature::PPL } else { feature::MULTIPLE_PPLS };
            (feature, ppl::place_code(offset, sectors), sectors.into())
        }
        Log::Journal(_) => (feature::JOURNAL, 0, 0),
        Log::None if scenario.bitmap_chunk_bytes.is_some() => (0, area, 0),
        Log::None => (0, 0, 0),
    }
}

fn write_bitmap(scenario: &Scenario, superblock: &Superblock, disk: &mut Disk) {
    let Some(sector) = superblock.bitmap_sector() else { return };
    let Ok(geometry) = geometry(scenario) else { return };
    let sync_sectors = geometry.sync_sectors();
    let uuid = superblock.set_uuid;
    let chunk = scenario.bitmap_chunk_bytes;
    let Some(mut bitmap) = Bitmap::new(uuid, sync_sectors, chunk, AREA_SECTORS) else { return };
    if scenario.birth != Birth::Clean {
        bitmap.set_all();
    }
    for page in 0..bitmap.pages() {
        let bytes = bitmap.page_bytes(page, scenario.block_bytes) as usize;
        disk.put(sector + page * AREA_SECTORS, &bitmap.encode_page(page)[..bytes]);
    }
}

fn blank_bad_blocks(superblock: &Superblock, disk: &mut Disk) {
    if let Some(sector) = superblock.bblog_sector() {
        disk.put(sector, &[0xff; AREA_SECTORS as usize * 512]);
    }
}

/// Bytes that no other array or device has.
pub fn uuid(rng: &mut Rng) -> [u8; 16] {
    (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_le_bytes()
}
