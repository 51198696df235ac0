//! Commands to arrays that have to be found again.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::odd::{MapArgs, OverlayArgs};

const RECOVER_HELP: &str = "\
Members are read in samples, and by whoever else uses them. What is found are hypotheses, the one \
with most evidence first, each with the command that serves it to readers: look at the content \
before anything is written. Level, layout, chunk, order and the place of the data follow from \
blocks of file systems that say where they belong (XFS, btrfs, NTFS, and ext4 with checksums of \
metadata); parity and copies confirm that. Whole disks may be named for the partitions that are \
members.

Superblocks are written for a hypothesis of high confidence only. What they overwrite is saved \
before, in a file whose name is printed; with --overlay the members stay as they are.

Examples:
  braid recover /dev/sdb /dev/sdc /dev/sdd
  braid recover disk1.img disk2.img disk3.img --json
  braid recover --write-superblocks nas /dev/sdb /dev/sdc /dev/sdd
  braid recover --undo braid-recover-nas.saved
  braid recover --write-superblocks nas --overlay /srv/try /dev/sdb /dev/sdc /dev/sdd";

#[derive(Debug, Args)]
#[command(after_help = RECOVER_HELP)]
pub(crate) struct RecoverArgs {
    /// Files and block devices, in any order: what may have been a member, or a disk with one in
    /// a partition
    #[arg(required_unless_present = "undo", value_name = "MEMBER")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) maps: MapArgs,
    #[command(flatten)]
    pub(crate) overlay: OverlayArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep what has been read in braid-recover.state in this directory while the search is under
    /// way, and go on from there with a search that was interrupted
    #[arg(long)]
    pub(crate) resume: bool,
    /// Write the superblocks of the array that was found, which is to be called NAME
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub(crate) write_superblocks: Option<String>,
    /// Put back what --write-superblocks has overwritten, and saved in FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["members", "json", "write_superblocks", "mapfile", "resume"])]
    #[arg(conflicts_with = "overlay")]
    pub(crate) undo: Option<PathBuf>,
}
