//! Tests of what parity of level 6 tells.

use super::super::front::Maps;
use super::backups::{apply, header};
use super::*;

const UNIT: u64 = 16;

/// A level 5 that becomes a level 6 in place; superblocks say that so many units were moved.
fn six(told: u64, options: Options, without: &[u32]) -> Halfway {
    match decide(six_members(told, without), options).start {
        Start::Halfway(halfway) => *halfway,
        other => panic!("{other:?}"),
    }
}

fn six_members(told: u64, without: &[u32]) -> Vec<Candidate> {
    let array = Superblock {
        level: 6,
        layout: 18,
        feature_map: feature::RESHAPE_ACTIVE,
        reshape: Reshape {
            new_level: 6,
            delta_disks: 0,
            new_offset: 0,
            position: told * UNIT,
            ..growing().reshape
        },
        ..growing()
    };
    let mut all = candidates(&array, without);
    if let Some(last) = all.iter_mut().find(|one| one.device == "d3") {
        let superblock = last.superblock.as_mut().unwrap();
        superblock.feature_map |= feature::RECOVERY_OFFSET;
        superblock.recovery_offset = told * UNIT / 2;
    }
    all
}

/// Its members, of which these units were moved, and this one was begun.
fn disks(moved: impl IntoIterator<Item = u64>, torn: Option<u64>, content: &[u8]) -> Disks {
    let whole = six(0, READ, &[]);
    let mut disks = Disks::new(&whole);
    for stripe in 0..SIZE_SECTORS / 8 {
        disks.write(&whole, Side::Old, stripe, content);
    }
    moved.into_iter().for_each(|stripe| disks.write(&whole, Side::New, stripe, content));
    if let Some(stripe) = torn {
        let mut half = Disks(disks.0.clone());
        half.write(&whole, Side::New, stripe, content);
        let sector = DATA_OFFSET + stripe * 8;
        let written = half.at("d0", sector, 8).to_vec();
        disks.at("d0", sector, 8).copy_from_slice(&written);
    }
    disks
}

/// Returns the sources of what is read: first sector and map, or backup.
fn sources(halfway: &Halfway) -> Vec<(u64, String)> {
    let pieces = halfway.pieces().unwrap();
    let starts = pieces.whole.members.iter().scan(0, |at, member| {
        let start = *at;
        *at += member.superblock.data_size;
        Some(start)
    });
    let names = pieces.arrays.iter().map(|array| array.superblock.name());
    starts.zip(names).collect()
}

fn named(sources: &[(u64, &str)]) -> Vec<(u64, String)> {
    sources.iter().map(|(at, name)| (at * UNIT, (*name).to_owned())).collect()
}

#[test]
fn the_front_is_where_parity_says() {
    let content = noise(2 * SIZE_SECTORS, 3);
    for (told, done) in [(0, 0), (0, 1), (8, 8), (8, 30), (100, 128)] {
        let mut disks = disks(0..done, None, &content);
        let mut halfway = six(told, READ, &[]);
        disks.look(&mut halfway).unwrap();
        assert_eq!(halfway.front, done * UNIT, "{told} {done}");
        assert_eq!(halfway.weigh(&mut disks.reader()), None);
        assert!(halfway.pieces().is_ok(), "all is there, without a backup");
    }
}

#[test]
fn units_that_were_moved_early_are_read_where_they_are() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let mut disks = disks((0..30).chain([31, 33]), None, &content);
    let mut halfway = six(8, READ, &[]);
    disks.look(&mut halfway).unwrap();
    let expected = [
        (0, "new-map"),
        (30, "old-map"),
        (31, "new-map"),
        (32, "old-map"),
        (33, "new-map"),
        (34, "old-map"),
    ];
    assert_eq!(sources(&halfway), named(&expected));
}

#[test]
fn what_was_being_written_is_read_from_a_backup_alone() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let mut disks = disks((0..30).chain([31]), Some(30), &content);
    let mut halfway = six(28, READ, &[]);
    disks.look(&mut halfway).unwrap();
    halfway.weigh(&mut disks.reader());
    let refusal = halfway.pieces().unwrap_err();
    assert!(refusal.reason.contains("sectors 480 to 496 were being moved"), "{refusal}");

    let mut forced = six(28, FORCE, &[]);
    disks.look(&mut forced).unwrap();
    let said = forced.weigh(&mut disks.reader()).unwrap();
    assert!(said.contains("sectors 480 to 496") && forced.pieces().is_ok(), "{said}");

    // Units 28 to 38, as they were before.
    let kept = &content[28 * 16 * 512..38 * 16 * 512];
    disks.0.insert("b".to_owned(), [&[0; 4096], kept].concat());
    let header = header(7, 10_000, [8, 28 * UNIT, 160], [0; 3]);
    halfway.add_backup("b", 168, &header).unwrap();
    assert_eq!(halfway.weigh(&mut disks.reader()), None);
    assert_eq!(sources(&halfway), named(&[(0, "new-map"), (28, "backup"), (38, "old-map")]));
}

#[test]
fn a_backup_of_what_had_been_moved_is_left_out() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let mut disks = disks(0..30, None, &content);
    let mut halfway = six(20, READ, &[]);
    let mut kept = vec![0; 4096];
    {
        let mut reader = disks.reader();
        let mut maps = Maps::of(&halfway, &mut reader).unwrap();
        let blocks = (20 * UNIT..40 * UNIT).step_by(8);
        kept.extend(blocks.flat_map(|at| maps.data(Side::Old, at, 8).unwrap()));
    }
    disks.0.insert("b".to_owned(), kept);
    disks.look(&mut halfway).unwrap();
    let header = header(7, 10_000, [8, 20 * UNIT, 320], [0; 3]);
    halfway.add_backup("b", 328, &header).unwrap();
    let said = halfway.weigh(&mut disks.reader()).unwrap();
    assert!(said.contains("made after md had moved"), "{said}");
    assert_eq!(sources(&halfway), named(&[(0, "new-map"), (30, "old-map")]));
}

#[test]
fn without_all_members_the_backup_decides() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let mut disks = disks(0..30, None, &content);
    let mut halfway = six(20, READ, &[1]);
    disks.look(&mut halfway).unwrap();
    assert_eq!((halfway.front, halfway.code.clone()), (20 * UNIT, None));
    assert!(halfway.pieces().unwrap_err().next.advice.contains("--backup-file"));
}

#[test]
fn what_parity_tells_goes_on_and_saves_to_the_file() {
    let content = noise(2 * SIZE_SECTORS, 3);
    let now = time_code(10_100, 1);
    let all = six_members(8, &[]);
    // Torn unit, whether there is a backup, whether there is a file to save to; where it goes on.
    for (torn, kept, saves, found) in [
        (None, false, true, Some(30)),
        (None, false, false, None),
        (Some(30), false, true, None),
        (Some(30), true, true, Some(40)),
        (Some(30), true, false, None),
    ] {
        let mut disks = disks(0..30, torn, &content);
        let mut halfway = six(8, READ, &[]);
        disks.look(&mut halfway).unwrap();
        if kept {
            let sector = |unit: u64| (unit * UNIT * SECTOR_BYTES) as usize;
            let file = [&[0; 8 * 512], &content[sector(24)..sector(40)]].concat();
            disks.0.insert("b".to_owned(), file);
            let header = header(7, 10_000, [8, 24 * UNIT, 16 * UNIT], [0; 3]);
            halfway.add_backup("b", 8 + 16 * UNIT, &header).unwrap();
        }
        halfway.weigh(&mut disks.reader());
        let settlement = halfway.settled(&all, now, saves, &mut disks.reader());
        let position = settlement.as_ref().map(|one| one.position);
        assert_eq!(position, found.map(|unit| unit * UNIT), "{torn:?} {kept} {saves}");
        let Some(settlement) = settlement else { continue };
        assert!(settlement.is_of_md && settlement.saves());
        apply(&mut disks, &settlement);
        let start = decide_saving(settlement.candidates, Options::default()).start;
        let Start::Ready { config, .. } = start else { panic!("{start:?}") };
        let spare = config.members.iter().find(|member| member.device == "d3").unwrap();
        assert_eq!(spare.standing, Standing::Spare, "Q is brought in line afterwards");
        let mut reader = disks.reader();
        let mut maps = Maps::of(&halfway, &mut reader).unwrap();
        for at in (0..settlement.position).step_by(8) {
            // The last member is a spare from now on, and is not written to.
            let strip = maps.numbers.new.copy(at, 0);
            let kept = at < 30 * UNIT || strip.role != Role(3);
            let data = maps.data(Side::New, at, 8).unwrap();
            let byte = (at * SECTOR_BYTES) as usize;
            assert!(!kept || data == content[byte..byte + data.len()], "sector {at}");
        }
    }
}
