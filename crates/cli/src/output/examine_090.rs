//! `mdadm --examine` of a 0.90 superblock, which has fields that no later version has. Offsets as
//! in the kernel's `md_p.h` (`mdp_super_t`), little-endian.

use std::fmt::Write as _;

use super::examined::{Examined, field, layout, reshape};
use super::{human, shape, time};

const MINOR_VERSION_AT: usize = 8;
const PREFERRED_MINOR_AT: usize = 44;
const NR_DISKS_AT: usize = 36;
const RAID_DISKS_AT: usize = 40;
const STATE_AT: usize = 132;
const COUNTS_AT: usize = 136;
const SPARES_AT: usize = 148;
const DISKS_AT: usize = 512;
const THIS_DISK_AT: usize = 3968;
const DISK_BYTES: usize = 128;
const MAX_DISKS: u32 = 27;

fn word(raw: &[u8], at: usize) -> u32 {
    let bytes = raw.get(at..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The lines of `mdadm --examine`.
pub(super) fn text(member: &Examined) -> String {
    let sb = &member.superblock;
    let raw = &member.raw;
    let mut text = format!("{}:\n", member.device);
    field(&mut text, "Magic", "a92b4efc");
    field(&mut text, "Version", format!("0.{}.00", word(raw, MINOR_VERSION_AT)));
    field(&mut text, "UUID", sb.uuid_text());
    field(&mut text, "Creation Time", time::ctime(sb.ctime));
    field(&mut text, "Raid Level", shape::level_name(sb.level));
    let kib_both = |bytes: u64| format!("{}{}", bytes >> 10, human::size_both(bytes));
    if shape::has_redundancy(sb.level) {
        field(&mut text, "Used Dev Size", kib_both(sb.size_sectors * 512));
    }
    if let Some(bytes) = shape::array_bytes(sb) {
        field(&mut text, "Array Size", kib_both(bytes));
    }
    field(&mut text, "Raid Devices", sb.raid_disks);
    field(&mut text, "Total Devices", word(raw, NR_DISKS_AT));
    field(&mut text, "Preferred Minor", word(raw, PREFERRED_MINOR_AT));
    text.push('\n');
    reshape(&mut text, sb);
    field(&mut text, "Update Time", time::ctime(sb.utime));
    let clean = word(raw, STATE_AT) & 1 != 0;
    field(&mut text, "State", if clean { "clean" } else { "active" });
    if word(raw, STATE_AT) & 1 << 8 != 0 {
        field(&mut text, "Internal Bitmap", "present");
    }
    let labels = ["Active Devices", "Working Devices", "Failed Devices", "Spare Devices"];
    for (i, label) in labels.into_iter().enumerate() {
        field(&mut text, label, word(raw, COUNTS_AT + 4 * i));
    }
    field(&mut text, "Checksum", format!("{:x} - correct", member.checksum()));
    field(&mut text, "Events", sb.events);
    text.push('\n');
    layout(&mut text, sb);
    disks(&mut text, raw);
    text
}

fn disks(text: &mut String, raw: &[u8]) {
    text.push_str("      Number   Major   Minor   RaidDevice State\n");
    let _ = write!(text, "this ");
    disk(text, raw, THIS_DISK_AT);
    text.push('\n');
    // mdadm counts faulty devices in neither, and so does not reach as many entries.
    let shown = word(raw, RAID_DISKS_AT).saturating_add(word(raw, SPARES_AT)).min(MAX_DISKS);
    for number in 0..shown {
        let _ = write!(text, "{number:4} ");
        disk(text, raw, DISKS_AT + DISK_BYTES * number as usize);
    }
}

fn disk(text: &mut String, raw: &[u8], at: usize) {
    let [number, major, minor, role] = [0, 4, 8, 12].map(|field| word(raw, at + field));
    let state = word(raw, at + 16);
    let _ = write!(text, "{number:5}   {major:5}    {minor:5}    {role:5}      ");
    let names = [
        (0, "faulty "),
        (1, "active "),
        (2, "sync "),
        (3, "removed "),
        (9, "write-mostly "),
        (10, "failfast "),
    ];
    let set: String =
        names.iter().filter(|(bit, _)| state & 1 << bit != 0).map(|(_, name)| *name).collect();
    let words = if state & 0b1111 == 0 { format!("spare {set}") } else { set };
    let _ = writeln!(text, "{}", words.trim_end());
}

/// The line of `mdadm --examine --scan`.
pub(super) fn array_line(member: &Examined) -> String {
    let minor = word(&member.raw, PREFERRED_MINOR_AT);
    format!("ARRAY /dev/md{minor} UUID={}\n", member.superblock.uuid_text())
}
