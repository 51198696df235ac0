mod backups;
mod code;

use self::backups::header;
use super::*;
use crate::SECTOR_BYTES;
use crate::assemble::{Pieces, Standing, decide, decide_saving};
use crate::format::reshaped::Side;
use crate::format::superblock::{Reshape, time_code};
use crate::format::{BadBlocks, DevRole, Version};
use crate::geometry::Strip;
use std::collections::BTreeMap;

const DATA_OFFSET: u64 = 2048;
const SIZE_SECTORS: u64 = 1024;
const DEVICE_SECTORS: u64 = 8192;
const READ: Options = Options { read_only: true, run: false, force: false };
const FORCE: Options = Options { force: true, ..READ };

/// A raid5 of 3 members with chunks of 4 KiB that becomes one of 4.
fn growing() -> Superblock {
    Superblock {
        version: Version::V1_2,
        feature_map: feature::RESHAPE_ACTIVE | feature::NEW_OFFSET,
        set_uuid: [7; 16],
        level: 5,
        layout: 2,
        size_sectors: SIZE_SECTORS,
        chunk_sectors: 8,
        raid_disks: 4,
        reshape: Reshape {
            new_level: 5,
            position: 24 * 40,
            delta_disks: 1,
            new_layout: 2,
            new_chunk_sectors: 8,
            new_offset: -128,
        },
        data_offset: DATA_OFFSET,
        data_size: SIZE_SECTORS,
        super_offset: 8,
        events: 10,
        utime: 10_000,
        resync_offset: MAX_SECTOR,
        roles: (0..4).map(Role).map(DevRole::Active).collect(),
        ..Superblock::blank()
    }
}

/// A raid5 of 3 members that gets another layout, in place.
fn relaid(position: u64, backwards: bool) -> Superblock {
    let direction = if backwards { feature::RESHAPE_BACKWARDS } else { 0 };
    let old = growing();
    Superblock {
        feature_map: old.feature_map | direction,
        raid_disks: 3,
        reshape: Reshape {
            delta_disks: 0,
            new_layout: 1,
            position,
            new_offset: if backwards { 128 } else { -128 },
            ..old.reshape
        },
        data_size: SIZE_SECTORS + 256,
        roles: (0..3).map(Role).map(DevRole::Active).collect(),
        ..old
    }
}

fn candidates(array: &Superblock, without: &[u32]) -> Vec<Candidate> {
    let count = array.roles.len() as u32;
    let device = |number| Candidate {
        device: number_name(number),
        device_sectors: DEVICE_SECTORS,
        superblock: Ok(Superblock { dev_number: number, ..array.clone() }),
        bad_blocks: Ok(BadBlocks::default()),
        bitmap: None,
        log: None,
    };
    (0..count).filter(|number| !without.contains(number)).map(device).collect()
}

fn number_name(number: u32) -> String {
    format!("d{number}")
}

fn halfway(array: &Superblock, without: &[u32], options: Options) -> Halfway {
    match decide(candidates(array, without), options).start {
        Start::Halfway(halfway) => *halfway,
        other => panic!("{other:?}"),
    }
}

fn reason(array: &Superblock, options: Options) -> String {
    match decide(candidates(array, &[]), options).start {
        Start::Refused { reason, next, .. } => {
            assert!(!next.is_empty(), "{reason}");
            reason
        }
        other => panic!("{other:?}"),
    }
}

/// Devices in memory, to which the data of either map can be written.
struct Disks(BTreeMap<String, Vec<u8>>);

impl Disks {
    fn new(halfway: &Halfway) -> Self {
        let devices = halfway.old.iter().chain(&halfway.new).flat_map(|config| &config.members);
        Self(devices.map(|member| (member.device.clone(), noise(DEVICE_SECTORS, 1))).collect())
    }

    fn at(&mut self, device: &str, sector: u64, sectors: u64) -> &mut [u8] {
        let start = (sector * SECTOR_BYTES) as usize;
        &mut self.0.get_mut(device).unwrap()[start..start + (sectors * SECTOR_BYTES) as usize]
    }

    /// Writes one stripe of a map, with parity to the members that are in sync.
    fn write(&mut self, halfway: &Halfway, side: Side, stripe: u64, content: &[u8]) {
        let map = halfway.numbers.map(side);
        let config = halfway.config(side).unwrap();
        let chunk = u64::from(map.chunk_sectors());
        let bytes = (chunk * SECTOR_BYTES) as usize;
        let start = stripe as usize * bytes * map.data_disks() as usize;
        let mut parity = vec![0; bytes];
        let mut strips = Vec::new();
        for index in 0..map.data_disks() {
            let from = start + index as usize * bytes;
            let strip = &content[from..from + bytes];
            braid_parity::xor_into(&mut parity, &[strip]);
            strips.push((map.data_role(stripe, index), strip.to_vec()));
        }
        let (p, q) = map.parity_roles(stripe);
        if let Some(q) = q {
            let coefs: Vec<u8> =
                (0..map.data_disks()).map(|index| map.q_coef(stripe, index)).collect();
            let data: Vec<&[u8]> = strips.iter().map(|(_, strip)| strip.as_slice()).collect();
            let mut sum = vec![0; bytes];
            braid_parity::combine(&mut [&mut sum], &coefs, &data, false);
            strips.push((q, sum));
        }
        strips.push((p, parity));
        for (role, strip) in strips {
            let holds = |standing| standing == Standing::InSync { role };
            let member = config.members.iter().find(|member| holds(member.standing));
            let Some(member) = member else { continue };
            let place = Strip { role, sector: stripe * chunk };
            let sector = member.superblock.data_offset + place.sector;
            self.at(&member.device, sector, chunk).copy_from_slice(&strip);
        }
    }

    fn reader(&mut self) -> impl FnMut(&str, u64, usize) -> Option<Vec<u8>> {
        |device, sector, bytes| Some(self.at(device, sector, bytes as u64 / SECTOR_BYTES).to_vec())
    }

    fn look(&mut self, halfway: &mut Halfway) -> Result<Option<String>, Refusal> {
        halfway.look(&mut self.reader())
    }
}

/// Bytes that are all different enough.
fn noise(sectors: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take((sectors * SECTOR_BYTES) as usize).collect()
}

/// An array in which a layout was changed up to `moved` units, while superblocks say `told`.
fn moved(
    told: u64,
    moved: u64,
    backwards: bool,
    content: &[u8],
    without: &[u32],
) -> (Halfway, Disks) {
    let unit = 16;
    let all = SIZE_SECTORS / 8;
    let position = if backwards { all - told } else { told } * unit;
    let whole = halfway(&relaid(position, backwards), &[], READ);
    let mut disks = Disks::new(&whole);
    for stripe in 0..all {
        disks.write(&whole, Side::Old, stripe, content);
    }
    for step in 0..moved {
        let stripe = if backwards { all - 1 - step } else { step };
        disks.write(&whole, Side::New, stripe, content);
    }
    (halfway(&relaid(position, backwards), without, READ), disks)
}

#[test]
fn each_map_has_its_members_and_offsets() {
    let halfway = halfway(&growing(), &[], READ);
    assert_eq!(halfway.change(), "from 3 to 4 members");
    assert_eq!(halfway.size_sectors(), 2 * SIZE_SECTORS);
    assert_eq!(halfway.percent(), 960 * 100 / 2048);
    let in_sync = |side| {
        let members = &halfway.config(side).unwrap().members;
        let in_sync = members.iter().filter(|m| matches!(m.standing, Standing::InSync { .. }));
        in_sync.map(|m| (m.device.clone(), m.superblock.data_offset)).collect::<Vec<_>>()
    };
    let old: Vec<_> = (0..3).map(|number| (number_name(number), DATA_OFFSET)).collect();
    let new: Vec<_> = (0..4).map(|number| (number_name(number), DATA_OFFSET - 128)).collect();
    assert_eq!((in_sync(Side::Old), in_sync(Side::New)), (old, new));
}

#[test]
fn pieces_are_of_the_new_map_and_then_of_the_old_one() {
    let pieces = halfway(&growing(), &[], READ).pieces().unwrap();
    let places = |pieces: &Pieces| {
        let members = pieces.whole.members.iter();
        members.map(|m| (m.superblock.data_offset, m.superblock.data_size)).collect::<Vec<_>>()
    };
    assert_eq!(places(&pieces), [(0, 960), (960, 2048 - 960)]);
    let disks: Vec<u32> = pieces.arrays.iter().map(|array| array.superblock.raid_disks).collect();
    assert_eq!(disks, [4, 3]);
    let shrinking = Superblock {
        raid_disks: 3,
        reshape: Reshape { delta_disks: -1, new_offset: 128, ..growing().reshape },
        data_size: SIZE_SECTORS + 256,
        ..growing()
    };
    let pieces = halfway(&shrinking, &[], READ).pieces().unwrap();
    let disks: Vec<u32> = pieces.arrays.iter().map(|array| array.superblock.raid_disks).collect();
    assert_eq!(disks, [4, 3], "backwards, the new map holds what is behind the position");
    assert_eq!(places(&pieces), [(0, 960), (960, 2048 - 960)]);
}

#[test]
fn what_is_written_waits_until_the_reshape_is_over() {
    let other = relaid(960, false);
    let told =
        "the array stopped in a reshape from layout left-symmetric to right-asymmetric at 46%";
    let reason = reason(&other, Options::default());
    assert!(reason.starts_with(told), "{reason}");
}

/// md's position may be old where the new map lies upon the old one; what Braid writes is not, and
/// tells so by the microseconds of its time.
#[test]
fn one_to_more_members_goes_on_where_the_position_is_sure() {
    let at = |position, utime| Superblock {
        utime,
        reshape: Reshape { position, ..growing().reshape },
        ..growing()
    };
    let goes_on = |superblock: &Superblock| {
        let start = decide(candidates(superblock, &[]), Options::default()).start;
        let Start::Ready { config, .. } = start else { return None };
        Some((config.superblock.raid_disks, config.superblock.has(feature::RESHAPE_ACTIVE)))
    };
    let of_braid = time_code(10_000, 1);
    assert_eq!(goes_on(&at(960, 10_000)), Some((4, true)));
    assert_eq!(goes_on(&at(48, 10_000)), None);
    assert_eq!(goes_on(&at(0, 10_000)), None);
    assert_eq!(goes_on(&at(48, of_braid)), Some((4, true)));
    // Nothing has moved: it was not begun.
    assert_eq!(goes_on(&at(0, of_braid)), Some((3, false)));
    // Rows would be written over others that are still needed.
    let mut near = at(960, of_braid);
    near.reshape.new_offset = -4;
    assert_eq!(goes_on(&near), None);
}

#[test]
fn a_member_that_is_being_added_has_what_was_moved() {
    let six = Superblock {
        level: 6,
        layout: 18,
        feature_map: growing().feature_map,
        reshape: Reshape { new_level: 6, delta_disks: 0, ..growing().reshape },
        ..growing()
    };
    let mut all = candidates(&six, &[]);
    let last = all[3].superblock.as_mut().unwrap();
    last.feature_map |= feature::RECOVERY_OFFSET;
    last.recovery_offset = 24 * 40 / 2;
    let Start::Halfway(halfway) = decide(all.clone(), READ).start else { panic!() };
    let standing = |side| {
        let members = &halfway.config(side).unwrap().members;
        members.iter().find(|member| member.device == "d3").unwrap().standing
    };
    assert!(matches!(standing(Side::Old), Standing::Rebuilding { offset: 0, .. }));
    assert_eq!(standing(Side::New), Standing::InSync { role: Role(3) });
    // After a power cut parity may be wrong, but nothing has to be computed from it.
    for one in &mut all {
        one.superblock.as_mut().unwrap().resync_offset = 0;
    }
    assert!(matches!(decide(all.clone(), READ).start, Start::Halfway(_)));
    all.remove(0);
    assert!(matches!(decide(all, READ).start, Start::Refused { could_force: true, .. }));
}

#[test]
fn what_md_would_not_go_on_with_is_refused_by_name() {
    let with = |change: &dyn Fn(&mut Superblock)| {
        let mut array = growing();
        change(&mut array);
        reason(&array, READ)
    };
    type Change<'a> = &'a dyn Fn(&mut Superblock);
    let cases: [(&str, Change<'_>); 6] = [
        ("to level 4", &|sb| sb.reshape.new_level = 4),
        ("in the middle of a stripe", &|sb| sb.reshape.position = 100),
        ("that has no position", &|sb| sb.reshape.position = MAX_SECTOR),
        ("of a level that has none", &|sb| (sb.level, sb.reshape.new_level) = (1, 1)),
        ("whose new map is none", &|sb| sb.reshape.new_chunk_sectors = 7),
        ("with a log", &|sb| sb.feature_map |= feature::JOURNAL),
    ];
    for (expected, change) in cases {
        let reason = with(change);
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
    let mut two = candidates(&growing(), &[]);
    two[2].superblock.as_mut().unwrap().reshape.position -= 24;
    let Start::Refused { reason, .. } = decide(two.clone(), READ).start else { panic!() };
    assert!(reason.contains("the superblocks of d0 and d2 differ"), "{reason}");
    // One that missed the update has the position of before.
    two[2].superblock.as_mut().unwrap().events -= 1;
    assert!(matches!(decide(two, READ).start, Start::Halfway(_)));
}

#[test]
fn a_stale_position_is_noticed_in_both_directions() {
    let content = noise(2 * SIZE_SECTORS, 3);
    for backwards in [false, true] {
        for (told, done) in [(0, 0), (0, 20), (8, 8), (8, 30), (40, 100), (64, 128)] {
            let (mut halfway, mut disks) = moved(told, done, backwards, &content, &[]);
            let said = disks.look(&mut halfway).unwrap();
            let front = if backwards { 128 - done } else { done } * 16;
            assert_eq!(halfway.front, front, "{told} {done} {backwards}");
            assert_eq!(said.is_some(), told != done, "{said:?}");
        }
    }
}

#[test]
fn zeroes_on_the_way_end_no_search() {
    let mut content = noise(2 * SIZE_SECTORS, 3);
    let zeroes = 16 * 512 * 10..16 * 512 * 40;
    content[zeroes].fill(0);
    let (mut halfway, mut disks) = moved(8, 70, false, &content, &[]);
    disks.look(&mut halfway).unwrap();
    assert_eq!(halfway.front, 70 * 16);
}

#[test]
fn a_member_less_leads_to_no_other_front() {
    let content = noise(2 * SIZE_SECTORS, 3);
    for without in 0..3 {
        let (mut halfway, mut disks) = moved(8, 30, false, &content, &[without]);
        match disks.look(&mut halfway) {
            Ok(_) => assert_eq!(halfway.front, 30 * 16, "without {without}"),
            Err(refusal) => assert!(refusal.reason.contains("do not tell"), "{refusal}"),
        }
    }
}

#[test]
fn what_programs_wrote_to_moved_stripes_does_not_hide_the_front() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let (mut halfway, mut disks) = moved(30, 32, false, &content, &[]);
    let later = noise(2 * SIZE_SECTORS, 4);
    disks.write(&halfway, Side::New, 29, &later);
    disks.look(&mut halfway).unwrap();
    assert_eq!(halfway.front, 32 * 16);
}

#[test]
fn what_nothing_tells_is_not_believed() {
    // One pattern all over what was moved last, and another one behind it.
    let mut content = noise(2 * SIZE_SECTORS, 3);
    content[16 * 512 * 10..16 * 512 * 30].fill(9);
    content[16 * 512 * 45..16 * 512 * 90].fill(0);
    let (mut halfway, mut disks) = moved(8, 30, false, &content, &[]);
    // What comes after it is not what the old map gives.
    let refusal = disks.look(&mut halfway).unwrap_err();
    assert!(refusal.reason.contains("is older than what has been moved"), "{refusal}");
    halfway.force = true;
    assert!(disks.look(&mut halfway).unwrap().is_some());
    assert_eq!(halfway.front, 8 * 16);
    // Who knows it says so.
    halfway.force = false;
    assert!(halfway.stop_at(30 * 16 + 8).is_err() && halfway.stop_at(u64::MAX).is_err());
    halfway.stop_at(30 * 16).unwrap();
    assert_eq!(disks.look(&mut halfway), Ok(None));
    assert_eq!(halfway.front, 30 * 16);
}

/// Any front there reads right.
#[test]
fn a_front_that_lies_in_zeroes_is_found_where_it_can_lie_nowhere_else() {
    for backwards in [false, true] {
        let mut content = noise(2 * SIZE_SECTORS, 3);
        let zeroes = if backwards { 68..118 } else { 10..60 };
        content[16 * 512 * zeroes.start..16 * 512 * zeroes.end].fill(0);
        for done in [28, 40, 60] {
            let (mut halfway, mut disks) = moved(8, done, backwards, &content, &[]);
            let said = disks.look(&mut halfway).unwrap();
            assert!(said.is_some_and(|said| said.contains("md would go on from the wrong place")));
            let end = if backwards { zeroes.start } else { zeroes.end } as u64;
            assert_eq!(halfway.front, end * 16, "{done} {backwards}");
        }
    }
}

#[test]
fn no_fields_lead_astray() {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let numbers = [0, 1, 2, 3, 7, 8, 16, 24, 128, 960, 1 << 31, u64::from(u32::MAX), u64::MAX];
    let mut readable = 0;
    for _ in 0..4000 {
        let mut array = if random(2) == 0 { growing() } else { relaid(640, random(2) == 0) };
        for _ in 0..=random(3) {
            let number = numbers[random(numbers.len() as u64) as usize];
            match random(11) {
                0 => array.reshape.position = number,
                1 => array.reshape.delta_disks = number as i32,
                2 => array.reshape.new_layout = number as u32,
                3 => array.reshape.new_chunk_sectors = number as u32,
                4 => array.reshape.new_offset = number as i32,
                5 => array.raid_disks = number as u32,
                6 => array.feature_map ^= 1 << random(13),
                7 => array.recovery_offset = number,
                8 => {
                    (array.level, array.reshape.new_level) = ([4, 5, 6, 10][random(4) as usize], 5)
                }
                9 => array.data_offset = number.min(MAX_SECTOR - array.data_size),
                _ => array.layout = number as u32,
            }
        }
        let options = if random(2) == 0 { READ } else { FORCE };
        if let Start::Halfway(mut halfway) = decide(candidates(&array, &[]), options).start {
            let mut read = |_: &str, sector: u64, bytes: usize| {
                assert!(sector + bytes as u64 / SECTOR_BYTES <= DEVICE_SECTORS, "beyond the end");
                Some(vec![0; bytes])
            };
            let _ = halfway.look(&mut read);
            let _ = halfway.add_backups_on_members(&mut read);
            let header = header(7, 10_000, [8, random(3000), random(3000)], [320, 640, 320]);
            let _ = halfway.add_backup("b", 4000, &header);
            let _ = halfway.weigh(&mut read);
            if let Ok(pieces) = halfway.pieces() {
                let sizes = pieces.whole.members.iter().map(|m| m.superblock.data_size);
                assert_eq!(sizes.sum::<u64>(), halfway.size_sectors());
                readable += 1;
            }
        }
    }
    assert!(readable > 100, "only {readable} of them can be read");
}
