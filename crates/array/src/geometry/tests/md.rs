//! Tables of what a Linux 6.1 md kernel wrote. Each array was filled by md with a known content,
//! and the chunks were then looked up on its members; the exponents of Q were found by trial. A
//! word is a row of chunks in the order of the members: letters are the chunks of the array in
//! order, `+` is P, `*` is Q, `.` is nothing.

use super::*;
use crate::Role;
use braid_parity::gf;

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The row of chunks at this height, as a word.
fn word(geometry: &Geometry, row: u64) -> String {
    let chunk_sectors = u64::from(geometry.chunk_sectors());
    let letter = |role| {
        let sector = geometry.array_sector_at(Strip { role, sector: row * chunk_sectors });
        let parity = (geometry.parity_disks() > 0).then(|| geometry.parity_roles(row));
        match (sector, parity) {
            (Some(sector), _) => char::from(LETTERS[(sector / chunk_sectors) as usize]),
            (None, Some((p, _))) if p == role => '+',
            (None, Some((_, q))) if q == Some(role) => '*',
            _ => '.',
        }
    };
    Role::all(geometry.raid_disks() as u16).map(letter).collect()
}

fn words(geometry: &Geometry, rows: impl IntoIterator<Item = u64>) -> String {
    let words: Vec<String> = rows.into_iter().map(|row| word(geometry, row)).collect();
    words.join(" ")
}

fn parity_geometry(level: Level, layout: &str, raid_disks: u32) -> Geometry {
    let layout = match level {
        Level::Raid4 => Layout::None,
        _ => Layout::parse(level, layout).expect("a layout of md's"),
    };
    geometry(&shape(level, layout, raid_disks, 80))
}

#[test]
fn raid4_and_raid5() {
    for (layout, rows) in [
        ("left-asymmetric", "abc+ de+f g+hi +jkl"),
        ("right-asymmetric", "+abc d+ef gh+i jkl+"),
        ("left-symmetric", "abc+ ef+d i+gh +jkl"),
        ("right-symmetric", "+abc f+de hi+g jkl+"),
        ("parity-first", "+abc +def +ghi +jkl"),
        ("parity-last", "abc+ def+ ghi+ jkl+"),
    ] {
        assert_eq!(words(&parity_geometry(Level::Raid5, layout, 4), 0..4), rows, "{layout}");
    }
    assert_eq!(words(&parity_geometry(Level::Raid4, "", 3), 0..3), "ab+ cd+ ef+");
}

#[test]
fn raid6() {
    // After the rows: the exponents of the data in Q, in the order of the array.
    for (layout, rows, exponents) in [
        ("left-asymmetric", "*abc+ def+* gh+*i j+*kl +*mno", "012 012 120 201 012"),
        ("right-asymmetric", "+*abc d+*ef gh+*i jkl+* *mno+", "012 201 120 012 012"),
        ("left-symmetric", "*abc+ def+* hi+*g l+*jk +*mno", "012 012 012 012 012"),
        ("right-symmetric", "+*abc f+*de hi+*g jkl+* *mno+", "012 012 012 012 012"),
        ("parity-first", "+*abc +*def +*ghi +*jkl +*mno", "012 012 012 012 012"),
        ("parity-last", "abc+* def+* ghi+* jkl+* mno+*", "012 012 012 012 012"),
        ("ddf-zero-restart", "+*abc d+*ef gh+*i jkl+* *mno+", "234 034 014 012 123"),
        ("ddf-N-restart", "abc+* de+*f g+*hi +*jkl *mno+", "012 014 034 234 123"),
        ("ddf-N-continue", "abc*+ ef*+d i*+gh *+jkl +mno*", "012 401 340 234 123"),
        ("left-asymmetric-6", "abc+* de+f* g+hi* +jkl* mno+*", "012 012 012 012 012"),
        ("right-asymmetric-6", "+abc* d+ef* gh+i* jkl+* +mno*", "012 012 012 012 012"),
        ("left-symmetric-6", "abc+* ef+d* i+gh* +jkl* mno+*", "012 201 120 012 012"),
        ("right-symmetric-6", "+abc* f+de* hi+g* jkl+* +mno*", "012 120 201 012 012"),
        ("parity-first-6", "+abc* +def* +ghi* +jkl* +mno*", "012 012 012 012 012"),
    ] {
        let geometry = parity_geometry(Level::Raid6, layout, 5);
        assert_eq!(words(&geometry, 0..5), rows, "{layout}");
        let of_row = |row| -> String {
            (0..3).map(|index| gf::log2(geometry.q_coef(row, index)).to_string()).collect()
        };
        let found: Vec<String> = (0..5).map(of_row).collect();
        assert_eq!(found.join(" "), exponents, "{layout}");
    }
}

#[test]
fn raid10() {
    // Members of 80 chunks; the rows 26, 40 and 52 begin parts of f2 and f3.
    for (raid_disks, layout, rows, expected) in [
        (5, 0x102, &[0, 1, 2][..], "aabbc cddee ffggh"),
        (4, 0x103, &[0, 1, 2], "aaab bbcc cddd"),
        (4, 0x201, &[0, 1, 2, 40, 41, 42], "abcd efgh ijkl dabc hefg lijk"),
        (5, 0x201, &[0, 1, 40, 41], "abcde fghij eabcd jfghi"),
        (5, 0x301, &[0, 1, 26, 27, 52, 53], "abcde fghij eabcd jfghi deabc ijfgh"),
        (3, 0x1_0201, &[0, 1, 2, 3], "abc cab def fde"),
        (5, 0x1_0301, &[0, 1, 2, 3, 4, 5], "abcde eabcd deabc fghij jfghi ijfgh"),
        (5, 0x202, &[0, 1, 2, 40, 41, 42], "aabbc cddee ffggh bcaab eecdd ghffg"),
        (4, 0x1_0202, &[0, 1, 2, 3], "aabb bbaa ccdd ddcc"),
        (5, 0x2_0201, &[0, 1, 40, 41], "abcde fghij baecd gfjhi"),
        (5, 0x4_0201, &[0, 1, 40, 41], "abcde fghij baecd gfjhi"),
        (8, 0x4_0202, &[0, 1, 40, 41], "aabbccdd eeffgghh bbaaddcc ffeehhgg"),
    ] {
        let decoded = Layout::decode(Level::Raid10, layout, raid_disks).expect("md ran it");
        let size_sectors = 80 * u64::from(CHUNK);
        let geometry = geometry(&shape(Level::Raid10, decoded, raid_disks, size_sectors));
        assert_eq!(words(&geometry, rows.iter().copied()), expected, "{layout:#x}");
    }
}

#[test]
fn raid0_zones() {
    let sizes = [9216, 13904, 19906];
    for (layout, later) in [
        ("original", ".CB .ED .GF .IH ..J ..K ..L ..M ..N ..O"),
        ("alternate", ".BC .DE .FG .HI ..J ..K ..L ..M ..N ..O"),
    ] {
        let layout = Layout::parse(Level::Raid0, layout).expect("a layout of md's");
        let geometry = geometry(&members(Level::Raid0, layout, 1024, &sizes));
        let expected = format!("abc def ghi jkl mno pqr stu vwx yzA {later}");
        assert_eq!(words(&geometry, 0..19), expected);
    }
}

#[test]
fn sizes() {
    let raid0 = [
        (128, &[10242][..], 10240),
        // A chunk that is no power of two: md rounds in a way of its own.
        (24, &[10240, 10240, 10240], 30624),
        (56, &[10240, 10240], 20352),
        (200, &[10240, 10240], 20016),
        (12, &[10240, 10240], 20456),
        (64, &[7952, 11952, 11952, 15952, 21952], 69632),
    ];
    for (chunk_sectors, sizes, expected) in raid0 {
        let layout = Layout::default_for(Level::Raid0);
        let geometry = geometry(&members(Level::Raid0, layout, chunk_sectors, sizes));
        assert_eq!(geometry.array_sectors(), expected, "{chunk_sectors} {sizes:?}");
    }
    let raid10 = [
        (5, 0x102, 25600, 10240),
        (4, 0x103, 13648, 10240),
        (7, 0x104, 17920, 10240),
        (5, 0x301, 17040, 10224),
        (3, 0x1_0301, 10224, 10224),
        (7, 0x203, 11936, 10240),
    ];
    for (raid_disks, layout, array_sectors, member_sectors) in raid10 {
        let layout = Layout::decode(Level::Raid10, layout, raid_disks).expect("md ran it");
        let shape = shape(Level::Raid10, layout, raid_disks, 10240);
        let geometry = geometry(&Shape { chunk_sectors: 16, ..shape });
        assert_eq!(geometry.array_sectors(), array_sectors);
        assert_eq!(geometry.member_sectors(), member_sectors);
    }
}
