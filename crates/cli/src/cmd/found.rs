//! Members, as named or as found by looking at all block devices: opened, locked and read.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use braid_array::Role;
use braid_array::assemble::{self, Assembly, Candidate, Config, Options, Start};
use braid_array::format::{Superblock, SuperblockError};
use braid_array::refusal::Next;
use braid_cluster::family::XOR2D_MD_LEVEL;
use braid_host::member::{self, MemberFile, MemberName, Mode, OpenError};

use crate::args::{MemberArg, NodeArg, md_device, typed_with};
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::entry::lasting;
use crate::output::shape::short_name;

/// Purpose of opening members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use<'a> {
    /// Examining them, also while in use.
    Look,
    /// Examining them through the changes in this directory.
    LookThrough(&'a Path),
    /// Reading them; writers are excluded.
    Read,
    /// Serving them read-only.
    ServeReadOnly,
    /// Serving them read-only, through the changes in this directory.
    ServeThrough(&'a Path),
    /// Serving or changing them.
    Serve,
    /// Serving them, with all writes going to this directory.
    Overlay(&'a Path),
}

impl<'a> Use<'a> {
    /// To be changed; in a directory if one is given, else in place.
    pub(super) fn change(overlay: Option<&'a Path>) -> Self {
        overlay.map_or(Self::Serve, Self::Overlay)
    }

    /// Serves members read-only, through the changes in a directory if one is given.
    pub(super) fn serve_read_only(overlay: Option<&'a Path>) -> Self {
        overlay.map_or(Self::ServeReadOnly, Self::ServeThrough)
    }

    /// Examines members, through the changes in a directory if one is given.
    pub(super) fn look(overlay: Option<&'a Path>) -> Self {
        overlay.map_or(Self::Look, Self::LookThrough)
    }
}

/// A device and its metadata.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) device: MemberFile,
    pub(super) candidate: Candidate,
}

/// An array's name, if one was given, and the members that were.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: Option<String>,
    pub(super) members: Members,
}

/// Members that are there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Members {
    /// Files and block devices; maybe none.
    Paths(Vec<PathBuf>),
    /// Volumes on nodes; at least one.
    Nodes(Vec<NodeArg>),
}

impl Named {
    /// Tells a name from members.
    pub(super) fn parse(operation: &str, words: &[String]) -> Result<Self, Failure> {
        if let Some(first) = words.first()
            && let Some(name) = md_device(first)
            && !Path::new(first).exists()
        {
            let next = format!("use {}", typed_with(first, name));
            return Err(Failure::usage(operation, first, "an array has a name, no device", next));
        }
        let (name, rest) = match words.split_first() {
            Some((first, rest)) if !is_member(first) => (Some(first.clone()), rest),
            _ => (None, words),
        };
        let mut paths = Vec::new();
        let mut nodes = Vec::new();
        for word in rest {
            let usage = |reason: &str, next: Next| Failure::usage(operation, word, reason, next);
            match MemberArg::existing(word) {
                Ok(MemberArg::Node(node)) => nodes.push(node),
                Ok(MemberArg::Memory(_)) => {
                    let next = "braid create makes an array in memory and serves it at once";
                    return Err(usage("memory holds no array", next.into()));
                }
                Ok(MemberArg::Path(path)) => paths.push(path),
                Ok(MemberArg::Missing) => paths.push(PathBuf::from(word)),
                Err(why) => return Err(usage(&why.reason, why.next)),
            }
        }
        let members = match (paths.is_empty(), nodes.is_empty()) {
            (_, true) => Members::Paths(paths),
            (true, false) => Members::Nodes(nodes),
            (false, false) => return Err(mixed(operation, &nodes[0])),
        };
        Ok(Self { name, members })
    }
}

/// Returns whether the word is a member rather than a name: a word with a slash or the prefix
/// `mem:`, or the name of a file or device.
pub(super) fn is_member(word: &str) -> bool {
    let file = MemberName::of(Path::new(word)).file;
    let is_device = || std::fs::metadata(file).is_ok_and(|data| !data.is_dir());
    word.contains('/') || word.starts_with("mem:") || is_device()
}

/// Members on nodes and local ones were named together.
pub(super) fn mixed(operation: &str, node: &NodeArg) -> Failure {
    let reason = "an array has either all of its members on nodes or none";
    Failure::usage(operation, node, reason, "name members of one kind")
}

/// The members of an array that is stopped: those that are paths, and those on nodes.
pub(super) fn stopped_members(
    operation: &str,
    name: &str,
    members: &[MemberArg],
) -> Result<(Vec<PathBuf>, Vec<NodeArg>), Failure> {
    let mut paths = Vec::new();
    let mut nodes = Vec::new();
    for member in members {
        match member {
            MemberArg::Path(path) => paths.push(path.clone()),
            MemberArg::Node(node) => nodes.push(node.clone()),
            MemberArg::Memory(_) | MemberArg::Missing => {
                let reason = "memory holds no array that is stopped";
                return Err(Failure::usage(operation, name, reason, "name the files or devices"));
            }
        }
    }
    Ok((paths, nodes))
}

/// Opens members and reads their metadata. All must be there.
pub(super) fn open_all(
    operation: &str,
    paths: &[PathBuf],
    purpose: Use<'_>,
) -> Result<Vec<Found>, Failure> {
    let failed = |error: member::OpenError| {
        let object = error.path.display().to_string();
        let next = match purpose {
            Use::Serve if error.readable => {
                format!("{}, or use --readonly", error.next.advice).into()
            }
            _ => error.next,
        };
        Failure::refused(operation, object, error.reason, next)
    };
    // The real name is what status shows and what later commands are compared with.
    let real = |path: &Path| MemberName::of(path).real();
    let devices = open_distinct(paths, |path| open(&real(path), purpose)).map_err(failed)?;
    Ok(devices.into_iter().map(read).collect())
}

/// Returns the holders of superblocks under these names. A disk with a partition table, and without
/// a superblock of its own, is replaced by its partitions.
pub(super) fn inside(names: &[PathBuf]) -> Vec<PathBuf> {
    names.iter().flat_map(|name| member::inside(name)).collect()
}

/// Opens the readable paths and reads their metadata. Returns the other paths with the reasons. A
/// repeated path is examined once.
pub(super) fn look(paths: &[PathBuf]) -> (Vec<Found>, Vec<member::OpenError>) {
    look_as(paths, Use::Look)
}

/// Opens and reads paths like [`look`], for this purpose.
pub(super) fn look_as(paths: &[PathBuf], purpose: Use<'_>) -> (Vec<Found>, Vec<member::OpenError>) {
    let mut found = Vec::new();
    let mut odd = Vec::new();
    for path in paths {
        match open(path, purpose) {
            Ok(device) => found.push(device),
            Err(error) => odd.push(error),
        }
    }
    if member::check_distinct(&found).is_err() {
        let mut kept: Vec<MemberFile> = Vec::new();
        for device in found {
            match member::check_distinct(kept.iter().chain([&device])) {
                Ok(()) => kept.push(device),
                Err(error) => odd.push(error),
            }
        }
        found = kept;
    }
    (found.into_iter().map(read).collect(), odd)
}

/// Opens members after it is known that none comes twice: the lock of the first would look like
/// that of another process to the second.
pub(super) fn open_distinct(
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<MemberFile, member::OpenError>,
) -> Result<Vec<MemberFile>, member::OpenError> {
    let looked_at = paths.iter().map(|path| member::peek(path)).collect::<Result<Vec<_>, _>>()?;
    member::check_distinct(&looked_at)?;
    drop(looked_at);
    paths.iter().map(|path| open(path)).collect()
}

pub(super) fn open(path: &Path, purpose: Use<'_>) -> Result<MemberFile, member::OpenError> {
    match purpose {
        Use::Look => member::peek(path),
        Use::LookThrough(dir) => member::peek_through(path, dir),
        Use::Read => member::open(path, Mode::ReadOnly, false),
        Use::ServeReadOnly => member::open(path, Mode::ReadOnly, true),
        Use::ServeThrough(dir) => member::open(path, Mode::ReadOnly, true)?.through(dir),
        Use::Serve => member::open(path, Mode::ReadWrite, true),
        Use::Overlay(dir) => member::open(path, Mode::Overlay(dir), true),
    }
}

/// Reads the metadata of a device.
pub(super) fn read(mut device: MemberFile) -> Found {
    let mut candidate = member::probe_with_log(&device);
    if candidate.superblock == Err(SuperblockError::NoMagic) && device.trim_excess() {
        candidate = member::probe_with_log(&device);
    }
    Found { device, candidate }
}

impl Found {
    /// Extends a cut-off image to the size in its superblock, for reading: the missing end counts
    /// as unreadable. Returns whether it was extended.
    pub(super) fn filled_up(self) -> (Self, bool) {
        let Self { mut device, candidate } = self;
        let needed =
            candidate.superblock.as_ref().ok().map_or(0, |superblock| {
                superblock.data_offset.saturating_add(superblock.data_size)
            });
        if device.fill_up(needed) {
            (read(device), true)
        } else {
            (Self { device, candidate }, false)
        }
    }

    /// Returns a remark on the device, in addition to its verdict.
    fn remark(&self, is_cut: bool) -> Option<String> {
        let device = &self.candidate.device;
        let is_marked = self.candidate.superblock.as_ref().is_ok_and(|sb| sb.error_mark);
        let marked =
            is_marked.then(|| format!("{device} has Synology's mark of a disk with errors"));
        let cut =
            is_cut.then(|| format!("{device} is cut off: what is missing counts as unreadable"));
        marked.or(cut)
    }
}

/// Prepares members for use; cut-off images are extended if the members are only read. Returns the
/// members, remarks, and whether one was cut off.
pub(super) fn to_use(found: Vec<Found>, is_read: bool) -> (Vec<Found>, Vec<String>, bool) {
    let mut remarks = Vec::new();
    let mut any_cut = false;
    let each = found.into_iter().map(|one| {
        let (one, is_cut) = if is_read { one.filled_up() } else { (one, false) };
        remarks.extend(one.remark(is_cut));
        any_cut |= is_cut;
        one
    });
    let found = each.collect();
    (found, remarks, any_cut)
}

/// Decides which members are attached. A level that only nodes run is refused with a reason of its
/// own.
pub(super) fn decide(candidates: Vec<Candidate>, options: Options) -> Assembly {
    let mut assembly = assemble::decide(candidates, options);
    let xor2d = assembly.newest.as_ref().is_some_and(|sb| sb.level == XOR2D_MD_LEVEL);
    if let Start::Refused { reason, next, .. } = &mut assembly.start
        && xor2d
    {
        *reason = "the array is a raid6 with layout xor2d, which runs over nodes alone".to_owned();
        *next = "serve each member with braid node, and name them node://HOST:PORT/VOLUME".into();
    }
    assembly
}

/// Takes the members of a configuration out of `from`, in the order of their ids.
pub(super) fn in_order<T>(
    config: &Config,
    from: &mut Vec<T>,
    device: impl Fn(&T) -> String,
) -> Vec<T> {
    let take = |wanted: &String| {
        let at = from.iter().position(|one| device(one) == *wanted);
        from.swap_remove(at.expect("a configuration names candidates only"))
    };
    config.members.iter().map(|member| &member.device).map(take).collect()
}

/// The devices of each array among all block devices, for which `wanted` holds.
pub(super) fn scan(
    operation: &str,
    wanted: impl Fn(&Superblock) -> bool,
) -> Result<Vec<Vec<PathBuf>>, Failure> {
    let devices = member::scan().map_err(|error| {
        let reason = system_error(&error);
        Failure::refused(operation, "/proc/partitions", reason, "name the members")
    })?;
    let mut arrays: Vec<([u8; 16], Vec<PathBuf>)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut unread = Unread::of(devices.len());
    for path in devices {
        let device = match member::peek(&path) {
            Ok(device) => device,
            Err(error) => {
                unread.note(&path, &error);
                continue;
            }
        };
        if !member::identity(&device.file).is_ok_and(|identity| seen.insert(identity)) {
            continue;
        }
        let superblock = match read(device).candidate.superblock {
            Ok(superblock) => superblock,
            Err(error @ SuperblockError::Read { .. }) => {
                unread.failed(&path, &error);
                continue;
            }
            Err(_) => continue,
        };
        if !wanted(&superblock) {
            continue;
        }
        match arrays.iter_mut().find(|(uuid, _)| *uuid == superblock.set_uuid) {
            Some((_, members)) => members.push(path),
            None => arrays.push((superblock.set_uuid, vec![path])),
        }
    }
    unread.conclude(operation)?;
    Ok(arrays.into_iter().map(|(_, members)| members).collect())
}

/// Returns the block devices that have one of these roles of an array, by names that they keep.
pub(super) fn holders(uuid: [u8; 16], roles: &[Role]) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let superblock = member::peek(path).ok().and_then(|it| read(it).candidate.superblock.ok());
        let role = superblock.filter(|it| it.set_uuid == uuid).and_then(|it| it.role().active());
        role.is_some_and(|role| roles.contains(&role))
    };
    let devices = member::scan().unwrap_or_default().into_iter().filter(holds);
    devices.map(|device| lasting(&device)).collect()
}

/// Count of block devices that cannot be opened or read, and whose content is therefore unknown.
#[derive(Debug)]
pub(super) struct Unread {
    devices: usize,
    unread: usize,
    first: Option<String>,
}

impl Unread {
    /// Starts a count over this number of devices.
    pub(super) const fn of(devices: usize) -> Self {
        Self { devices, unread: 0, first: None }
    }

    /// Counts a device that cannot be opened. A drive without a medium does not count: it holds no
    /// member.
    pub(super) fn note(&mut self, path: &Path, error: &OpenError) {
        if error.empty {
            self.devices -= 1;
        } else {
            self.failed(path, &error.reason);
        }
    }

    fn failed(&mut self, path: &Path, reason: impl Display) {
        self.unread += 1;
        self.first.get_or_insert_with(|| format!("{}: {reason}", path.display()));
    }

    /// Says how many there were; when it was all of them, that is an error.
    pub(super) fn conclude(self, operation: &str) -> Result<(), Failure> {
        let Self { devices, unread, first: Some(first) } = self else { return Ok(()) };
        let next = where_to_look(rustix::process::geteuid().is_root());
        if unread < devices {
            let line = format!("{unread} of {devices} block devices cannot be read ({first})");
            output::warning(&format!("{operation} --scan: {line}; {next}"));
            return Ok(());
        }
        let reason = format!("none of the {devices} block devices can be read ({first})");
        Err(Failure::refused(operation, "--scan", reason, next))
    }
}

/// Returns advice for unreadable devices. Root is not advised to run as root.
const fn where_to_look(is_root: bool) -> &'static str {
    if is_root {
        "name the members, or see the kernel's log for what is wrong with them"
    } else {
        "run as root, or name the members"
    }
}

/// Returns whether this is the name of the array, with or without the host in front, or its UUID.
pub(super) fn is_called(superblock: &Superblock, name: &str) -> bool {
    let full = superblock.name();
    let digits = |text: &str| text.replace([':', '-'], "").to_ascii_lowercase();
    let has_name = !full.is_empty() && (full == name || short_name(&full) == name);
    has_name || digits(name) == digits(&superblock.uuid_text())
}

/// The members of the one array of this name or UUID, for a command that could be typed with
/// MEMBERs behind `words`.
pub(super) fn by_name(operation: &str, name: &str, words: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = scan(operation, |superblock| is_called(superblock, name))?;
    match (found.pop(), found.is_empty()) {
        (Some(members), true) => Ok(members),
        (None, _) => {
            let reason = "no block device belongs to an array of this name";
            let next = format!("name the members: braid {operation} {words} MEMBER...");
            Err(Failure::refused(operation, name, reason, next))
        }
        (Some(_), false) => {
            let reason = "several arrays have this name";
            let next = "use a UUID, see braid examine --scan; or name the members";
            Err(Failure::refused(operation, name, reason, next))
        }
    }
}

/// Groups the devices by array. Devices without a superblock join the first group, and lead to its
/// refusal.
pub(super) fn groups(found: Vec<Found>) -> Vec<Vec<Found>> {
    let mut groups: Vec<(Option<[u8; 16]>, Vec<Found>)> = Vec::new();
    for one in found {
        let uuid = one.candidate.superblock.as_ref().ok().map(|superblock| superblock.set_uuid);
        match groups
            .iter_mut()
            .find(|(known, _)| known.is_none() || uuid.is_none() || *known == uuid)
        {
            Some((known, members)) => {
                *known = known.or(uuid);
                members.push(one);
            }
            None => groups.push((uuid, vec![one])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_be_root() {
        assert!(!where_to_look(true).contains("root"));
        assert!(where_to_look(false).contains("root"));
    }

    #[test]
    fn a_drive_without_a_medium_is_no_device_that_cannot_be_read() {
        let refused = |empty| OpenError {
            path: "/dev/sr0".into(),
            reason: "is not there".into(),
            next: "look".into(),
            readable: false,
            empty,
        };
        let mut unread = Unread::of(1);
        unread.note(Path::new("/dev/sr0"), &refused(true));
        assert!(unread.conclude("assemble").is_ok());
        let mut unread = Unread::of(2);
        unread.note(Path::new("/dev/sr0"), &refused(true));
        unread.note(Path::new("/dev/sda"), &refused(false));
        let failure = unread.conclude("assemble").unwrap_err();
        assert!(failure.reason().starts_with("none of the 1 block devices can be read (/dev/sda"));
    }
}
