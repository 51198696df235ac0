//! Members that are missing, foreign, stale, damaged, or that tell too little.

use std::fs;

use braid_array::level::Level;
use braid_rescue::recover::{Confidence, Harvest, Structure, structures};

use super::laid::Case;
use super::made::{ext4, xfs};
use super::{assert_stale, expected, found, shuffled, told};
use crate::support::{Folder, have, run};

#[test]
fn missing_foreign_and_shifted_members_are_told() {
    if !have("missing_foreign_and_shifted_members_are_told", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-members");
    let content = ext4(&folder, 48, 75);
    let mut case = Case::new(Level::Raid5, "ls", 64, 4);
    case.offsets = vec![2048, 4096, 2048, 264];
    let laid = case.lay(&content);
    let told_of = |order: &[usize]| told(&found(&shuffled(laid.clone(), order)));
    let all = "2@2048 1@4096 3@2048 0@264";
    assert_eq!(told_of(&[3, 1, 0, 2]), expected(&case, all, "high"));
    let three = "2@2048 1@4096 - 0@264";
    assert_eq!(told_of(&[3, 1, 0]), expected(&case, three, "high"));
    // A disk of another array with a file system of its own, and one with noise.
    let mut members = shuffled(laid.clone(), &[3, 1, 0, 2]);
    let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    members.insert(2, (0..members[0].len() as u64).map(noise).collect());
    let ranked = found(&members);
    let beside = "3@2048 1@4096 4@2048 0@264";
    assert_eq!(told(&ranked), expected(&case, beside, "high"));
    let evidence = ranked[0].evidence.join("; ");
    assert!(evidence.contains("m2 is none of its members"), "{evidence}");
    assert!(evidence.contains("parity agrees in 100% of "), "{evidence}");
}

/// What was read of a disk is that of its partitions, too.
#[test]
fn a_part_of_what_was_read_is_what_is_read_of_the_part() {
    if !have("a_part_of_what_was_read", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-part");
    let member = Case::new(Level::Raid5, "ls", 64, 3).lay(&ext4(&folder, 48, 75)).swap_remove(1);
    let mut disk = vec![0; 1 << 20];
    disk.extend_from_slice(&member);
    // What lies behind the partition is not of it.
    disk.extend_from_slice(&member[1 << 20..]);
    let mut known = vec![Structure::DISK];
    structures(&mut &disk[..], 0..disk.len() as u64, &mut known);
    assert_eq!(known.len(), 2);
    let gathered = |mut bytes: &[u8]| {
        let mut harvest = Harvest::default();
        let all = 0..bytes.len() as u64;
        harvest.gather(&mut bytes, all, &known);
        harvest
    };
    let lines = |harvest: &Harvest| {
        let mut lines: Vec<String> = harvest.to_text().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let part = gathered(&disk).within(&(2048..2048 + member.len() as u64 / 512));
    let own = lines(&gathered(&member));
    assert!(own.len() > 50 && own == lines(&part), "{own:?}");
}

#[test]
fn a_stale_member_is_left_out() {
    if !have("a_stale_member_is_left_out", &["mkfs.ext4", "debugfs"]) {
        return;
    }
    let folder = Folder::new("recover-stale");
    let old = ext4(&folder, 48, 75);
    fs::write(folder.path("source"), vec![7; 9000]).unwrap();
    let files = (0..60).map(|file| format!("mkdir n{file}\nwrite source n{file}/f\n"));
    run(&folder, "debugfs -w ext4", &files.collect::<String>());
    let new = fs::read(folder.path("ext4")).unwrap();
    assert_stale(&old, &new, 64);
}

#[test]
fn what_cannot_be_told_is_no_more_than_a_guess() {
    if !have("what_cannot_be_told_is_no_more_than_a_guess", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-guess");
    // Hardly anything that tells where it belongs.
    let content = ext4(&folder, 16, 0);
    let members = Case::new(Level::Raid5, "ls", 512, 3).lay(&content);
    let ranked = found(&members);
    assert!(ranked.iter().all(|one| one.confidence != Confidence::High), "{ranked:#?}");
    assert!(found(&[vec![0; 1 << 20], vec![0; 1 << 20]]).is_empty());
    // Encrypted content: sums say that there is parity, and nothing says more.
    let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    let mut content: Vec<u8> = (0..8 << 20).map(noise).collect();
    content[..8].copy_from_slice(b"LUKS\xba\xbe\x00\x02");
    let case = Case::new(Level::Raid5, "ls", 512, 3);
    let ranked = found(&shuffled(case.lay(&content), &[1, 2, 0]));
    assert_eq!(told(&ranked), expected(&case, "2@2048 0@2048 1@2048", "guess"));
    let evidence = ranked[0].evidence.join("; ");
    assert!(evidence.contains("cannot be told: the content is encrypted (LUKS)"), "{evidence}");
    let mirror = Case::new(Level::Raid1, "", 0, 2);
    let ranked = found(&mirror.lay(&content[4096..]));
    assert_eq!(told(&ranked), expected(&mirror, "0@2048 1@2048", "likely"));
    // Controllers have other arrays than mirrors, too.
    let mut controlled = mirror.lay(&content[4096..]);
    for member in &mut controlled {
        let anchor = member.len() - 512;
        member[anchor..anchor + 4].copy_from_slice(b"\xde\x11\xde\x11");
    }
    let ranked = found(&controlled);
    assert_eq!(told(&ranked), expected(&mirror, "0@2048 1@2048", "guess"));
    let evidence = ranked[0].evidence.join("; ");
    assert!(evidence.contains("m0 is a member of a controller's array (DDF)"), "{evidence}");
    assert!(found(&[Vec::new()]).is_empty());
}

/// Whatever lies there instead, it is looked at to the end.
#[test]
fn damaged_members_do_no_harm() {
    if !have("damaged_members_do_no_harm", &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-damaged");
    let contents = [ext4(&folder, 16, 10), xfs(&folder)];
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (state >> 33) as usize % below
    };
    for round in 0..8 {
        let mut members = Case::new(Level::Raid5, "ls", 64, 3).lay(&contents[round % 2]);
        for member in &mut members {
            let written: Vec<usize> =
                (0..member.len() / 512).filter(|s| member[s * 512..][..512] != [0; 512]).collect();
            for _ in 0..2000 {
                let sector = written[draw(written.len())] * 512;
                member[sector + draw(512)] = draw(256) as u8;
            }
            let end = member.len() - draw(1 << 20) / 512 * 512;
            member.truncate(end);
        }
        for one in found(&members) {
            assert!(one.hypothesis.met <= one.hypothesis.of);
            assert!(!one.evidence.is_empty());
        }
    }
}
