//! Names of members: a file or a block device, or a part of one.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::size;

/// A member by its name. `PATH` is all of a file or device, `PATH#N` its partition N, `PATH@OFFSET`
/// the rest from a byte on, and `PATH@OFFSET+SIZE` so many bytes of that; sizes as [`size::parse`]
/// takes them. If a file exists under the whole name, the name means that file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberName {
    /// The file or device.
    pub file: PathBuf,
    /// Part of the file or device; without, all of it.
    pub part: Option<DevicePart>,
}

/// A part of a file or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePart {
    /// The partition with this number, as Linux counts: from 1, logical ones from 5.
    Partition(u32),
    /// Bytes.
    Bytes {
        /// The first.
        offset: u64,
        /// Size; without, up to the end.
        size: Option<u64>,
    },
}

impl MemberName {
    /// Reads a name. A name is looked up only if it could be that of a part: the server of a file
    /// may never answer.
    #[must_use]
    pub fn of(name: &Path) -> Self {
        let whole = Self { file: name.to_owned(), part: None };
        let bytes = name.as_os_str().as_bytes();
        let Some(at) = bytes.iter().rposition(|byte| matches!(byte, b'#' | b'@')) else {
            return whole;
        };
        let (file, rest) = bytes.split_at(at);
        match str::from_utf8(rest).ok().and_then(part) {
            Some(part) if !file.is_empty() && fs::symlink_metadata(name).is_err() => {
                Self { file: OsString::from_vec(file.to_owned()).into(), part: Some(part) }
            }
            _ => whole,
        }
    }

    /// The name to use for it: the file's real path where that can be found.
    #[must_use]
    pub fn real(&self) -> PathBuf {
        let real = fs::canonicalize(&self.file).unwrap_or_else(|_| self.file.clone());
        Self { file: real, part: self.part }.name()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> PathBuf {
        let mut name = self.file.clone().into_os_string();
        if let Some(part) = self.part {
            name.push(part.to_string());
        }
        name.into()
    }
}

/// `#N`, `@OFFSET` or `@OFFSET+SIZE`.
fn part(text: &str) -> Option<DevicePart> {
    if let Some(number) = text.strip_prefix('#') {
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| number.parse().ok()).flatten()?;
        return (number > 0).then_some(DevicePart::Partition(number));
    }
    let range = text.strip_prefix('@')?;
    let (offset, size) = match range.split_once('+') {
        Some((offset, size)) => (offset, Some(size::parse(size).ok()?)),
        None => (range, None),
    };
    Some(DevicePart::Bytes { offset: size::parse(offset).ok()?, size })
}

impl fmt::Display for DevicePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Partition(number) => write!(f, "#{number}"),
            Self::Bytes { offset, size } => {
                write!(f, "@{}", size::typed(offset))?;
                size.map_or(Ok(()), |size| write!(f, "+{}", size::typed(size)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: &str, part: Option<DevicePart>) -> MemberName {
        MemberName { file: file.into(), part }
    }

    #[test]
    fn parts_are_told_from_files_of_such_a_name() {
        let of = |name: &str| MemberName::of(Path::new(name));
        let bytes = |offset, size| Some(DevicePart::Bytes { offset, size });
        assert_eq!(of("d.img#3"), named("d.img", Some(DevicePart::Partition(3))));
        assert_eq!(of("d@home#12"), named("d@home", Some(DevicePart::Partition(12))));
        assert_eq!(of("d.img@1M"), named("d.img", bytes(1 << 20, None)));
        assert_eq!(of("d.img@1M+4K"), named("d.img", bytes(1 << 20, Some(4096))));
        for whole in ["d.img", "d#", "d#x", "d#0", "d#+1", "#3", "@4K", "d@", "d@4K+", "d@home"] {
            assert_eq!(of(whole), named(whole, None), "{whole}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d.img#3");
        fs::write(&file, []).unwrap();
        assert_eq!(MemberName::of(&file), MemberName { file: file.clone(), part: None });
    }

    #[test]
    fn a_name_is_written_as_it_is_read() {
        for name in ["d.img", "d.img#3", "d.img@1M", "d.img@1536+64K"] {
            assert_eq!(MemberName::of(Path::new(name)).name(), Path::new(name));
        }
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap().join("d");
        fs::write(&real, []).unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let name = |path: &Path| PathBuf::from(format!("{}#2", path.display()));
        assert_eq!(MemberName::of(&name(&link)).real(), name(&real));
    }
}
