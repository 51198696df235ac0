//! Mounted file systems, as listed in /proc/self/mountinfo (proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of mountinfo, the parts of it that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// Major and minor number of the file system: of its device, where it is on one.
    pub(crate) device: (u32, u32),
    /// Mountpoint.
    pub(crate) at: PathBuf,
    kind: Vec<u8>,
    /// A device, or the text of the file system instead.
    pub(crate) source: PathBuf,
}

impl MountLine {
    /// Returns whether it is a FUSE mount, served by a process.
    pub(crate) fn is_fuse(&self) -> bool {
        self.kind.starts_with(b"fuse")
    }

    /// Returns whether it is a mount of an array of ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_fuse() && self.source == Path::new(OURS)
    }
}

/// Mounts of this mount namespace.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<MountLine>);

impl Mounts {
    /// Reads all mounts, each after the one it hides; none where /proc cannot be read.
    pub(crate) fn read() -> Self {
        Self::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(mounted).collect())
    }

    /// Returns the other mountpoints of the file system at `mountpoint`, or of a part of it, and
    /// the mountpoints inside.
    pub(super) fn copies(&self, mountpoint: &Path) -> Vec<PathBuf> {
        let Some(own) = self.at(mountpoint) else { return Vec::new() };
        let other = |mount: &&MountLine| {
            let inside = mount.at.starts_with(mountpoint);
            mount.at != mountpoint && (inside || mount.device == own.device)
        };
        self.0.iter().filter(other).map(|mount| mount.at.clone()).collect()
    }

    /// Returns the mountpoints of a block device. Some file systems have a device number of their
    /// own; then the device's name decides.
    pub(super) fn of_device(&self, number: (u32, u32), name: &Path) -> Vec<PathBuf> {
        let on_it = |mount: &&MountLine| mount.device == number || mount.source == name;
        self.0.iter().filter(on_it).map(|mount| mount.at.clone()).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &MountLine> {
        self.0.iter()
    }

    /// Returns the mount at this real path.
    pub(crate) fn at(&self, mountpoint: &Path) -> Option<&MountLine> {
        // Of two mounts on one directory the later hides the earlier.
        self.0.iter().rfind(|mount| mount.at == mountpoint)
    }

    /// Returns the mount that a file with this real path is on.
    pub(crate) fn of_file(&self, path: &Path) -> Option<&MountLine> {
        path.ancestors().find_map(|directory| self.at(directory))
    }

    pub(super) fn is_ours(&self, mountpoint: &Path) -> bool {
        self.at(mountpoint).is_some_and(MountLine::is_ours)
    }
}

/// Source that our FUSE mounts name.
pub(crate) const OURS: &str = "braid";

/// Returns whether the mount at this real path, alive or dead, is one of our FUSE mounts.
#[must_use]
pub fn is_our_mount(mountpoint: &Path) -> bool {
    Mounts::read().is_ours(mountpoint)
}

/// `36 35 98:0 /root /mnt rw shared:1 - ext3 /dev/root rw`: any number of words before the dash.
fn mounted(line: &[u8]) -> Option<MountLine> {
    let mut words = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(words.nth(2)?).ok()?.split_once(':')?;
    let at = unescape(words.nth(1)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    Some(MountLine {
        device: (major.parse().ok()?, minor.parse().ok()?),
        at,
        kind: words.next()?.to_vec(),
        source: unescape(words.next()?),
    })
}

/// A path in which the kernel wrote blanks and backslashes as `\` and three octal digits.
pub(crate) fn unescape(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let [first, after @ ..] = rest {
        let code = if *first == b'\\' { after.get(..3) } else { None };
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}
