//! Arrays of every level whose metadata was tampered with, checksums made right again: assembled,
//! and if that goes well, started.
//!
//! The first byte chooses the level, the second the options; then come patches: a device, an
//! offset in its first 32 KiB (two bytes), a length, and so many bytes.

use std::collections::BTreeSet;

use braid_array::array::Scratch;
use braid_array::assemble::{Candidate, Config, Halfway, Options, Standing, Start, decide};
use braid_array::create::{NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::superblock::{Superblock, Version};
use braid_array::level::{Layout, Level};
use braid_array::{Action, Array, Instant, IoOp, Machine};

use crate::mutate::{Random, mutate};
use crate::targets::mend_superblock_1;

const DEVICES: usize = 4;
const DEVICE_SECTORS: u64 = 8192;
const METADATA_BYTES: usize = 32 << 10;
const SUPERBLOCK: std::ops::Range<usize> = 4096..8192;

/// Actions of a started machine that are looked at.
const ACTIONS: usize = 200;

/// Fields of a superblock: where they lie in it, and their size.
const FIELDS: [(u16, u8); 22] = [
    (8, 4),
    (72, 4),
    (76, 4),
    (80, 8),
    (88, 4),
    (92, 4),
    (96, 4),
    (128, 8),
    (136, 8),
    (144, 8),
    (152, 8),
    (160, 4),
    (184, 1),
    (185, 1),
    (186, 2),
    (188, 4),
    (200, 8),
    (208, 8),
    (220, 4),
    (256, 2),
    (258, 2),
    (260, 2),
];

/// A few fields of the superblocks replaced, or a few bytes of the bitmap's.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.next() as u8, random.next() as u8];
    for _ in 0..random.below(5) {
        let (at, length) = match random.below(4) {
            0 => (8192 + random.below(80) as u16, 4),
            _ => {
                let (at, length) = FIELDS[random.below(FIELDS.len())];
                (4096 + at, length)
            }
        };
        let mut field = [0; 8].to_vec();
        mutate(random, &mut field, 8);
        field.resize(length.into(), 0);
        let patch =
            |device: usize| [&[device as u8][..], &at.to_le_bytes(), &[length], &field].concat();
        // One device, or the same on all of them.
        let one = random.below(DEVICES);
        let all = random.below(2) == 0;
        bytes.extend((0..DEVICES).filter(|device| all || *device == one).flat_map(patch));
    }
    bytes
}

pub(crate) fn run(data: &[u8]) {
    let [level, options, patches @ ..] = data else { return };
    let level = Level::ALL[usize::from(*level) % Level::ALL.len()];
    let mut devices = devices(level);
    patch(&mut devices, patches);
    let candidates: Vec<Candidate> = devices.iter().enumerate().map(candidate).collect();
    let [force, run, read_only] = [1, 2, 4].map(|bit| options & bit != 0);
    let assembly = decide(candidates, Options { force, run, read_only });
    assert_eq!(assembly.verdicts.len(), DEVICES);
    let told = assembly.verdicts.iter().all(|(_, verdict)| !verdict.to_string().contains('\n'));
    assert!(told, "a verdict is one line: {:?}", assembly.verdicts);
    match assembly.start {
        Start::Refused { reason, next, .. } => assert!(!reason.is_empty() && !next.is_empty()),
        Start::Halfway(halfway) => read_pieces(*halfway),
        Start::Ready { config, degraded, .. } => {
            check(&config, degraded);
            start(*config);
        }
    }
}

/// The first bytes of the members of a good array.
fn devices(level: Level) -> Vec<Vec<u8>> {
    let redundant = !matches!(level, Level::Linear | Level::Raid0);
    let device = |index| NewDevice { device_sectors: DEVICE_SECTORS, device_uuid: [index; 16] };
    let bitmap = NewBitmap::Internal { chunk_bytes: Some(4096) };
    let array = NewArray {
        name: "fuzz:fuzz".to_owned(),
        set_uuid: [0x55; 16],
        ctime: 1,
        level,
        layout: Layout::default_for(level),
        chunk_sectors: if level == Level::Raid1 { 0 } else { 8 },
        version: Version::V1_2,
        data_offset: None,
        size_sectors: None,
        bitmap: if redundant { bitmap } else { NewBitmap::None },
        log: NewLog::None,
        assume_clean: true,
        integrity: false,
    };
    let roles: Vec<_> = (1..=DEVICES as u8).map(|index| Some(device(index))).collect();
    let blueprint = array.plan(&roles, &[]).expect("a good array");
    let image = |index| {
        let mut image = vec![0; METADATA_BYTES];
        for (sector, bytes) in blueprint.writes(index) {
            let at = usize::try_from(sector).expect("small") * 512;
            image[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        image
    };
    (0..DEVICES).map(image).collect()
}

/// The two maps of an array in the middle of a reshape, put together.
fn read_pieces(mut halfway: Halfway) {
    let told = halfway.look(&mut |_, _, bytes| Some(vec![0; bytes]));
    if let (Ok(_), Ok(pieces)) = (told, halfway.pieces()) {
        assert_eq!(pieces.whole.members.len(), pieces.arrays.len());
        pieces.arrays.into_iter().for_each(start);
    }
}

fn patch(devices: &mut [Vec<u8>], mut patches: &[u8]) {
    while let [device, low, high, length, rest @ ..] = patches {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % METADATA_BYTES;
        let length = rest.len().min((*length).into()).min(METADATA_BYTES - at);
        let (bytes, rest) = rest.split_at(length);
        devices[usize::from(*device) % DEVICES][at..at + length].copy_from_slice(bytes);
        patches = rest;
    }
    for device in devices {
        mend_superblock_1(&mut device[SUPERBLOCK]);
    }
}

fn candidate((index, image): (usize, &Vec<u8>)) -> Candidate {
    Candidate::read(index.to_string(), DEVICE_SECTORS, |sector, bytes| {
        assert!(sector + u64::from(bytes).div_ceil(512) <= DEVICE_SECTORS, "read beyond the end");
        let at = usize::try_from(sector).expect("small") * 512;
        let known = image.get(at..).unwrap_or_default();
        let mut out = vec![0; bytes as usize];
        let length = known.len().min(out.len());
        out[..length].copy_from_slice(&known[..length]);
        Ok(out)
    })
}

/// What a machine may take for granted.
fn check(config: &Config, degraded: u16) {
    let array = &config.superblock;
    let mut numbers = BTreeSet::new();
    let mut in_sync = BTreeSet::new();
    for member in &config.members {
        let superblock = &member.superblock;
        assert!(numbers.insert(superblock.dev_number), "device numbers are unique");
        assert_eq!(superblock.version, array.version);
        // Stripes without redundancy use all that members have.
        let told = if array.level == 0 { superblock } else { array };
        assert_eq!(superblock.size_sectors, told.size_sectors);
        assert!(array.size_sectors.max(superblock.size_sectors) <= superblock.data_size);
        assert!(superblock.data_offset + superblock.data_size <= member.device_sectors);
        match member.standing {
            Standing::InSync { role } => {
                assert!(u32::from(role.0) < array.raid_disks);
                assert!(in_sync.insert(role), "a role has one holder");
            }
            Standing::Rebuilding { role, offset, .. } => {
                assert!(u32::from(role.0) < array.raid_disks && offset <= array.size_sectors);
            }
            Standing::Spare | Standing::Journal => {}
            Standing::Faulty { .. } => unreachable!("only a hand-over tells of that"),
        }
    }
    assert_eq!(in_sync.len() + usize::from(degraded), array.raid_disks as usize);
    if array.version == Version::V0_90 {
        assert!(config.read_only);
    }
}

/// A machine that starts stays on its devices, whatever the superblocks say, and writes nothing
/// over a superblock but a superblock.
fn start(config: Config) {
    let members: Vec<(u64, Superblock)> = config
        .members
        .iter()
        .map(|member| (member.device_sectors, member.superblock.clone()))
        .collect();
    let scratch = Scratch { offset: 0, bytes: Array::scratch_bytes(&config) };
    let read_only = config.read_only;
    let Ok(mut array) = Array::new(Instant(0), config, scratch) else { return };
    for _ in 0..ACTIONS {
        let Some(action) = array.poll() else { break };
        let Action::Io { member, op, .. } = action else { continue };
        let (sector, sectors, writes) = match op {
            IoOp::Read { sector, buf } => (sector, u64::from(buf.len) / 512, false),
            IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len) / 512, true),
            IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors, true),
            IoOp::Discard { sector, sectors } => (sector, sectors, true),
            IoOp::Flush => continue,
        };
        let (device_sectors, superblock) = &members[usize::from(member.0)];
        let end = sector.checked_add(sectors).expect("within 64 bits");
        assert!(
            end <= *device_sectors,
            "I/O at {sector} of {device_sectors}: {op:?} {superblock:?}"
        );
        assert!(!(read_only && writes), "a write to a member of a read-only array");
        let own = sector == superblock.super_offset;
        let hits = sector <= superblock.super_offset && superblock.super_offset < end;
        assert!(!writes || own || !hits, "a write over the superblock");
    }
}
