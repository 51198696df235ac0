//! The plan of `braid grow`: the shape before and after, the steps, and the exports that are to
//! hear of another size. The text, and the same as JSON.

mod nodes;

use std::fmt::Write as _;

use braid_array::format::Superblock;
use braid_array::format::ppl;
use braid_array::format::superblock::feature;
use braid_array::format::suspended::journal_number;
use braid_array::geometry::Geometry;
use braid_array::grow::NewShape;
use braid_array::level::{Layout, Level};
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_array::{Role, SECTOR_BYTES};
use braid_host::control::wire::ControlStatus;
use braid_host::serve::{ExportPlace, ExportSpec};
use braid_host::size;
use serde::Serialize;

use super::json::SCHEMA;
use super::{human, shape};

/// A planned change, as JSON prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Growth {
    schema: u32,
    name: String,
    /// Nothing is changed.
    pub(crate) dry_run: bool,
    from: ShapeJson,
    to: ShapeJson,
    steps: Vec<GrowthStep>,
    /// The policy that is off until the steps are done.
    suspends_policy: Option<&'static str>,
    /// Members that may fail until the steps are done.
    may_fail_meanwhile: u32,
    /// Members that may fail from then on.
    may_fail_after: u32,
    /// Exports that show another size, and how their users learn of it.
    exports: Vec<Notice>,
    /// The size is another one only when all data have moved.
    #[serde(skip)]
    moves: bool,
    /// Members that are missing, of the shape before.
    #[serde(skip)]
    missing: u32,
    /// The file that a move in place saves to, and its size in sectors.
    #[serde(skip)]
    pub(crate) spill: Option<(String, u64)>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct ShapeJson {
    level: String,
    layout: Option<String>,
    raid_devices: u32,
    chunk_bytes: u64,
    /// Used part of each member; 0 where members differ.
    member_bytes: u64,
    size_bytes: u64,
}

#[derive(Debug, Serialize)]
struct GrowthStep {
    action: &'static str,
    device: Option<String>,
    role: Option<u16>,
    /// Bytes that are written to that device, or brought in line on each.
    bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Notice {
    export: String,
    /// How its users learn of the size.
    notice: String,
    /// How a file system gets larger there, or what users of a smaller array do.
    next: String,
}

impl ShapeJson {
    fn of(superblock: &Superblock, member_sectors: u64, array_sectors: u64) -> Self {
        let has_layout = superblock.level > 4;
        Self {
            level: shape::level_name(superblock.level),
            layout: if has_layout { shape::layout_option(superblock) } else { None },
            raid_devices: superblock.raid_disks,
            chunk_bytes: u64::from(superblock.chunk_sectors) * SECTOR_BYTES,
            member_bytes: member_sectors * SECTOR_BYTES,
            size_bytes: array_sectors * SECTOR_BYTES,
        }
    }

    fn text(&self) -> String {
        let mut text = self.level.clone();
        if let Some(layout) = &self.layout {
            let _ = write!(text, ", {layout}");
        }
        let members = if self.raid_devices == 1 { "member" } else { "members" };
        let _ = write!(text, ", {} {members}", self.raid_devices);
        if self.chunk_bytes > 0 {
            let _ = write!(text, ", chunk {}", size::typed(self.chunk_bytes));
        }
        if self.member_bytes > 0 {
            let _ = write!(text, ", {} of each", human::size_binary(self.member_bytes));
        }
        let capacity = human::size_binary(self.size_bytes);
        text + &format!(": capacity {capacity} ({} bytes)", self.size_bytes)
    }
}

impl GrowthStep {
    fn text(&self) -> String {
        let device = self.device.as_deref().unwrap_or_default();
        let role = self.role.unwrap_or_default();
        let bytes = human::size_binary(self.bytes.unwrap_or_default());
        match self.action {
            "add" => format!("{device} is added"),
            "lengthen" => format!(
                "volumes become longer by {bytes}, which read as zeroes: nothing is to be resynced"
            ),
            "shorten" => format!("what lies behind {bytes} of the array is given up"),
            "takeover" => "superblocks tell of the new shape; data stay where they are".to_owned(),
            "reshape" => format!("all data move to the new shape, in the background: {bytes}"),
            "undo" => format!("what has moved moves back, in the background: {bytes}"),
            "resync" => format!("resync of what is new: {bytes} of each member"),
            "recovery" if device.is_empty() => {
                format!("role {role} has no device yet: recovery when one is added")
            }
            "recovery" => format!("recovery of role {role} onto {device}: {bytes}"),
            "remove" => format!("{device} leaves the array"),
            "disown" => format!("{device} is no member any more: remove it, then zero-superblock"),
            _ => format!("{device} becomes a spare"),
        }
    }
}

/// Returns the policy whose logs are off until the change is over.
fn suspended_policy(before: &Superblock) -> Option<&'static str> {
    if before.has(feature::ANY_PPL) || ppl::is_suspended(before) {
        return Some("ppl");
    }
    let has_journal = before.has(feature::JOURNAL) || journal_number(before).is_some();
    has_journal.then_some("journal")
}

impl Growth {
    /// Plans the change of an array to this shape, with devices that are added for it.
    pub(crate) fn of(
        array: &ControlStatus,
        new: &NewShape,
        to: &Geometry,
        added: &[String],
    ) -> Self {
        let status = &array.array;
        let before = &status.superblock;
        let mut after = Superblock {
            level: new.level.to_md(),
            layout: new.layout.encode(),
            raid_disks: new.raid_disks,
            chunk_sectors: new.chunk_sectors,
            ..before.clone()
        };
        after.feature_map &= !feature::RAID0_LAYOUT;
        let may_fail_after = spare_copies(new.level, new.layout, new.raid_disks);
        let may_fail_before = Level::from_md(before.level).map_or(0, |level| {
            let layout = Layout::decode(level, before.layout, before.raid_disks);
            layout.map_or(0, |layout| spare_copies(level, layout, before.raid_disks))
        });
        // Members that data move to have all that there is of their roles at once.
        let vacant = if new.moves() { 0 } else { new.vacant() };
        let vacant = u32::try_from(vacant).unwrap_or(u32::MAX);
        // Other changes want all of them, or give the last ones the roles of those that left.
        let missing = |disks: u32| if new.moves() { missing(status, disks) } else { 0 };
        let missing_before = missing(before.raid_disks);
        let missing_after = missing(before.raid_disks.min(new.raid_disks));
        let from_bytes = status.array_sectors * SECTOR_BYTES;
        let to_sectors = to.array_sectors();
        let to_bytes = to_sectors * SECTOR_BYTES;
        let grows = to_bytes > from_bytes;
        let exports = if to_bytes == from_bytes { &[] } else { array.exports.as_slice() };
        let told = exports.iter().filter_map(|export| notice(&array.name, export, grows));
        let may_fail_before = may_fail_before.saturating_sub(missing_before);
        let may_fail_after = may_fail_after.saturating_sub(missing_after);
        Self {
            schema: SCHEMA,
            name: array.name.clone(),
            dry_run: false,
            from: ShapeJson::of(before, status.used_member_sectors, status.array_sectors),
            to: ShapeJson::of(&after, new.size_sectors, to_sectors),
            steps: steps(status, new, to_sectors, added),
            suspends_policy: suspended_policy(before),
            may_fail_meanwhile: may_fail_before.min(may_fail_after.saturating_sub(vacant)),
            may_fail_after,
            exports: told.collect(),
            moves: new.moves(),
            missing: missing_before,
            spill: None,
        }
    }

    /// Returns the plan in words.
    pub(crate) fn plan(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.from.text());
        let _ = writeln!(text, "  becomes {}", self.to.text());
        for (number, step) in (1..).zip(&self.steps) {
            let _ = writeln!(text, "  {number}. {}", step.text());
        }
        if let Some(policy) = self.suspends_policy {
            let logs = if policy == "ppl" { "partial parity logs are" } else { "the journal is" };
            let open = "the write hole is open meanwhile";
            let _ = writeln!(text, "  {logs} off until it is over: {open}");
        }
        let may_fail = |count| match count {
            0 => "no member may fail".to_owned(),
            1 => "one member may fail".to_owned(),
            more => format!("{more} members may fail"),
        };
        let meanwhile = may_fail(self.may_fail_meanwhile);
        if self.may_fail_meanwhile == self.may_fail_after {
            let _ = writeln!(text, "  meanwhile and afterwards {meanwhile}");
        } else {
            let _ = writeln!(
                text,
                "  meanwhile {meanwhile}, afterwards {}",
                may_fail(self.may_fail_after)
            );
        }
        if self.moves && self.missing > 0 {
            let all = self.from.raid_devices;
            let _ = writeln!(
                text,
                "  {} of {all} members missing: add what is missing before, unless that cannot be",
                self.missing
            );
        }
        if let Some((path, sectors)) = &self.spill {
            let size = human::size_binary(sectors * SECTOR_BYTES);
            let _ = writeln!(text, "  what is about to be overwritten is saved to {path}: {size}");
        }
        for Notice { export, notice, .. } in &self.exports {
            let _ = writeln!(text, "  {export}: {notice}");
        }
        if self.dry_run {
            text.push_str("nothing was changed; without --dry-run it is done\n");
        }
        text
    }

    /// Returns what was done, and what is left to do.
    pub(crate) fn done(&self, sync: &str) -> String {
        let goes_on = self.moves && !sync.is_empty();
        let is = if goes_on { "becomes" } else { "now" };
        let mut text = format!("{}: {is} {}\n", self.name, self.to.text());
        if !sync.is_empty() {
            let _ = writeln!(text, "  {sync}");
        }
        let grows = self.to.size_bytes > self.from.size_bytes;
        let when = if goes_on && grows { "when that is over, " } else { "" };
        for Notice { export, next, .. } in &self.exports {
            let _ = writeln!(text, "  {export}: {when}{next}");
        }
        if let Some((path, _)) = &self.spill {
            let when = if goes_on { "keep it until that is over; then it" } else { "it" };
            let _ = writeln!(text, "  {path}: {when} can be deleted");
        }
        if self.exports.is_empty() && self.from.size_bytes != self.to.size_bytes {
            text.push_str("  no export shows the new size: braid export adds one\n");
        }
        text
    }
}

/// Sectors of each member that have copies of what is new once data have moved.
fn more_copies(status: &Status, new: &NewShape) -> u64 {
    let Ok(to) = new.geometry() else { return 0 };
    let more = to.array_sectors().saturating_sub(status.array_sectors);
    let copies = if new.level == Level::Raid10 { to.copies() } else { 0 };
    more * u64::from(copies) / u64::from(new.raid_disks)
}

/// Members that may be lost of a whole array, whichever they are.
const fn spare_copies(level: Level, layout: Layout, raid_disks: u32) -> u32 {
    match (level, layout) {
        (Level::Raid4 | Level::Raid5, _) => 1,
        (Level::Raid6, _) => 2,
        (Level::Raid1, _) => raid_disks.saturating_sub(1),
        (Level::Raid10, Layout::Raid10(layout)) => {
            (layout.near * layout.far).saturating_sub(1) as u32
        }
        _ => 0,
    }
}

/// Counts the first so many roles that nobody holds completely.
fn missing(status: &Status, disks: u32) -> u32 {
    let holds = |role: Role| {
        let mut members = status.members.iter();
        members.any(|it| it.state == MemberState::InSync && it.role == Some(role))
    };
    let missing = Role::all(u16::try_from(disks).unwrap_or(u16::MAX)).filter(|role| !holds(*role));
    missing.map(|_| 1).sum()
}

/// The members with roles that the new shape does not have.
fn beyond<'a>(status: &'a Status, new: &NewShape) -> impl Iterator<Item = &'a MemberStatus> {
    let disks = new.raid_disks;
    let is_beyond = move |role: Role| u32::from(role.0) >= disks;
    status.members.iter().filter(move |member| member.role.is_some_and(is_beyond))
}

/// The steps in their order.
fn steps(status: &Status, new: &NewShape, to_sectors: u64, added: &[String]) -> Vec<GrowthStep> {
    let step = |action, device: Option<&String>| GrowthStep {
        action,
        device: device.cloned(),
        role: None,
        bytes: None,
    };
    let bytes = |sectors: u64| Some(sectors * SECTOR_BYTES);
    let takes_spares = status.superblock.level != Level::Raid0.to_md();
    let adds: Vec<GrowthStep> = added.iter().map(|device| step("add", Some(device))).collect();
    // Stripes without redundancy have no place for a spare.
    let leaves = if takes_spares { "release" } else { "disown" };
    let release = beyond(status, new).map(|member| step(leaves, Some(&member.device)));
    if status.superblock.has(feature::RESHAPE_ACTIVE) {
        let position = status.superblock.reshape.position;
        // Where it moves towards the end, it came from there.
        let moved = if new.offset_sectors > 0 {
            position
        } else {
            status.array_sectors.saturating_sub(position)
        };
        let undo = GrowthStep { bytes: bytes(moved), ..step("undo", None) };
        return [undo].into_iter().chain(release).collect();
    }
    let stays = to_sectors.min(status.array_sectors);
    let shorten = (stays < status.array_sectors)
        .then(|| GrowthStep { bytes: bytes(stays), ..step("shorten", None) });
    if new.moves() {
        let reshape = GrowthStep { bytes: bytes(stays), ..step("reshape", None) };
        let resync = GrowthStep { bytes: bytes(more_copies(status, new)), ..step("resync", None) };
        let work = [reshape, resync].into_iter().filter(|step| step.bytes != Some(0));
        return adds.into_iter().chain(shorten).chain(work).chain(release).collect();
    }
    let takeover = step("takeover", None);
    let mut steps: Vec<GrowthStep> = shorten.into_iter().collect();
    let is_left = |role: Role| !matches!(new.roles.get(role.index()), Some(Some(_)));
    let released = status
        .members
        .iter()
        .filter(|member| member.state == MemberState::InSync && member.role.is_some_and(is_left));
    if new.level == Level::Raid0 {
        let spares = status.members.iter().filter(|member| member.role.is_none());
        let leaving = spares.chain(released);
        steps.extend(leaving.map(|member| step("remove", Some(&member.device))));
        steps.push(takeover);
    } else if takes_spares {
        steps.extend(adds);
        steps.push(takeover);
        steps.extend(released.map(|member| step("release", Some(&member.device))));
    } else {
        steps.push(takeover);
        steps.extend(adds);
    }
    let more = new.size_sectors.saturating_sub(status.used_member_sectors);
    if takes_spares && more > 0 {
        steps.push(GrowthStep { bytes: bytes(more), ..step("resync", None) });
    }
    let is_spare = |state| state == MemberState::Spare;
    let spares = status.members.iter().filter(|member| is_spare(member.state));
    let mut spares = spares.map(|member| &member.device).chain(added);
    for role in Role::all(u16::try_from(new.raid_disks).unwrap_or(u16::MAX)) {
        if !new.takes_spares() && !new.roles.contains(&Some(role)) {
            let recovery = step("recovery", spares.next());
            steps.push(GrowthStep {
                role: Some(role.0),
                bytes: bytes(new.size_sectors),
                ..recovery
            });
        }
    }
    steps
}

/// Says how the users of an export learn of the size. One with a size of its own keeps it.
fn notice(name: &str, export: &str, grows: bool) -> Option<Notice> {
    let spec: ExportSpec = export.parse().ok()?;
    if export.contains(",size=") {
        return None;
    }
    let extend = |device: &str| {
        if grows {
            format!("the file system there: resize2fs {device}, or xfs_growfs MOUNTPOINT")
        } else {
            format!("see that {device} is smaller")
        }
    };
    let (notice, next) = match &spec.place {
        ExportPlace::NbdUnix(_) | ExportPlace::NbdTcp(_) => (
            "clients see the new size when they connect again".to_owned(),
            format!("when its clients have connected again, {}", extend("/dev/nbdN")),
        ),
        ExportPlace::Fuse(mountpoint) => {
            let file = mountpoint.join(name);
            let file = file.display();
            let next = format!(
                "losetup -c /dev/loopN, if there is one on it; then {}",
                extend("/dev/loopN")
            );
            (format!("{file} has the new size at once"), next)
        }
        ExportPlace::VhostUser(_) => (
            "the guest is told at once, if its front end takes that (QEMU does)".to_owned(),
            format!("in the guest, {}", extend("/dev/vdX")),
        ),
        ExportPlace::Ublk(number) => {
            let device =
                number.map_or_else(|| "/dev/ublkbN".to_owned(), |it| format!("/dev/ublkb{it}"));
            let notice = format!(
                "{device} has the new size at once on Linux 6.16 and newer, else when the array is \
                 assembled again"
            );
            (notice, extend(&device))
        }
    };
    Some(Notice { export: export.to_owned(), notice, next })
}
