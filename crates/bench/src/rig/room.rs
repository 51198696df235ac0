//! Where a run may put things: below directories it was told of, and nowhere else.

use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug)]
pub struct Room {
    /// Of this run: files of members, mount points, sockets, logs; gone afterwards.
    pub scratch: PathBuf,
    /// Disks and files that were named to be used as members; none: files below `scratch`.
    pub members: Vec<PathBuf>,
    /// The command `braid` itself.
    pub braid: PathBuf,
}
