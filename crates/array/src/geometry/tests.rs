//! Small arrays of every shape, sector by sector.

mod md;

use super::*;
use crate::Role;
use crate::level::{FarSets, ParityLayout, Raid0Layout, Raid10Layout};

const CHUNK: u32 = 8;

fn shape(level: Level, layout: Layout, raid_disks: u32, size_sectors: u64) -> Shape<'static> {
    Shape {
        level,
        layout,
        raid_disks,
        chunk_sectors: CHUNK,
        size_sectors,
        member_data_sectors: &[],
    }
}

fn members(level: Level, layout: Layout, chunk_sectors: u32, sizes: &[u64]) -> Shape<'_> {
    Shape {
        level,
        layout,
        raid_disks: u32::try_from(sizes.len()).expect("few"),
        chunk_sectors,
        size_sectors: 0,
        member_data_sectors: sizes,
    }
}

fn geometry(shape: &Shape<'_>) -> Geometry {
    Geometry::new(shape).unwrap_or_else(|error| panic!("{shape:?}: {error}"))
}

/// Every copy of every sector has a place of its own, which knows whose it is; the copies of a
/// sector are on different members; runs are runs; no other place belongs to the array.
fn check_bijection(geometry: &Geometry, member_sectors: u64) {
    let mut taken = vec![vec![false; member_sectors as usize]; geometry.raid_disks() as usize];
    let mut run_left = 0;
    for sector in 0..geometry.array_sectors() {
        if run_left == 0 {
            run_left = geometry.run(sector);
            assert!(run_left > 0, "{geometry:?} at {sector}");
        }
        let mut roles = Vec::new();
        for copy in 0..geometry.copies() {
            let strip = geometry.copy(sector, copy);
            let place = &mut taken[strip.role.index()][strip.sector as usize];
            assert!(!*place, "{geometry:?}: sector {sector} copy {copy} lies on another");
            *place = true;
            assert_eq!(geometry.array_sector_at(strip), Some(sector), "{geometry:?} {strip:?}");
            assert!(!roles.contains(&strip.role), "{geometry:?}: two copies on one member");
            roles.push(strip.role);
            let run_end = geometry.copy(sector + run_left - 1, copy);
            let expected = Strip { role: strip.role, sector: strip.sector + run_left - 1 };
            assert_eq!(run_end, expected, "{geometry:?}: the run at {sector} breaks");
        }
        run_left -= 1;
    }
    assert_eq!(geometry.run(geometry.array_sectors()), 0);
    for (role, places) in (0..).map(Role).zip(&taken) {
        for (sector, &taken) in (0..).zip(places) {
            let owner = geometry.array_sector_at(Strip { role, sector });
            assert_eq!(owner.is_some(), taken, "{geometry:?}: role {role} sector {sector}");
        }
        let beyond = Strip { role, sector: member_sectors + (1 << 60) };
        assert_eq!(geometry.array_sector_at(beyond), None);
    }
    let nobody = Strip { role: role(geometry.raid_disks()), sector: 0 };
    assert_eq!(geometry.array_sector_at(nobody), None);
}

#[test]
fn parity_levels_are_bijections() {
    let raid4 = [(Level::Raid4, Layout::None)];
    let others = [Level::Raid5, Level::Raid6].into_iter().flat_map(|level| {
        let layouts = ParityLayout::ALL.into_iter().filter(move |layout| layout.fits(level));
        layouts.map(move |layout| (level, Layout::Parity(layout)))
    });
    for (level, layout) in raid4.into_iter().chain(others) {
        for raid_disks in level.min_members()..=9 {
            let rows = u64::from(2 * raid_disks + 3);
            let size = rows * u64::from(CHUNK) + 5;
            let geometry = geometry(&shape(level, layout, raid_disks, size));
            assert_eq!(geometry.member_sectors(), size - 5);
            assert_eq!(geometry.sync_sectors(), size - 5);
            let data = u64::from(raid_disks - level.parity_disks());
            assert_eq!(geometry.array_sectors(), (size - 5) * data);
            check_bijection(&geometry, size);
            (0..rows).for_each(|stripe| check_stripe(&geometry, stripe));
        }
    }
}

/// Every role is P, Q or one data strip, in the order of the array; Q can tell data apart.
fn check_stripe(geometry: &Geometry, stripe: u64) {
    let (p, q) = geometry.parity_roles(stripe);
    assert_eq!(q.is_some(), geometry.parity_disks() == 2);
    assert_ne!(Some(p), q);
    let mut coefs = Vec::new();
    for index in 0..geometry.data_disks() {
        let role = geometry.data_role(stripe, index);
        assert_eq!(geometry.data_index(stripe, role), Some(index), "{geometry:?} {stripe}");
        let chunk = stripe * u64::from(geometry.data_disks()) + u64::from(index);
        let strip = geometry.copy(chunk * u64::from(CHUNK), 0);
        assert_eq!(strip, Strip { role, sector: stripe * u64::from(CHUNK) });
        if q.is_some() {
            let coef = geometry.q_coef(stripe, index);
            assert!(coef != 0 && !coefs.contains(&coef), "{geometry:?} {stripe} {index}");
            coefs.push(coef);
        }
    }
    for role in [Some(p), q].into_iter().flatten() {
        assert_eq!(geometry.data_index(stripe, role), None);
    }
}

fn raid10_layouts(raid_disks: u32) -> impl Iterator<Item = Raid10Layout> {
    let counts = (1..=4).flat_map(|near| (1..=4).map(move |far| (near, far)));
    counts
        .filter(move |(near, far)| (2..=raid_disks).contains(&(near * far)))
        .flat_map(|(near, far)| [false, true].map(|offset| (near, far, offset)))
        .flat_map(|(near, far, offset)| {
            [FarSets::Original, FarSets::Broken, FarSets::Improved].map(|far_sets| Raid10Layout {
                near: near as u8,
                far: far as u8,
                offset,
                far_sets,
            })
        })
}

/// The places of all copies of a chunk as md finds them: walking from copy to copy.
fn md_raid10_places(layout: Raid10Layout, disks: u32, part_rows: u64, chunk: u64) -> Vec<Place> {
    let set = layout.far_set_size(disks);
    let last = (disks / set - 1) * set;
    let slot = chunk * u64::from(layout.near);
    let mut disk = (slot % u64::from(disks)) as u32;
    let mut row = slot / u64::from(disks);
    if layout.offset {
        row *= u64::from(layout.far);
    }
    let mut places = Vec::new();
    for _ in 0..layout.near {
        let mut far_disk = disk;
        let mut far_row = row;
        places.push((far_disk, far_row));
        for _ in 1..layout.far {
            let next = far_disk + u32::from(layout.near);
            far_disk = if !disks.is_multiple_of(set) && next > last {
                last + (next - last) % (set + disks % set)
            } else {
                far_disk / set * set + next % set
            };
            far_row += if layout.offset { 1 } else { part_rows };
            places.push((far_disk, far_row));
        }
        disk += 1;
        if disk == disks {
            (disk, row) = (0, row + 1);
        }
    }
    places
}

/// Disk and row.
type Place = (u32, u64);

#[test]
fn raid10_is_a_bijection_and_as_md_walks() {
    let mut refused = 0;
    for raid_disks in 2..=10 {
        for layout in raid10_layouts(raid_disks) {
            for part_rows in [4, 7, 11] {
                let rows = part_rows * u64::from(layout.far) + u64::from(layout.far - 1);
                let size = rows * u64::from(CHUNK) + 3;
                let chunks = part_rows * u64::from(raid_disks) / u64::from(layout.near);
                let places: Vec<Place> = (0..chunks)
                    .flat_map(|chunk| md_raid10_places(layout, raid_disks, part_rows, chunk))
                    .collect();
                let shape = shape(Level::Raid10, Layout::Raid10(layout), raid_disks, size);
                let Ok(geometry) = Geometry::new(&shape) else {
                    assert!(!is_sound(&places, layout), "{shape:?} is refused");
                    refused += 1;
                    continue;
                };
                assert!(is_sound(&places, layout), "{shape:?} is accepted");
                assert_eq!(geometry.array_sectors(), chunks * u64::from(CHUNK));
                assert_eq!(geometry.sync_sectors(), geometry.array_sectors());
                check_bijection(&geometry, size);
                let mut walk = places.into_iter();
                for chunk in 0..chunks {
                    for copy in 0..geometry.copies() {
                        let strip = geometry.copy(chunk * u64::from(CHUNK), copy);
                        let place = (u32::from(strip.role.0), strip.sector / u64::from(CHUNK));
                        assert_eq!(walk.next(), Some(place), "{shape:?} {chunk} {copy}");
                        assert!(strip.sector < geometry.member_sectors());
                    }
                }
            }
        }
    }
    assert!(refused > 0);
}

/// No two copies on one place, no two copies of a chunk on one member.
fn is_sound(places: &[Place], layout: Raid10Layout) -> bool {
    let distinct = |places: &[Place], key: fn(&Place) -> Place| {
        let mut keys: Vec<Place> = places.iter().map(key).collect();
        keys.sort_unstable();
        keys.windows(2).all(|pair| pair[0] != pair[1])
    };
    let copies = layout.copies() as usize;
    distinct(places, |&place| place)
        && places.chunks(copies).all(|chunk| distinct(chunk, |&(disk, _)| (disk, 0)))
}

#[test]
fn raid1_holds_everything_everywhere() {
    for raid_disks in 1..=9 {
        let geometry = geometry(&shape(Level::Raid1, Layout::None, raid_disks, 77));
        assert_eq!(geometry.array_sectors(), 77);
        assert_eq!(geometry.member_sectors(), 77);
        assert_eq!(geometry.sync_sectors(), 77);
        assert_eq!(geometry.copies(), raid_disks);
        assert_eq!(geometry.run(7), 70);
        check_bijection(&geometry, 80);
    }
}

#[test]
fn raid0_and_linear_are_bijections() {
    let sizes: [&[u64]; 9] = [
        &[80],
        &[80, 80, 85],
        &[40, 80],
        &[80, 41, 83],
        &[24, 56, 104],
        &[104, 24, 56, 30],
        &[88, 31, 88, 52, 200, 52],
        &[9, 17, 25, 33, 41, 49, 57],
        &[64; 9],
    ];
    for sizes in sizes {
        for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
            let shape = members(Level::Raid0, Layout::Raid0(layout), CHUNK, sizes);
            let geometry = geometry(&shape);
            let whole = sizes.iter().map(|size| size / 8 * 8).sum::<u64>();
            assert_eq!(geometry.array_sectors(), whole);
            check_bijection(&geometry, 210);
        }
        for chunk_sectors in [1, 5, 6, 7, 9] {
            for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
                let shape = members(Level::Raid0, Layout::Raid0(layout), chunk_sectors, sizes);
                check_bijection(&self::geometry(&shape), 210);
            }
        }
        for chunk_sectors in [0, 1, 8, 9] {
            let shape = members(Level::Linear, Layout::None, chunk_sectors, sizes);
            check_bijection(&geometry(&shape), 210);
        }
    }
}

#[test]
fn raid0_zones_need_a_layout_when_they_differ_by_it() {
    let shape = members(Level::Raid0, Layout::None, CHUNK, &[24, 56, 104]);
    assert_eq!(Geometry::new(&shape).unwrap_err(), GeometryError::Raid0Layout);
    // Two zones of which the second is one member long look the same in both layouts.
    check_bijection(&geometry(&members(Level::Raid0, Layout::None, CHUNK, &[24, 24, 104])), 110);
}

#[test]
fn wrong_shapes_are_refused() {
    let parity = Layout::Parity(ParityLayout::LeftSymmetric);
    let ddf = Layout::Parity(ParityLayout::DdfNRestart);
    let n2 = Layout::default_for(Level::Raid10);
    for (level, layout, raid_disks) in [
        (Level::Raid4, Layout::None, 1),
        (Level::Raid5, parity, 1),
        (Level::Raid6, parity, 3),
        (Level::Raid6, parity, 258),
        (Level::Raid6, ddf, 256),
        (Level::Raid5, parity, MAX_MEMBERS + 1),
        (Level::Raid10, n2, 1),
        (Level::Raid1, Layout::None, 0),
        (Level::Raid1, Layout::None, u32::MAX),
        (Level::Raid0, Layout::None, 3),
        (Level::Linear, Layout::None, 3),
        (Level::Raid4, n2, 3),
        (Level::Raid5, ddf, 3),
        (Level::Raid5, Layout::None, 3),
        (Level::Raid10, parity, 3),
        (Level::Raid1, parity, 3),
    ] {
        assert!(Geometry::new(&shape(level, layout, raid_disks, 800)).is_err(), "{level}");
    }
    for chunk_sectors in [0, 1, 4, 7, 12, 24, 1 << 31, u32::MAX] {
        for (level, layout) in [(Level::Raid5, parity), (Level::Raid10, n2)] {
            let shape = Shape { chunk_sectors, ..shape(level, layout, 4, 800) };
            assert!(Geometry::new(&shape).is_err(), "{level} {chunk_sectors}");
        }
    }
    for chunk_sectors in [0, 801, 1 << 31, u32::MAX] {
        let shape = members(Level::Raid0, Layout::None, chunk_sectors, &[800, 800]);
        assert!(Geometry::new(&shape).is_err(), "{chunk_sectors}");
    }
    for size in [0, 7, MAX_SECTORS / 2, MAX_SECTORS, MAX_SECTORS + 1, u64::MAX] {
        for (level, layout) in [(Level::Raid5, parity), (Level::Raid10, n2)] {
            assert!(Geometry::new(&shape(level, layout, 1900, size)).is_err(), "{level} {size}");
        }
        let sizes = [size; 3];
        for level in [Level::Raid0, Level::Linear] {
            assert!(Geometry::new(&members(level, Layout::None, CHUNK, &sizes)).is_err());
        }
    }
    assert!(Geometry::new(&shape(Level::Raid1, Layout::None, 2, 0)).is_err());
}

/// Every superblock is refused, or all lookups work to the last sector.
#[test]
fn extreme_shapes_never_panic() {
    let sizes = [0, 1, 7, 8, 4096, MAX_SECTORS / 1920, MAX_SECTORS, u64::MAX / 2, u64::MAX];
    let layouts = [0, 1, 2, 10, 20, 0x102, 0xff01, 0x1_0f0f, 0x2_2001, 0x4_0802, 0x5_0201];
    let mut accepted = 0;
    for level in Level::ALL {
        for raid_disks in [0, 1, 2, 3, 9, 255, 256, 257, 1920, 1921, u32::MAX] {
            for layout in layouts.map(|number| Layout::decode(level, number, raid_disks)) {
                let Ok(layout) = layout else { continue };
                for chunk_sectors in [0, 1, 7, 8, 24, 1 << 20, 1 << 31, u32::MAX] {
                    for size_sectors in sizes {
                        let member_count = raid_disks.min(MAX_MEMBERS) as usize;
                        let mut members = vec![size_sectors; member_count];
                        if let Some(last) = members.last_mut() {
                            *last = last.saturating_add(u64::from(chunk_sectors));
                        }
                        accepted += u32::from(probe(&Shape {
                            level,
                            layout,
                            raid_disks,
                            chunk_sectors,
                            size_sectors,
                            member_data_sectors: &members,
                        }));
                    }
                }
            }
        }
    }
    assert!(accepted > 100);
}

/// Looks up the ends of everything, if the shape is accepted.
fn probe(shape: &Shape<'_>) -> bool {
    let Ok(geometry) = Geometry::new(shape) else { return false };
    let last = geometry.array_sectors() - 1;
    for copy in [0, geometry.copies() - 1] {
        assert_eq!(geometry.array_sector_at(geometry.copy(last, copy)), Some(last), "{shape:?}");
    }
    assert!(geometry.run(last) == 1 && geometry.run(u64::MAX) == 0);
    for role in [Role(0), role(geometry.raid_disks() - 1), Role(u16::MAX)] {
        for sector in [0, geometry.member_sectors(), u64::MAX / 2, u64::MAX] {
            let _ = geometry.array_sector_at(Strip { role, sector });
        }
    }
    if geometry.parity_disks() > 0 {
        for stripe in [0, u64::MAX] {
            check_stripe_roles(&geometry, stripe);
        }
    }
    true
}

fn check_stripe_roles(geometry: &Geometry, stripe: u64) {
    let (p, q) = geometry.parity_roles(stripe);
    for index in [0, geometry.data_disks() - 1] {
        let role = geometry.data_role(stripe, index);
        assert!(role != p && Some(role) != q && u32::from(role.0) < geometry.raid_disks());
        assert_eq!(geometry.data_index(stripe, role), Some(index));
        if q.is_some() {
            assert_ne!(geometry.q_coef(stripe, index), 0);
        }
    }
}
