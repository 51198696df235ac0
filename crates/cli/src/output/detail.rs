//! `mdadm --detail` for a running array: the text, the `--export` lines, the `ARRAY` line.

use std::fmt::Write as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use braid_array::SECTOR_BYTES;
use braid_array::events::SyncAction;
use braid_array::format::superblock::{devflag, feature};
use braid_array::format::{Superblock, Version};
use braid_array::status::{AbsentStatus, ArrayState, MemberState, MemberStatus, Status};
use braid_host::control::wire::ControlStatus;
use braid_host::fabric::Protection;

use super::work::Work;
use super::{conditions, human, last_scrub, names, shape, time};

/// The lines of `mdadm --detail`.
pub(crate) fn text(array: &ControlStatus) -> String {
    let mut text = one(&array.name, &array.array, Some(array));
    for child in &array.array.children {
        text.push('\n');
        text.push_str(&one(&child.short_name(), child, None));
    }
    let conditions = conditions::ids(&conditions::of_all(array));
    if !(array.disks.is_empty() && conditions.is_empty()) {
        text.push('\n');
    }
    for (member, disk) in &array.disks {
        field(&mut text, "Disk", format!("{member} is {}: {}", disk.device, disk.label()));
    }
    if !conditions.is_empty() {
        field(&mut text, "See", format!("braid help {}", conditions.join(" ")));
    }
    text
}

/// An array, or one that is a member of it.
fn one(name: &str, status: &Status, served: Option<&ControlStatus>) -> String {
    let sb = &status.superblock;
    let mut text = format!("{name}:\n");
    head(&mut text, status);
    if status.bitmap.is_some() {
        field(&mut text, "Intent Bitmap", "Internal");
        text.push('\n');
    }
    state(&mut text, status);
    layout(&mut text, sb);
    field(&mut text, "Consistency Policy", shape::consistency_policy(sb));
    text.push('\n');
    let progress = progress(Work::of(status));
    if let Some((label, percent)) = progress {
        field(&mut text, label, format!("{percent}% complete"));
    }
    reshape(&mut text, sb);
    if progress.is_some() || sb.has(feature::RESHAPE_ACTIVE) {
        text.push('\n');
    }
    if shape::has_redundancy(sb.level) {
        field(&mut text, "Sync Speed", super::limits(&status.sync));
        if let Some((scrub, found)) = served.and_then(last_scrub::words) {
            field(&mut text, if scrub == "repair" { "Last Repair" } else { "Last Check" }, found);
        }
        text.push('\n');
    }
    served.into_iter().for_each(|array| offered(&mut text, array));
    let witnesses = status.view.iter().flat_map(|view| &view.witnesses);
    for witness in witnesses {
        let away = if witness.reachable { "" } else { " (not reachable)" };
        field(&mut text, "Witness", format!("{}{away}", witness.address));
    }
    names(&mut text, sb);
    members(&mut text, status);
    text
}

/// Prints the exports of an array, and how its nodes are reached.
fn offered(text: &mut String, array: &ControlStatus) {
    if !array.exports.is_empty() {
        field(text, "Exports", array.exports.join(" "));
        text.push('\n');
    }
    array.protection.iter().for_each(|how| protected(text, how));
}

/// Prints the protection of the connections to nodes.
fn protected(text: &mut String, how: &Protection) {
    let Protection { fabric, authenticated, messages_sealed, nodes, .. } = how;
    field(text, "Fabric", fabric);
    let by = match (*authenticated, &how.limited_to) {
        (true, Some(_)) => "by a key limited to this array",
        (true, None) => "by cluster key",
        (false, _) => "no",
    };
    field(text, "Authenticated", by);
    field(text, "Sealed Messages", if *messages_sealed { "yes" } else { "no" });
    let slices = match how.nodes_with_sealed_slices {
        0 => "no".to_owned(),
        some if some == *nodes => "yes".to_owned(),
        some => format!("of {some} of {nodes} nodes"),
    };
    field(text, "Encrypted Slices", slices);
    text.push('\n');
}

fn field(text: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{label:>18} : {value}");
}

fn head(text: &mut String, status: &Status) {
    let sb = &status.superblock;
    let kib_both = |sectors: u64| {
        format!("{}{}", sectors / 2, human::size_both(sectors.saturating_mul(SECTOR_BYTES)))
    };
    field(text, "Version", shape::version_name(sb.version));
    field(text, "Creation Time", time::ctime(sb.ctime));
    field(text, "Raid Level", shape::level_name(sb.level));
    field(text, "Array Size", kib_both(status.array_sectors));
    if shape::has_redundancy(sb.level) {
        field(text, "Used Dev Size", kib_both(status.used_member_sectors));
    }
    field(text, "Raid Devices", sb.raid_disks);
    field(text, "Total Devices", status.members.len());
    field(text, "Persistence", "Superblock is persistent");
    text.push('\n');
}

fn state(text: &mut String, status: &Status) {
    let count = |wanted: fn(&MemberStatus) -> bool| {
        status.members.iter().filter(|member| wanted(member)).count()
    };
    let failed = count(|member| member.state == MemberState::Faulty);
    field(text, "Update Time", time::ctime(status.superblock.utime));
    // mdadm leaves a blank at the end of this line.
    field(text, "State", format!("{} ", state_words(status).join(", ")));
    field(text, "Active Devices", count(|member| member.state == MemberState::InSync));
    field(text, "Working Devices", status.members.len() - failed);
    field(text, "Failed Devices", failed);
    field(text, "Spare Devices", spares(status));
    text.push('\n');
}

/// Returns the number of spares as md counts them: rebuilding members are included.
fn spares(status: &Status) -> usize {
    let is_spare =
        |m: &&MemberStatus| matches!(m.state, MemberState::Spare | MemberState::Rebuilding);
    status.members.iter().filter(is_spare).count()
}

/// `clean`, `degraded`, `recovering`: the words of the `State` line.
pub(super) fn state_words(status: &Status) -> Vec<&'static str> {
    let clean = match status.state {
        ArrayState::Clean | ArrayState::ReadOnly => true,
        ArrayState::Active => false,
        ArrayState::Failed => shape::is_clean(&status.superblock),
    };
    let mut words = vec![if clean { "clean" } else { "active" }];
    if status.state == ArrayState::Failed {
        words.push("FAILED");
    } else if status.degraded > 0 {
        words.push("degraded");
    }
    words.extend(match Work::of(status) {
        Work::None => None,
        Work::Running(sync) => Some(work_words(sync.action).0),
        Work::Pending(action) => Some(work_words(action).1),
    });
    words
}

/// The word for work that goes on, that for work that stands still, and the label of its progress.
const fn work_words(action: SyncAction) -> (&'static str, &'static str, &'static str) {
    match action {
        SyncAction::Idle => ("idle", "idle", "Status"),
        SyncAction::Resync | SyncAction::Repair => {
            ("resyncing", "resyncing (PENDING)", "Resync Status")
        }
        SyncAction::Recovery => ("recovering", "recovering (PENDING)", "Rebuild Status"),
        SyncAction::Check => ("checking", "checking (PENDING)", "Check Status"),
        SyncAction::Reshape => ("reshaping", "reshaping (PENDING)", "Reshape Status"),
    }
}

/// Returns the progress of running work; like mdadm, none for pending work.
fn progress(work: Work) -> Option<(&'static str, u64)> {
    let Work::Running(sync) = work else { return None };
    let percent = u128::from(sync.done_sectors) * 100 / u128::from(sync.total_sectors.max(1));
    Some((work_words(sync.action).2, u64::try_from(percent).unwrap_or(100)))
}

/// Prints what a reshape changes.
fn reshape(text: &mut String, sb: &Superblock) {
    let Some((from, to)) = shape::of_reshape(sb) else { return };
    let delta = i64::from(to.raid_disks) - i64::from(from.raid_disks);
    if delta != 0 {
        let change = format!("{delta}, ({}->{})", from.raid_disks, to.raid_disks);
        field(text, "Delta Devices", change);
    }
    if to.level != from.level {
        field(text, "New Level", shape::level_name(to.level));
    }
    if (to.level, to.layout) != (from.level, from.layout)
        && to.level != 4
        && let Some(name) = shape::layout_name(&to)
    {
        field(text, "New Layout", name);
    }
    if to.chunk_sectors != from.chunk_sectors {
        field(text, "New Chunksize", format!("{}K", to.chunk_sectors / 2));
    }
}

fn layout(text: &mut String, sb: &Superblock) {
    // mdadm has this line for raid0 even where nothing is to be said.
    let unsaid = || (sb.level == 0).then(|| "-unknown-".to_owned());
    let said = if sb.level == 4 { None } else { shape::layout_name(sb) };
    if let Some(name) = said.or_else(unsaid) {
        field(text, "Layout", name);
    }
    let chunk_kib = u64::from(sb.chunk_sectors) * SECTOR_BYTES / 1024;
    if shape::has_chunk(sb.level) {
        field(text, "Chunk Size", format!("{chunk_kib}K"));
    } else if sb.level == -1 {
        field(text, "Rounding", format!("{chunk_kib}K"));
    }
    if sb.level != 1 {
        text.push('\n');
    }
}

fn names(text: &mut String, sb: &Superblock) {
    if sb.version != Version::V0_90 {
        field(text, "Name", format!("{}{}", sb.name(), super::local_note(&sb.name())));
    }
    field(text, "UUID", sb.uuid_text());
    let events = match sb.version {
        Version::V0_90 => format!("{}.{}", sb.events >> 32, sb.events & 0xffff_ffff),
        _ => sb.events.to_string(),
    };
    field(text, "Events", events);
    text.push('\n');
}

fn members(text: &mut String, status: &Status) {
    text.push_str("    Number   Major   Minor   RaidDevice State\n");
    for role in 0..status.superblock.raid_disks {
        let mut holders: Vec<&MemberStatus> =
            status.members.iter().filter(|member| holds(member, role)).collect();
        holders.sort_by_key(|member| member.replacement);
        if !holders.iter().any(|member| !member.replacement) {
            let _ = writeln!(text, "       -       0        0    {role:5}      removed");
        }
        for member in holders {
            member_line(text, status, member, Some(role));
        }
    }
    let others: Vec<&MemberStatus> = status
        .members
        .iter()
        .filter(|member| !(0..status.superblock.raid_disks).any(|role| holds(member, role)))
        .collect();
    if !others.is_empty() {
        text.push('\n');
    }
    for member in others {
        member_line(text, status, member, None);
    }
    for AbsentStatus { device, why } in status.view.iter().flat_map(|view| &view.absent) {
        let _ = writeln!(text, "\n       -       -        -        -      absent   {device}");
        let _ = writeln!(text, "                                            not taken in: {why}");
    }
}

/// Returns whether the member is listed under this role.
fn holds(member: &MemberStatus, role: u32) -> bool {
    let serves = matches!(member.state, MemberState::InSync | MemberState::Rebuilding);
    serves && member.role.map(|role| u32::from(role.0)) == Some(role)
}

fn member_line(text: &mut String, status: &Status, member: &MemberStatus, role: Option<u32>) {
    let (major, minor) = device_number(&member.device);
    let role_text = role.map_or_else(|| "-".to_owned(), |role| role.to_string());
    let mut words = match member.state {
        MemberState::InSync => "active sync".to_owned(),
        MemberState::Rebuilding => "spare rebuilding".to_owned(),
        MemberState::Spare => "spare".to_owned(),
        MemberState::Journal => "journal".to_owned(),
        MemberState::Faulty => "faulty".to_owned(),
    };
    if let (MemberState::InSync, Some(role)) = (member.state, role) {
        words.push_str(&mirror_set(&status.superblock, role));
    }
    if member.devflags & devflag::WRITE_MOSTLY != 0 {
        words.push_str(" writemostly");
    }
    if member.devflags & devflag::FAILFAST != 0 {
        words.push_str(" failfast");
    }
    if member.unreliable {
        words.push_str(" unreliable");
    }
    if let Some(ms) = member.slow_ms {
        let _ = write!(words, " slow ({ms} ms)");
    }
    let _ = writeln!(
        text,
        "   {:5}   {major:5}    {minor:5}    {role_text:>5}      {words}   {}",
        member.number, member.device
    );
    if let Some(why) = &member.refused {
        let _ = writeln!(text, "                                            not taken back: {why}");
    }
}

/// raid10 with near copies on a multiple of them: which of the mirrors a member belongs to.
fn mirror_set(sb: &Superblock, role: u32) -> String {
    let [near, far, rest @ ..] = sb.layout.to_le_bytes();
    let copies = u32::from(near);
    let fits = sb.level == 10 && far == 1 && rest == [0, 0] && (2..=26).contains(&copies);
    if !fits || !sb.raid_disks.is_multiple_of(copies) {
        return String::new();
    }
    let set = u8::try_from(role % copies).unwrap_or_default();
    format!(" set-{}", char::from(b'A' + set))
}

/// Major and minor of a block device; regular files have none.
fn device_number(path: &str) -> (u32, u32) {
    match std::fs::metadata(path) {
        Ok(data) if data.file_type().is_block_device() => {
            (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev()))
        }
        _ => (0, 0),
    }
}

/// The lines of `mdadm --detail --export`.
pub(crate) fn export(array: &ControlStatus) -> String {
    let sb = &array.array.superblock;
    let mut text = String::new();
    let _ = writeln!(text, "MD_LEVEL={}", shape::level_name(sb.level));
    let _ = writeln!(text, "MD_DEVICES={}", sb.raid_disks);
    let _ = writeln!(text, "MD_METADATA={}", shape::version_name(sb.version));
    let _ = writeln!(text, "MD_UUID={}", sb.uuid_text());
    let stored = sb.name();
    let name = names::in_export(&stored);
    if !name.is_empty() {
        let _ = writeln!(text, "MD_NAME={name}");
    }
    for member in &array.array.members {
        let key = export_key(&member.device);
        let serves = matches!(member.state, MemberState::InSync | MemberState::Rebuilding);
        let role = if serves { member.role } else { None };
        let role = role.map_or_else(|| "spare".to_owned(), |role| role.to_string());
        let _ = writeln!(text, "MD_DEVICE_{key}_ROLE={role}");
        let _ = writeln!(text, "MD_DEVICE_{key}_DEV={}", member.device);
    }
    text
}

/// `dev_sda` from `/dev/sda`.
fn export_key(device: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    device.trim_start_matches('/').chars().map(keep).collect()
}

/// The lines for mdadm.conf: of the arrays that are its members, then of the array.
pub(crate) fn array_lines(array: &ControlStatus) -> String {
    let children = array.array.children.iter();
    let mut text: String = children.map(|child| array_line(&child.short_name(), child)).collect();
    text.push_str(&array_line(&array.name, &array.array));
    text
}

fn array_line(name: &str, status: &Status) -> String {
    let sb = &status.superblock;
    let mut text = format!("ARRAY {}", names::conf_path(name));
    let _ = write!(text, " metadata={}", shape::version_name(sb.version));
    let spares = spares(status);
    if spares > 0 {
        let _ = write!(text, " spares={spares}");
    }
    text.push_str(&names::conf_field(&sb.name()));
    let _ = writeln!(text, " UUID={}", sb.uuid_text());
    text
}
