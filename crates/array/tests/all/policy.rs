//! The consistency policy of a stopped array, changed: whichever of the writes were done, the array
//! assembles.

use braid_array::assemble::{Candidate, Options, Start, decide};
use braid_array::create::{NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::journal::{MetaBlock, Payload, page_checksum};
use braid_array::format::ppl::{HEADER_BYTES, PplArea, PplEntry, PplHeader, is_suspended};
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::level::{Layout, Level};
use braid_array::policy::{NewJournal, Policy, PolicyChange, Write};

const SECTOR: usize = 512;
const LATER: u64 = 99;

const BITMAP: Policy = Policy::Bitmap { chunk_bytes: None };
const JOURNAL: Policy = Policy::Journal(Some(NewJournal {
    device: NewDevice { device_sectors: 16 * 2048, device_uuid: [5; 16] },
    first_seq: 77,
}));

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
        version: Version::V1_2,
        data_offset: None,
        size_sectors: None,
        bitmap,
        log,
        assume_clean: true,
        integrity: false,
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

/// Of the devices on which something lies.
fn present(disks: &[Disk]) -> Vec<Candidate> {
    let mut all = candidates(disks);
    all.retain(|candidate| candidate.superblock.is_ok());
    all
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
    PolicyChange::plan(&present(disks), policy, LATER).unwrap().expect("something to do")
}

fn refused(disks: &[Disk], policy: Policy) -> String {
    let refusal = PolicyChange::plan(&candidates(disks), policy, LATER).unwrap_err();
    assert!(!refusal.next.is_empty(), "{refusal}");
    refusal.reason
}

/// The policy of an array that must assemble, complete and without anything to be done.
fn assembled(disks: &[Disk], what: &str) -> Policy {
    let assembly = decide(present(disks), Options::default());
    let Start::Ready { config, degraded, resync_from, .. } = assembly.start else {
        panic!("{what}: {:?}", assembly.start)
    };
    assert_eq!((degraded, resync_from), (0, None), "{what}");
    // What is to become a journal is not one yet, or was one.
    let members = assembly.verdicts.iter().take(4);
    assert!(members.clone().all(|(_, verdict)| verdict.attached()), "{what}");
    assert!(!config.log.has_to_replay(), "{what}");
    let all = feature::BITMAP_OFFSET | feature::ANY_PPL | feature::JOURNAL;
    let feature = config.superblock.feature_map & all;
    let journals = config.members.iter().filter(|m| m.superblock.role() == DevRole::Journal);
    assert_eq!(journals.count(), usize::from(feature == feature::JOURNAL), "{what}");
    for member in &config.members {
        assert_eq!(member.superblock.feature_map & all, feature, "{what}: {}", member.device);
        if member.superblock.role() == DevRole::Journal {
            continue;
        }
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
        feature::BITMAP_OFFSET => BITMAP,
        feature::JOURNAL => JOURNAL,
        _ => Policy::PartialParity,
    }
}

/// Does a change, and looks at the array after each write, whichever role comes first. Returns the
/// disks as they are in the end.
fn each_prefix(disks: &[Disk], from: Policy, to: Policy) -> Vec<Disk> {
    assert_eq!(assembled(disks, "before"), from);
    let change = change(disks, to);
    let is_superblock = |write: &&Write| write.index < 3 && write.sector == offset(disks, write);
    let first = change.writes.iter().position(|write| is_superblock(&write)).unwrap();
    let mut last = Vec::new();
    for rotated in 0..3 {
        let mut disks = disks.to_vec();
        // A bitmap is looked for on members in sync, so one of them has to tell of it first.
        let mut writes = change.writes.clone();
        assert!(writes[first..first + 3].iter().all(|write| is_superblock(&write)));
        writes[first..first + 3].rotate_left(rotated);
        for (done, Write { index, sector, bytes }) in writes.into_iter().enumerate() {
            put(&mut disks[index], sector, &bytes);
            let is = if done < first { from } else { to };
            let given = index == 4 && to == JOURNAL && sector == 8;
            let what = format!("{done} writes, from {rotated} on");
            assert_eq!(assembled(&disks, &what), if given { to } else { is }, "{what}");
        }
        last = disks;
    }
    assert_eq!(PolicyChange::plan(&present(&last), to, LATER), Ok(None));
    last
}

/// Where the superblock of the device lies to which this is written.
fn offset(disks: &[Disk], write: &Write) -> u64 {
    superblock(disks, write.index).super_offset
}

#[test]
fn any_prefix_of_the_writes_leaves_an_array_that_assembles() {
    let bitmap = NewBitmap::Internal { chunk_bytes: None };
    for mib in [4, 16] {
        let plain = raid5(NewBitmap::None, NewLog::None, mib);
        let logged = each_prefix(&plain, Policy::Resync, Policy::PartialParity);
        let back = each_prefix(&logged, Policy::PartialParity, Policy::Resync);
        let marked = each_prefix(&back, Policy::Resync, BITMAP);
        each_prefix(&marked, BITMAP, Policy::Resync);
        let made = raid5(NewBitmap::None, NewLog::PartialParity, mib);
        each_prefix(&made, Policy::PartialParity, Policy::Resync);
        let made = raid5(bitmap, NewLog::None, mib);
        each_prefix(&made, BITMAP, Policy::Resync);
    }
    let mirror = Made {
        level: Level::Raid1,
        bitmap: NewBitmap::None,
        log: NewLog::None,
        mib: 8,
        chunk_sectors: 0,
    };
    each_prefix(&made(&mirror), Policy::Resync, BITMAP);
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
        for Write { index, sector, bytes } in resync.writes {
            put(&mut disks[index], sector, &bytes);
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
    assert!(said.contains("1 of its members are not named"), "{said}");

    let mut lagging = plain();
    rewrite(&mut lagging, 0, |sb| sb.events += 1);
    assert!(refused(&lagging, BITMAP).contains("miss the last update"));

    let marked = raid5(NewBitmap::Internal { chunk_bytes: None }, NewLog::None, 16);
    assert!(refused(&marked, Policy::PartialParity).contains("cannot have another"));
    let logged = raid5(NewBitmap::None, NewLog::PartialParity, 16);
    assert!(refused(&logged, BITMAP).contains("cannot have another"));

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
    assert!(refused(&foreign, BITMAP).starts_with("e: "));

    let raid10 = |level| {
        let layout = (NewBitmap::None, NewLog::None);
        made(&Made { level, bitmap: layout.0, log: layout.1, mib: 16, chunk_sectors: 128 })
    };
    assert!(refused(&raid10(Level::Raid10), JOURNAL).contains("cannot have a journal"));
    assert!(refused(&marked, JOURNAL).contains("a bitmap"));
    assert!(refused(&plain(), Policy::Journal(None)).contains("no journal"));
    let device = NewDevice { device_sectors: 8 * 2048, device_uuid: [5; 16] };
    let small = Policy::Journal(Some(NewJournal { device, first_seq: 1 }));
    let few = NewDevice { device_sectors: 4 * 2048, ..device };
    let smaller = Policy::Journal(Some(NewJournal { device: few, first_seq: 1 }));
    assert!(PolicyChange::plan(&candidates(&plain()), small, LATER).is_ok());
    assert!(refused(&plain(), smaller).contains("KiB at least"));
}

#[test]
fn half_a_reshape_is_given_no_policy() {
    let plain = raid5(NewBitmap::None, NewLog::None, 16);
    let logged = raid5(NewBitmap::None, NewLog::PartialParity, 16);
    // By its superblocks no array has the journal that is there.
    for mut disks in [plain, logged, journaled()] {
        for index in 0..disks.len() {
            rewrite(&mut disks, index, |sb| {
                sb.feature_map &= !feature::JOURNAL;
                sb.feature_map |= feature::RESHAPE_ACTIVE;
                sb.reshape.new_level = 5;
                sb.reshape.new_layout = 0;
                sb.reshape.new_chunk_sectors = 128;
                sb.reshape.position = 3 * 128 * 2;
            });
        }
        let said = refused(&disks, Policy::Resync);
        assert!(said.contains("reshape"), "{said}");
    }
}

/// An array whose journal is on the last of its devices.
/// Logs that are off until a change of the shape is over are taken away, or others given.
#[test]
fn logs_that_are_off_for_a_time_do_not_come_back_under_another_policy() {
    let mut disks = raid5(NewBitmap::None, NewLog::PartialParity, 16);
    for index in 0..4 {
        rewrite(&mut disks, index, |superblock| {
            superblock.feature_map &= !feature::ANY_PPL;
            superblock.bitmap_offset_sectors |= 3 << 16;
        });
    }
    assert!((0..4).all(|index| is_suspended(&superblock(&disks, index))));
    for policy in [Policy::Resync, BITMAP, Policy::PartialParity] {
        let changed = each_prefix(&disks, Policy::Resync, policy);
        assert!((0..4).all(|index| !is_suspended(&superblock(&changed, index))), "{policy:?}");
    }
}

fn journaled() -> Vec<Disk> {
    let mut disks = raid5(NewBitmap::None, NewLog::None, 16);
    disks.push(vec![0; 16 * 2048 * SECTOR]);
    each_prefix(&disks, Policy::Resync, JOURNAL)
}

#[test]
fn a_journal_is_given_and_taken_away() {
    let disks = journaled();
    let journal = superblock(&disks, 4);
    assert_eq!((journal.role(), journal.dev_number), (DevRole::Journal, 4));
    let plain = each_prefix(&disks, JOURNAL, Policy::Resync);
    assert!(candidates(&plain)[4].superblock.is_err());
    each_prefix(&plain, Policy::Resync, JOURNAL);
    assert!(refused(&disks, BITMAP).contains("a journal"));
    assert_eq!(PolicyChange::plan(&candidates(&disks), Policy::Journal(None), LATER), Ok(None));
    // It may hold what is nowhere else.
    assert!(refused(&disks[..4], Policy::Resync).contains("journal"));
}

#[test]
fn a_journal_that_holds_something_is_not_taken_away() {
    let mut disks = journaled();
    let of = superblock(&disks, 4);
    let page = vec![7; 4096];
    let payload = Payload::Data { sector: 0, checksums: vec![page_checksum(of.set_uuid, &page)] };
    let block = MetaBlock { seq: 77, position: 0, payloads: vec![payload] };
    put(&mut disks[4], of.data_offset, &block.encode(of.set_uuid));
    put(&mut disks[4], of.data_offset + 8, &page);
    assert!(refused(&disks, Policy::Resync).contains("not in its place yet"));
}
