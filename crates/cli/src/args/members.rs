//! A member as it is named on the command line.

use std::path::PathBuf;
use std::str::FromStr;

/// What stands in the place of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberArg {
    /// A file or block device.
    Path(PathBuf),
    /// Nothing: the array begins without this member.
    Missing,
}

impl FromStr for MemberArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "missing" {
            return Ok(Self::Missing);
        }
        local_path(text).map(Self::Path)
    }
}

/// A path on this machine. Storage nodes are named `node://...`.
pub(crate) fn local_path(text: &str) -> Result<PathBuf, String> {
    if text.starts_with("node://") {
        return Err("members on nodes are not in this version; name a file or a device".into());
    }
    Ok(PathBuf::from(text))
}
