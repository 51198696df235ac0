//! Assembly: who is in, whether the array starts, and what people are told.

mod logs;
mod refusals;
mod starts;

use braid_array::Role;
use braid_array::assemble::{Assembly, Candidate, Config, Options, Start, decide};
use braid_array::format::superblock::{MAX_SECTOR, Reshape};
use braid_array::format::{BadBlocks, Bitmap, DevRole, Superblock, Version};
use braid_array::refusal::{Invocation, Next};

const DATA_OFFSET: u64 = 2048;
const SIZE_SECTORS: u64 = 4096;
const UUID: [u8; 16] = [7; 16];

const RUN: Options = Options { run: true, force: false, read_only: false };
const FORCE: Options = Options { force: true, run: false, read_only: false };
const READ_ONLY: Options = Options { read_only: true, run: false, force: false };

/// A member of a clean array at event count 10, device number and role the same.
fn member(level: i32, layout: u32, raid_disks: u16, role: Role) -> Superblock {
    let mut set_name = [0; 32];
    set_name[..6].copy_from_slice(b"h:home");
    let mut roles = vec![DevRole::Spare; 128];
    for role in Role::all(raid_disks) {
        roles[role.index()] = DevRole::Active(role);
    }
    Superblock {
        version: Version::V1_2,
        feature_map: 0,
        set_uuid: UUID,
        set_name,
        ctime: 1,
        level,
        layout,
        size_sectors: if level > 0 { SIZE_SECTORS } else { 0 },
        chunk_sectors: if level == 1 { 0 } else { 128 },
        raid_disks: raid_disks.into(),
        bitmap_offset_sectors: 8,
        reshape: Reshape::default(),
        data_offset: DATA_OFFSET,
        data_size: SIZE_SECTORS,
        super_offset: 8,
        recovery_offset: 0,
        dev_number: role.0.into(),
        corrected_reads: 0,
        device_uuid: [u8::try_from(role.0).unwrap() + 1; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size_sectors: 8,
        bblog_offset_sectors: 16,
        utime: 2,
        events: 10,
        resync_offset: MAX_SECTOR,
        roles,
        ..Superblock::blank()
    }
}

/// All members of an array.
fn array(level: i32, layout: u32, raid_disks: u16) -> Vec<Superblock> {
    Role::all(raid_disks).map(|role| member(level, layout, raid_disks, role)).collect()
}

fn raid5() -> Vec<Superblock> {
    array(5, 2, 3)
}

/// The devices `a`, `b`, ... with these superblocks.
fn candidates(superblocks: &[Superblock]) -> Vec<Candidate> {
    let device = |index: usize| char::from(b'a' + u8::try_from(index).unwrap()).to_string();
    let candidate = |(index, superblock): (usize, &Superblock)| Candidate {
        device: device(index),
        device_sectors: DATA_OFFSET + SIZE_SECTORS,
        superblock: Ok(superblock.clone()),
        bad_blocks: Ok(BadBlocks::default()),
        bitmap: superblock.bitmap_sector().map(|_| Ok(bitmap(superblock.events, 3))),
        log: None,
    };
    superblocks.iter().enumerate().map(candidate).collect()
}

/// A current bitmap with one bit set, whose bits were last cleared at event count 5.
fn bitmap(events: u64, bit: u64) -> Bitmap {
    let mut bitmap = Bitmap::new(UUID, SIZE_SECTORS, Some(65536), 8).unwrap();
    bitmap.set(bit);
    bitmap.superblock.events = events;
    bitmap.superblock.events_cleared = 5;
    bitmap
}

fn assemble(superblocks: &[Superblock], options: Options) -> Assembly {
    decide(candidates(superblocks), options)
}

fn verdicts(assembly: &Assembly) -> Vec<String> {
    assembly.verdicts.iter().map(|(device, verdict)| format!("{device}: {verdict}")).collect()
}

/// The configuration, missing members, where resync starts, and whether the bitmap guides it.
fn ready(assembly: Assembly) -> (Config, u16, Option<u64>, bool) {
    match assembly.start {
        Start::Ready { config, degraded, resync_from, by_bitmap } => {
            (*config, degraded, resync_from, by_bitmap)
        }
        Start::Halfway(halfway) => panic!("{}", halfway.description()),
        Start::Refused { reason, .. } => panic!("refused: {reason}"),
    }
}

/// Reason, next step, and whether force would help.
fn refused(assembly: Assembly) -> (String, Next, bool) {
    match assembly.start {
        Start::Refused { reason, next, could_force } => (reason, next, could_force),
        Start::Ready { .. } | Start::Halfway(_) => panic!("started: {:?}", assembly.verdicts),
    }
}

/// To assemble these members, named by single letters, with these options.
fn with_members(options: Options, members: &str) -> Option<Box<Invocation>> {
    let devices = members.chars().map(String::from).collect();
    Some(Box::new(Invocation::Assemble { name: None, rename: false, options, devices }))
}

/// The other members see these device numbers leave, and go on to event count `events`.
fn lose(superblocks: &mut [Superblock], lost: &[usize], events: u64) {
    for (index, superblock) in superblocks.iter_mut().enumerate() {
        if !lost.contains(&index) {
            superblock.events = events;
            lost.iter().for_each(|number| superblock.roles[*number] = DevRole::Spare);
        }
    }
}
