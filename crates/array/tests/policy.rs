//! The consistency policy of a stopped array, changed: whichever of the writes were done, the array
//! assembles.

use braid_array::assemble::{Candidate, Options, Start, decide};
use braid_array::create::{NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::ppl::{HEADER_BYTES, PplArea, PplEntry, PplHeader};
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::level::{Layout, Level};
use braid_array::policy::{Policy, PolicyChange};

const SECTOR: usize = 512;
const LATER: u64 = 99;

type Disk = Vec<u8>;

fn put(disk: &mut Disk, sector: u64, bytes: &[u8]) {
    let at = sector as usize * SECTOR;
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

struct Made {
    level: Level,
    bitmap: NewBitmap,
    log: NewLog,
    mib: u64,
    chunk_sectors: u32,
}

/// The disks of a clean array of three members and a spare.
fn made(array: &Made) -> Vec<Disk> {
    let Made { level, bitmap, log, mib, chunk_sectors } = *array;
    let new = NewArray {
        name: "h:x".into(),
        set_uuid: [7; 16],
        ctime: 1,
        level,
        layout: Layout::default_for(level),
        chunk_sectors,
        size_sectors: None,
        bitmap,
        log,
        assume_clean: true,
    };
    let device = |number: u8| NewDevice { device_sectors: mib * 2048, device_uuid: [number; 16] };
    let roles: Vec<_> = (1..=3).map(|number| Some(device(number))).collect();
    let plan = new.plan(&roles, &[device(4)]).unwrap();
    let disk = |index: usize| {
        let mut disk = vec![0; mib as usize * 2048 * SECTOR];
        for (sector, bytes) in plan.writes(index) {
            put(&mut disk, sector, &bytes);
        }
        disk
    };
    (0..4).map(disk).collect()
}

fn raid5(bitmap: NewBitmap, log: NewLog, mib: u64) -> Vec<Disk> {
    made(&Made { level: Level::Raid5, bitmap, log, mib, chunk_sectors: 128 })
}

fn candidates(disks: &[Disk]) -> Vec<Candidate> {
    let candidate = |(index, disk): (usize, &Disk)| {
        let read = |sector: u64, bytes: u32| {
            let at = sector as usize * SECTOR;
            let found = disk.get(at..at + bytes as usize).ok_or("beyond the end")?;
            Ok(found.to_vec())
        };
        let device = char::from(b'a' + index as u8).to_string();
        Candidate::read(device, (disk.len() / SECTOR) as u64, read).with_log(read)
    };
    disks.iter().enumerate().map(candidate).collect()
}

fn superblock(disks: &[Disk], index: usize) -> Superblock {
    candidates(disks)[index].superblock.clone().unwrap()
}

/// Changes what is stored of a member.
fn rewrite(disks: &mut [Disk], index: usize, change: impl Fn(&mut Superblock)) {
    let mut superblock = superblock(disks, index);
    change(&mut superblock);
    put(&mut disks[index], superblock.super_offset, &superblock.encode());
}

fn change(disks: &[Disk], policy: Policy) -> PolicyChange {
    PolicyChange::plan(&candidates(disks), policy, LATER).unwrap().expect("something to do")
}

fn refused(disks: &[Disk], policy: Policy) -> String {
    let refusal = PolicyChange::plan(&candidates(disks), policy, LATER).unwrap_err();
    assert!(!refusal.next.is_empty(), "{refusal}");
    refusal.reason
}

/// The policy of an array that must assemble, complete and without anything to be done.
fn assembled(disks: &[Disk], what: &str) -> Policy {
    let assembly = decide(candidates(disks), Options::default());
    let Start::Ready { config, degraded, resync_from, .. } = assembly.start else {
        panic!("{what}: {:?}", assembly.start)
    };
    assert_eq!((degraded, resync_from), (0, None), "{what}");
    assert!(assembly.verdicts.iter().all(|(_, verdict)| verdict.attached()), "{what}");
    assert!(!config.log.has_to_replay(), "{what}");
    let feature = config.superblock.feature_map & (feature::BITMAP_OFFSET | feature::ANY_PPL);
    for member in &config.members {
        let logged = PplArea::of(&member.superblock).unwrap().is_some();
        assert_eq!(logged, feature & feature::ANY_PPL != 0, "{what}: {}", member.device);
        assert_eq!(
            member.superblock.has(feature::BITMAP_OFFSET),
            feature == feature::BITMAP_OFFSET,
            "{what}: {}",
            member.device
        );
    }
    assert_eq!(config.bitmap.is_some(), feature == feature::BITMAP_OFFSET, "{what}");
    if let Some(bitmap) = &config.bitmap {
        assert!(!(0..bitmap.bits()).any(|bit| bitmap.get(bit)), "{what}: a bit is set");
    }
    match feature {
        0 => Policy::Resync,
        feature::BITMAP_OFFSET => Policy::Bitmap,
        _ => Policy::PartialParity,
    }
}

/// Does a change, and looks at the array after each write, whichever role comes first. Returns the
/// disks as they are in the end.
fn each_prefix(disks: &[Disk], from: Policy, to: Policy) -> Vec<Disk> {
    assert_eq!(assembled(disks, "before"), from);
    let change = change(disks, to);
    let mut last = Vec::new();
    for rotated in 0..3 {
        let mut disks = disks.to_vec();
        for (index, sector, bytes) in change.areas() {
            put(&mut disks[index], sector, bytes);
            assert_eq!(assembled(&disks, "areas"), from);
        }
        let mut superblocks: Vec<_> = change.superblocks().collect();
        // A bitmap is looked for on members in sync, so one of them has to tell of it first.
        assert_eq!(superblocks[3].0, 3, "the spare is not the last");
        superblocks[..3].rotate_left(rotated);
        for (done, (index, sector, bytes)) in superblocks.into_iter().enumerate() {
            put(&mut disks[index], sector, bytes);
            let what = format!("{done} superblocks, from {rotated} on");
            assert_eq!(assembled(&disks, &what), to, "{what}");
        }
        last = disks;
    }
    assert_eq!(PolicyChange::plan(&candidates(&last), to, LATER), Ok(None));
    last
}

#[test]
fn any_prefix_of_the_writes_leaves_an_array_that_assembles() {
    let bitmap = NewBitmap::Internal { chunk_bytes: None };
    for mib in [4, 16] {
        let plain = raid5(NewBitmap::None, NewLog::None, mib);
        let logged = each_prefix(&plain, Policy::Resync, Policy::PartialParity);
        let back = each_prefix(&logged, Policy::PartialParity, Policy::Resync);
        let marked = each_prefix(&back, Policy::Resync, Policy::Bitmap);
        each_prefix(&marked, Policy::Bitmap, Policy::Resync);
        let made = raid5(NewBitmap::None, NewLog::PartialParity, mib);
        each_prefix(&made, Policy::PartialParity, Policy::Resync);
        let made = raid5(bitmap, NewLog::None, mib);
        each_prefix(&made, Policy::Bitmap, Policy::Resync);
    }
    let mirror = Made {
        level: Level::Raid1,
        bitmap: NewBitmap::None,
        log: NewLog::None,
        mib: 8,
        chunk_sectors: 0,
    };
    each_prefix(&made(&mirror), Policy::Resync, Policy::Bitmap);
}

#[test]
fn a_log_lies_in_unused_space_at_the_end_of_members_as_well() {
    let mut disks = raid5(NewBitmap::None, NewLog::None, 16);
    for (index, disk) in disks.iter_mut().enumerate() {
        let old = superblock(std::slice::from_ref(disk), 0);
        put(disk, old.super_offset, &[0; 4096]);
        let sectors = (disk.len() / SECTOR) as u64;
        let super_offset = Version::V1_0.location(sectors).unwrap();
        // Behind the data there are 512 KiB.
        let new = Superblock {
            version: Version::V1_0,
            super_offset,
            data_offset: 0,
            data_size: super_offset - 1024,
            bblog_offset_sectors: -8,
            ..old
        };
        put(disk, super_offset, &new.encode());
        assert!(new.data_size >= new.size_sectors, "member {index}");
    }
    let logged = each_prefix(&disks, Policy::Resync, Policy::PartialParity);
    let new = superblock(&logged, 0);
    let area = PplArea::of(&new).unwrap().unwrap();
    assert_eq!(area.sectors, 264);
    assert!(area.sector >= new.data_size && area.sector + 264 <= new.super_offset - 8);
    each_prefix(&logged, Policy::PartialParity, Policy::Resync);
}

#[test]
fn a_log_has_a_mebibyte_where_that_fits_and_nothing_old_counts_in_it() {
    let sectors = |chunk_sectors: u32| {
        let disks = made(&Made {
            level: Level::Raid5,
            bitmap: NewBitmap::None,
            log: NewLog::None,
            mib: 16,
            chunk_sectors,
        });
        let mut disks = each_prefix(&disks, Policy::Resync, Policy::PartialParity);
        let of = superblock(&disks, 0);
        let area = PplArea::of(&of).unwrap().unwrap();
        // A unit behind the first place, as an earlier log would have left it.
        let entry =
            PplEntry { data_sector: 0, pp_bytes: 0, data_bytes: 8192, ..PplEntry::default() };
        let unit = PplHeader { generation: 9, entries: vec![entry] };
        each_prefix(&disks, Policy::PartialParity, Policy::Resync);
        for disk in &mut disks {
            put(disk, area.sector + u64::from(HEADER_BYTES) / 512, &unit.encode(of.set_uuid));
        }
        let resync = change(&disks, Policy::Resync);
        for (index, sector, bytes) in resync.superblocks() {
            put(&mut disks[index], sector, bytes);
        }
        each_prefix(&disks, Policy::Resync, Policy::PartialParity);
        assert!(of.has(if area.is_ring { feature::MULTIPLE_PPLS } else { feature::PPL }));
        area.sectors
    };
    assert_eq!(sectors(128), 264);
    // Where chunks are large, more space is left before the data.
    assert_eq!(sectors(2048), 2048);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason_and_a_next_step() {
    let plain = || raid5(NewBitmap::None, NewLog::None, 16);
    let mut dirty = plain();
    for index in 0..4 {
        rewrite(&mut dirty, index, |sb| sb.resync_offset = 0);
    }
    assert!(refused(&dirty, Policy::PartialParity).contains("not stopped well"));

    let said = refused(&plain()[1..], Policy::PartialParity);
    assert!(said.contains("cannot be used"), "{said}");

    let mut lagging = plain();
    rewrite(&mut lagging, 0, |sb| sb.events += 1);
    assert!(refused(&lagging, Policy::Bitmap).contains("miss the last update"));

    let marked = raid5(NewBitmap::Internal { chunk_bytes: None }, NewLog::None, 16);
    assert!(refused(&marked, Policy::PartialParity).contains("cannot have both"));
    let logged = raid5(NewBitmap::None, NewLog::PartialParity, 16);
    assert!(refused(&logged, Policy::Bitmap).contains("cannot have both"));

    let raid4 = made(&Made {
        level: Level::Raid4,
        bitmap: NewBitmap::None,
        log: NewLog::None,
        mib: 16,
        chunk_sectors: 128,
    });
    assert!(refused(&raid4, Policy::PartialParity).contains("a raid4 cannot have"));
    let mut array = plain();
    for index in 0..4 {
        rewrite(&mut array, index, |sb| {
            sb.data_offset = 32;
            sb.data_size = 16 * 2048 - 32;
        });
    }
    let said = refused(&array, Policy::PartialParity);
    assert!(said.contains("has not the 132 KiB"), "{said}");

    let mut foreign = plain();
    foreign.push(vec![0; 1 << 20]);
    assert!(refused(&foreign, Policy::Bitmap).starts_with("e: "));

    let mut journaled = plain();
    for index in 0..3 {
        rewrite(&mut journaled, index, |sb| {
            sb.feature_map |= feature::JOURNAL;
            sb.roles[3] = DevRole::Journal;
        });
    }
    let said = refused(&journaled, Policy::Resync);
    assert!(said.contains("journal"), "{said}");
}
