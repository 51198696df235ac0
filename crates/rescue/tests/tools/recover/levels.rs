//! Arrays of each level, in each order of their members.

use braid_array::geometry::{Geometry, Shape};
use braid_array::level::{Layout, Level};
use braid_rescue::recover::{Gathered, Mark, Structure, search, structures};

use super::laid::Case;
use super::made::{ext4, xfs, xfs_with};
use super::{Laid, assert_found, brief, expected, found, shuffled, told};
use crate::support::{Folder, have};

#[test]
fn every_level_is_found() {
    if !have("every_level_is_found", &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-levels");
    let contents = [ext4(&folder, 48, 75), xfs(&folder)];
    let cases: [Laid; 13] = [
        (Level::Raid0, "", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid1, "", 0, vec![0, 1], "0@2048 1@2048"),
        (Level::Raid4, "", 64, vec![1, 2, 0], "2@2048 0@2048 1@2048"),
        (Level::Raid5, "ls", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "la", 4, vec![2, 0, 1, 3], "1@2048 2@2048 0@2048 3@2048"),
        (Level::Raid5, "rs", 16, vec![0, 1, 2], "0@2048 1@2048 2@2048"),
        (Level::Raid5, "ra", 512, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
        (Level::Raid6, "ls", 64, vec![3, 0, 2, 1], "1@2048 3@2048 2@2048 0@2048"),
        (Level::Raid6, "ra", 16, vec![3, 0, 2, 1, 4], "1@2048 3@2048 2@2048 0@2048 4@2048"),
        (Level::Raid6, "ddf-N-continue", 16, vec![0, 1, 2, 3], "0@2048 1@2048 2@2048 3@2048"),
        (Level::Raid10, "f2", 64, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
        (Level::Raid10, "o2", 64, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
        (Level::Raid10, "n2", 64, vec![0, 2, 1], "0@2048 2@2048 1@2048"),
    ];
    assert_found(&contents, &cases, &["high", "likely"]);
}

/// Eight groups of metadata, and zeroes in the rest of their rows: parity is a copy of them, and
/// nothing tells one from the other but the member that such an answer leaves out. Where the log
/// ends decides what else tells.
#[test]
fn an_order_that_few_blocks_tell_is_not_called_likely_unless_it_is_right() {
    if !have("an_order_that_few_blocks_tell", &["mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-few-blocks");
    let case = Case::new(Level::Raid5, "ra", 512, 3);
    let right = "1@2048 0@2048 2@2048";
    let mut wrong = Vec::new();
    let mut exactly = 0;
    let logs = [0, 1368, 1400, 1430, 1450, 1470, 1490, 1510, 1530, 1600];
    for (number, log_blocks) in logs.into_iter().enumerate() {
        let uuid = format!("{:08x}-1234-4321-8765-{:012x}", number * 0x1357_9bdf, number * 77);
        let content = xfs_with(&folder, &uuid, log_blocks);
        let ranked = found(&shuffled(case.lay(&content), &[1, 0, 2]));
        let told = told(&ranked);
        let is_right = ["high", "likely"].map(|confidence| expected(&case, right, confidence));
        let is_right = is_right.contains(&told);
        exactly += usize::from(is_right);
        if !is_right {
            println!("log of {log_blocks} blocks: {}", brief(&ranked));
        }
        if !is_right && !told.ends_with(" guess") {
            wrong.push(format!("log of {log_blocks} blocks, {uuid}: {}", brief(&ranked)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(exactly, logs.len(), "{right} was found");
}

/// Any array that holds an ext4 is found again.
#[test]
fn random_arrays_are_found() {
    if !have("random_arrays_are_found", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-random");
    let content = ext4(&folder, 48, 75);
    let begun = std::time::Instant::now();
    let mut state = 20_260_101_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut done = 0;
    let mut found_exactly = 0;
    while done < 40 && begun.elapsed().as_secs() < 40 {
        let (level, layouts, least): (Level, &[&str], u64) = match draw(5) {
            0 => (Level::Raid0, &[""], 2),
            1 => (Level::Raid4, &[""], 3),
            2 => (Level::Raid10, &["n2", "f2", "o2"], 3),
            3 => (Level::Raid5, &["ls", "rs", "la", "ra"], 3),
            _ => (Level::Raid6, &["ls", "rs", "la", "ra", "ddf-zero-restart"], 4),
        };
        let layout = layouts[draw(layouts.len() as u64) as usize];
        let count = (least + draw(3)) as usize;
        let mut case = Case::new(level, layout, 4 << draw(8), count);
        case.offsets = (0..count).map(|_| [0, 2048, 4096][draw(3) as usize]).collect();
        let laid = case.lay(&content);
        let mut order: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            order.swap(index, draw(index as u64 + 1) as usize);
        }
        let survives = !matches!(level, Level::Raid0 | Level::Raid10);
        if survives && draw(3) == 0 {
            order.pop();
        }
        let ranked = found(&shuffled(laid, &order));
        let place = |role: usize| match order.iter().position(|other| *other == role) {
            Some(member) => format!("{member}@{}", case.offsets[role]),
            None => "-".to_owned(),
        };
        let roles = (0..count).map(place).collect::<Vec<_>>().join(" ");
        let told = told(&ranked);
        let right = expected(&case, &roles, "high");
        // Copies may be named in another order.
        let alike = level == Level::Raid10 && told.starts_with(right.split(':').next().unwrap());
        let likely = expected(&case, &roles, "likely");
        let is_right = told == right || told == likely || alike;
        let best = ranked.first();
        assert!(is_right || !told.ends_with(" high"), "{right}, not {told}: {}", brief(&ranked));
        found_exactly += usize::from(is_right);
        if !is_right {
            println!("{right}: {told}: {:?}", best.map(|best| &best.evidence));
        }
        done += 1;
    }
    println!("{found_exactly} of {done}");
    assert!(found_exactly * 10 >= done * 8, "{found_exactly} of {done}");
    assert!(done >= 2, "only {done} in time");
}

/// On disks of 8 TiB the groups of a file system begin on few of the members, most of which hold
/// next to nothing else that tells.
#[test]
fn members_with_few_blocks_keep_their_roles() {
    if !have("members_with_few_blocks_keep_their_roles", &["mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-few");
    let mut known = vec![Structure::DISK];
    let content = xfs(&folder);
    structures(&mut content.as_slice(), 0..1 << 20, &mut known);
    const OFFSET: u64 = 264_192;
    let used = (8 << 31) - OFFSET;
    let used = used / 1024 * 1024;
    let layout = Layout::default_for(Level::Raid6);
    let geometry = Geometry::new(&Shape {
        level: Level::Raid6,
        layout,
        raid_disks: 8,
        chunk_sectors: 1024,
        size_sectors: used,
        member_data_sectors: &[used; 8],
    })
    .unwrap();
    let mut gathered = Gathered::default();
    let mut mark = |role: usize, strip: u64, place: u64| {
        let sector = strip + OFFSET;
        gathered.marks.push(Mark { member: role, sector, structure: 1, place });
    };
    // Many at the beginning, but on one member, and one at each terabyte.
    let first = (0..6 * 128).filter(|block| block / 128 != 2).map(|block| block * 8);
    // Eight rows further, roles are the same.
    let first = first.flat_map(|place| [place, place + 8 * 6 * 1024]);
    let blocks = first.chain((1..48).map(|group| group << 31));
    for place in blocks {
        let strip = geometry.copy(place, 0);
        let (p, _) = geometry.parity_roles(strip.sector / 1024);
        mark(strip.role.index(), strip.sector, place);
        // The rest of the row is zero.
        mark(p.index(), strip.sector, place);
    }
    gathered.marks.sort_unstable();
    let found = search(&[8 << 31; 8], &gathered, &known, None);
    let first = &found[0];
    assert_eq!((first.met, first.of), (1327, 1327), "{first:?}");
    assert_eq!((first.shape.level, first.shape.layout), (Level::Raid6, layout));
    let few = first.roles.iter().enumerate().filter(|(_, place)| place.is_some());
    assert!(few.clone().count() >= 6, "{first:?}");
    assert!(few.into_iter().all(|(role, place)| place.is_some_and(|place| place.member == role)));
}
