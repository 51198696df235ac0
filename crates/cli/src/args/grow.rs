//! Another shape for an array that runs.

use std::path::PathBuf;

use braid_array::Refusal;
use clap::{ArgGroup, Args, ValueHint};

use super::nodes::NetworkArgs;
use super::size::{Size, parse_rounded, parse_size};

const GROW_HELP: &str = "\
    The plan is printed first: the shape before and after, the steps, how many members may fail \
    meanwhile, and how programs that use the array learn of a new size. All data move where disks \
    are added to levels 0, 4, 5, 6 and 10, and where these but level 0 get another layout or \
    other chunks: while they do, --undo moves them back, but those of level 0. Other changes that \
    would have to move data are refused. Devices of --add are checked as by braid add before \
    anything is changed; an array gets them as spares first, one of level 0 that gets another \
    level when that has changed. Over nodes volumes become longer, where their nodes have room, \
    or all data move to an array over more nodes, for which each node needs room besides what it \
    has.\n\n\
    Examples:\n  \
    braid grow home --size max\n  \
    braid grow home --raid-devices 5 --add /dev/sde\n  \
    braid grow home --pause\n  \
    braid grow home --undo\n  \
    braid grow home --level 6 --layout preserve --add /dev/sdd --dry-run\n  \
    braid grow home --level 5 --wait\n  \
    braid grow home --chunk 128K\n  \
    braid grow home --suspend-policy --chunk 64K --wait\n  \
    braid grow old --chunk 128K --spill /var/tmp/old.spill\n  \
    braid grow home --array-size 8M --raid-devices 3 --wait\n  \
    braid grow data --raid-devices 6 --add node://n6:7000 --wait";

#[derive(Debug, Args)]
#[command(after_help = GROW_HELP)]
#[command(group = ArgGroup::new("change")
    .args(["size", "level", "raid_devices", "layout", "chunk", "undo", "pause", "resume"])
    .required(true).multiple(true))]
pub(crate) struct GrowArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// Add a device for the roles that are new; may be repeated
    #[arg(long, short, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
    #[arg(num_args = 1.., conflicts_with = "size")]
    pub(crate) add: Vec<PathBuf>,
    /// Number of members of level 4, 5 or 6, more or fewer, of level 0, 10 or a linear array, more,
    /// or of copies of a mirror. With --level it is known: the number is only compared
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) raid_devices: Option<u32>,
    /// Another level
    #[arg(long, short)]
    pub(crate) level: Option<String>,
    /// Another layout of levels 4, 5, 6 and 10, by name: all data move. With --level, preserve:
    /// they stay where they are, in a layout that is not the usual one of the level
    #[arg(long, value_name = "LAYOUT|preserve", conflicts_with = "size")]
    pub(crate) layout: Option<String>,
    /// Chunks of another size for levels 4, 5, 6 and 10: all data move
    #[arg(long, short, value_name = "SIZE", value_parser = parse_size)]
    #[arg(conflicts_with_all = ["level", "raid_devices", "layout", "size", "add"])]
    pub(crate) chunk: Option<Size>,
    /// Move back what a reshape has moved: the array gets its shape of before
    #[arg(long)]
    #[arg(conflicts_with_all = ["level", "raid_devices", "layout", "size", "chunk", "add"])]
    pub(crate) undo: bool,
    /// Part of each member to use, more or less, in bytes unless K, M, G or T follows; max: all
    /// that the smallest has
    #[arg(long, short = 'z', value_name = "SIZE|max", value_parser = parse_new_size)]
    #[arg(conflicts_with_all = ["level", "raid_devices"])]
    pub(crate) size: Option<NewSize>,
    /// So much of an array that becomes smaller is in use, and what lies further may be lost: asked
    /// for where nothing tells what is on it. Less than this is not left
    #[arg(long, value_name = "SIZE", value_parser = parse_rounded)]
    #[arg(conflicts_with_all = ["level", "layout", "chunk", "undo", "pause", "resume", "add"])]
    pub(crate) array_size: Option<Size>,
    /// A log or journal may be off until the change is over, and come back then: the write hole
    /// is open meanwhile
    #[arg(long, conflicts_with_all = ["undo", "pause", "resume"])]
    pub(crate) suspend_policy: bool,
    /// Pause the reshape that is under way: no write waits for it
    #[arg(long, conflicts_with_all = ["size", "level", "raid_devices", "add", "resume"])]
    #[arg(conflicts_with_all = ["layout", "chunk", "undo"])]
    #[arg(conflicts_with_all = ["dry_run", "wait", "json"])]
    pub(crate) pause: bool,
    /// Let it go on
    #[arg(long, conflicts_with_all = ["size", "level", "raid_devices", "add"])]
    #[arg(conflicts_with_all = ["layout", "chunk", "undo"])]
    #[arg(conflicts_with_all = ["dry_run", "wait", "json"])]
    pub(crate) resume: bool,
    /// Where there is no room to move data by: have them move in place, and save to PATH first what
    /// is about to be overwritten. A file that is made, or a block device, on another disk
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["size", "array_size", "level", "undo", "pause", "resume"])]
    pub(crate) spill: Option<PathBuf>,
    /// Only print the plan; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Return when the work in the background that follows is done; show progress
    #[arg(long, short, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

/// The used part of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewSize {
    /// All that the smallest one has.
    Max,
    /// So much.
    Of(Size),
}

/// Reads a size, or `max`.
fn parse_new_size(text: &str) -> Result<NewSize, Refusal> {
    if text == "max" { Ok(NewSize::Max) } else { parse_rounded(text).map(NewSize::Of) }
}
