//! What is mounted where, as /proc/self/mountinfo tells (proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of mountinfo, the parts of it that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mounted {
    /// Major and minor number of the file system.
    device: (u32, u32),
    /// Where it is.
    at: PathBuf,
    kind: String,
    source: PathBuf,
}

/// What is mounted in this mount namespace.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<Mounted>);

impl Mounts {
    /// All of them; none where /proc cannot be read.
    pub(super) fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(mounted).collect())
    }

    /// Where else the file system at `mountpoint`, or a part of it, is mounted, and what is
    /// mounted inside.
    pub(super) fn copies(&self, mountpoint: &Path) -> Vec<PathBuf> {
        let Some(own) = self.0.iter().rfind(|mount| mount.at == mountpoint) else {
            return Vec::new();
        };
        let other = |mount: &&Mounted| {
            let inside = mount.at.starts_with(mountpoint);
            mount.at != mountpoint && (inside || mount.device == own.device)
        };
        self.0.iter().filter(other).map(|mount| mount.at.clone()).collect()
    }

    /// Where a block device is mounted. Some file systems have a device number of their own; then
    /// its name tells.
    pub(super) fn of_device(&self, number: (u32, u32), name: &Path) -> Vec<PathBuf> {
        let on_it = |mount: &&Mounted| mount.device == number || mount.source == name;
        self.0.iter().filter(on_it).map(|mount| mount.at.clone()).collect()
    }

    pub(super) fn is_ours(&self, mountpoint: &Path) -> bool {
        let top = self.0.iter().rfind(|mount| mount.at == mountpoint);
        top.is_some_and(|mount| mount.kind.starts_with("fuse") && mount.source == Path::new(OURS))
    }
}

/// What our FUSE mounts name as their source.
const OURS: &str = "braid";

/// Is what is mounted at this real path, alive or dead, one of our FUSE mounts?
#[must_use]
pub fn is_our_mount(mountpoint: &Path) -> bool {
    Mounts::read().is_ours(mountpoint)
}

/// `36 35 98:0 /root /mnt rw shared:1 - ext3 /dev/root rw`: any number of words before the dash.
fn mounted(line: &str) -> Option<Mounted> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ').skip(2);
    let (major, minor) = head.next()?.split_once(':')?;
    let at = unescape(head.nth(1)?);
    let mut tail = tail.split(' ');
    Some(Mounted {
        device: (major.parse().ok()?, minor.parse().ok()?),
        at,
        kind: tail.next()?.to_owned(),
        source: unescape(tail.next()?),
    })
}

/// Blanks, tabs, line ends and backslashes are written `\040` and so on.
pub(super) fn unescape(word: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        bytes.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}
