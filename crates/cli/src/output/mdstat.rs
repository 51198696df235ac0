//! The text of `/proc/mdstat` for our arrays, line by line as the kernel prints it.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::events::SyncAction;
use braid_array::format::superblock::devflag;
use braid_array::format::{Superblock, Version};
use braid_array::status::{ArrayState, BitmapStatus, MemberState, MemberStatus, Status};
use braid_cluster::family::{XOR2D_MD_LEVEL, XOR2D_NAME};
use braid_host::control::wire::ControlStatus;

use super::work::Work;
use super::{names, shape};

/// The whole file.
pub(crate) fn mdstat(arrays: &[ControlStatus]) -> String {
    let mut text = String::from(
        "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4] \n",
    );
    for array in arrays {
        one(&mut text, &array.name, &array.array);
        for child in &array.array.children {
            one(&mut text, &child.short_name(), child);
        }
    }
    text.push_str("unused devices: <none>\n");
    text
}

fn one(text: &mut String, name: &str, status: &Status) {
    let sb = &status.superblock;
    let read_only = if status.state == ArrayState::ReadOnly { " (read-only)" } else { "" };
    let name = names::in_mdstat(name);
    let _ = write!(text, "{name} : active{read_only} {}", shape::level_name(sb.level));
    let mut members: Vec<&MemberStatus> = status.members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.number));
    for member in members {
        let within = status.array_within(member.member).map(Status::short_name);
        let device = within.as_deref().unwrap_or_else(|| base_name(&member.device));
        let _ = write!(text, " {}{}", names::in_mdstat(device), flags(member));
    }
    let _ = write!(text, "\n      {} blocks", status.array_sectors / 2);
    if sb.version != Version::V0_90 {
        let _ = write!(text, " super {}", shape::version_name(sb.version));
    }
    personality(text, sb);
    if shape::has_redundancy(sb.level) {
        let marks = in_sync_marks(status);
        let working = marks.bytes().filter(|&mark| mark == b'U').count();
        let _ = write!(text, " [{}/{working}] [{marks}]", sb.raid_disks);
    }
    text.push_str("\n      ");
    if let Some(line) = sync_line(Work::of(status)) {
        let _ = write!(text, "{line}\n      ");
    }
    if let Some(bitmap) = &status.bitmap {
        text.push_str(&bitmap_line(bitmap));
    }
    text.push('\n');
}

fn flags(member: &MemberStatus) -> String {
    let mut flags = format!("[{}]", member.number);
    if member.devflags & devflag::WRITE_MOSTLY != 0 {
        flags.push_str("(W)");
    }
    match member.state {
        MemberState::Faulty => flags.push_str("(F)"),
        MemberState::Spare => flags.push_str("(S)"),
        MemberState::Journal => flags.push_str("(J)"),
        _ if member.replacement => flags.push_str("(R)"),
        _ => {}
    }
    flags
}

fn personality(text: &mut String, sb: &Superblock) {
    let chunk_kib = u64::from(sb.chunk_sectors) * SECTOR_BYTES / 1024;
    let [near, far, ..] = sb.layout.to_le_bytes();
    let far_kind = if sb.layout & 1 << 16 != 0 { "offset" } else { "far" };
    let _ = match sb.level {
        -1 => write!(text, " {chunk_kib}k rounding"),
        0 => write!(text, " {chunk_kib}k chunks"),
        4..=6 => {
            let level = sb.level;
            let layout = sb.layout;
            write!(text, " level {level}, {chunk_kib}k chunk, algorithm {layout}")
        }
        XOR2D_MD_LEVEL => write!(text, " level 6, {chunk_kib}k chunk, algorithm {XOR2D_NAME}"),
        10 if u32::from(near) < sb.raid_disks => write!(text, " {chunk_kib}K chunks"),
        _ => Ok(()),
    };
    if sb.level == 10 && near > 1 {
        let _ = write!(text, " {near} near-copies");
    }
    if sb.level == 10 && far > 1 {
        let _ = write!(text, " {far} {far_kind}-copies");
    }
}

/// Returns a `U` or `_` for each role.
pub(crate) fn in_sync_marks(status: &Status) -> String {
    let in_sync = |role: u32| {
        status.members.iter().any(|member| {
            member.role.map(|role| u32::from(role.0)) == Some(role)
                && member.state == MemberState::InSync
        })
    };
    (0..status.superblock.raid_disks).map(|role| if in_sync(role) { 'U' } else { '_' }).collect()
}

/// `[==>..................]  recovery = 10.2% (7124/64512) finish=0.1min speed=7124K/sec`.
fn sync_line(work: Work) -> Option<String> {
    let sync = match work {
        Work::None => return None,
        Work::Pending(action) => return Some(format!("\t{}=PENDING", word(action))),
        Work::Running(sync) => sync,
    };
    let action = word(sync.action);
    let total = sync.total_sectors.max(1);
    let done = sync.done_sectors.min(total);
    let per_mille = u64::try_from(u128::from(done) * 1000 / u128::from(total)).unwrap_or(1000);
    let filled = usize::try_from(per_mille / 50).unwrap_or(20);
    let bar = format!("[{}>{}]", "=".repeat(filled), ".".repeat(20 - filled));
    // What the kernel reckons when nothing was done in the last second.
    let finish_s = sync.finish_s.unwrap_or((total - done) / 32);
    Some(format!(
        "{bar}  {action} ={:3}.{}% ({}/{}) finish={}.{}min speed={}K/sec",
        per_mille / 10,
        per_mille % 10,
        done / 2,
        total / 2,
        finish_s / 60,
        finish_s % 60 / 6,
        sync.bytes_per_s / 1024,
    ))
}

/// The kernel has one word for resync and repair.
const fn word(action: SyncAction) -> &'static str {
    match action {
        SyncAction::Repair => SyncAction::Resync.name(),
        other => other.name(),
    }
}

/// The kernel holds 2048 counters of a bitmap on a page and allocates pages for dirty bits only.
fn bitmap_line(bitmap: &BitmapStatus) -> String {
    const BITS_PER_PAGE: u64 = 2048;
    let pages = bitmap.bits.div_ceil(BITS_PER_PAGE);
    let used = bitmap.dirty_bits.min(pages);
    let (chunk, unit) = match bitmap.chunk_bytes {
        bytes @ ..1024 => (bytes, "B"),
        bytes => (bytes / 1024, "KB"),
    };
    format!("bitmap: {used}/{pages} pages [{}KB], {chunk}{unit} chunk\n", used * 4)
}

/// Returns the last part of a path: the kernel's name of the device.
pub(crate) fn base_name(device: &str) -> &str {
    // The volumes of an array mostly have one name.
    if let Some(node) = device.strip_prefix("node://") {
        return node;
    }
    device.rsplit('/').find(|part| !part.is_empty()).unwrap_or(device)
}
