//! Low arguments: what was typed, before anything is made of it. Help, man pages and shell
//! completions come from these definitions alone. Each command makes high arguments, checked and
//! ready to use, of its own.

mod examples;
mod foreign;
mod grow;
mod integrity;
mod limit;
mod machine;
mod members;
mod monitor;
mod nodes;
mod odd;
mod parse;
#[cfg(test)]
mod reference;
mod rescue;
mod running;
mod size;
mod stored;
mod suggest;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};

pub(crate) use foreign::{md_device, typed_with};
pub(crate) use grow::{GrowArgs, NewSize};
pub(crate) use integrity::{IntegrityAction, IntegrityArgs};
pub(crate) use limit::{parse_max, parse_min, shown};
pub(crate) use machine::{ConfigAction, ConfigArgs, ConfigFileArgs, DownArgs, UpArgs};
pub use members::{MemberArg, NodeArg};
pub(crate) use members::{check_address, parse_node_address, parse_node_member};
pub(crate) use monitor::MonitorArgs;
pub(crate) use nodes::{
    ForgetArgs, KeyAction, KeyArgs, KeyFileArgs, NetworkArgs, NodeArgs, NodeCommand, NodeStopArgs,
    NodesArgs, VolumeArgs, VolumeCommand,
};
pub(crate) use odd::{GeometryArg, GeometryArgs, MapArgs, MapOf, OverlayArgs, ReshapeArgs};
pub(crate) use parse::parse;
pub use parse::parse_as;
pub(crate) use rescue::RecoverArgs;
pub(crate) use running::{
    AddArgs, DetailArgs, ExportAction, ExportArgs, FailArgs, IdentifyArgs, JournalModeArg,
    LimitArgs, MemberOfArgs, RemoveArgs, ReplaceArgs, ScrubArgs, StatusArgs, StopArgs, UpgradeArgs,
};
pub use size::{Size, parse_size};
pub use stored::WriteSchedule;
pub(crate) use stored::{
    AssembleArgs, CatArgs, CreateArgs, ExamineArgs, MetadataArg, NewPolicy, RenameArgs, ShapeArgs,
    SpeedArgs, UpdateArgs, ZeroArgs,
};
pub(crate) use suggest::{nearest, similar};

/// The file of arrays and nodes.
pub(crate) const CONFIG_FILE: &str = "/etc/braid/arrays.toml";

/// RAID in user space, in Linux md's own on-disk format.
#[derive(Debug, Parser)]
#[command(name = "braid", version, after_help = examples::BRAID, max_term_width = 100)]
#[command(propagate_version = true)]
pub(crate) struct Cli {
    /// Where running arrays keep their control sockets [default: $BRAID_RUN_DIR, else /run/braid
    /// for root and $XDG_RUNTIME_DIR/braid for others]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) run_dir: Option<PathBuf>,
    /// The same as -V
    #[arg(short = 'v', hide = true, action = ArgAction::Version)]
    _version: Option<bool>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant for each command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the superblocks of a new array; start nothing, unless its members are memory
    Create(CreateArgs),
    /// Find the members of an array, decide who is in, start it and serve it
    #[command(after_help = examples::ASSEMBLE)]
    Assemble(AssembleArgs),
    /// Flush an array, mark it clean, unmount it and end its process
    Stop(StopArgs),
    /// Start the arrays and nodes of a file, as it says
    Up(UpArgs),
    /// Stop arrays and nodes of a file
    Down(DownArgs),
    /// Look after the file of arrays and nodes
    Config(ConfigArgs),
    /// Show running arrays and their background work, and which arrays of the file do not run
    #[command(visible_alias = "list", alias = "ls", after_help = examples::STATUS)]
    Status(StatusArgs),
    /// Show the fields of `mdadm --detail` for a running array
    #[command(after_help = examples::DETAIL)]
    Detail(DetailArgs),
    /// Show the superblocks of members as stored, checksums verified
    #[command(after_help = examples::EXAMINE)]
    Examine(ExamineArgs),
    /// Find the geometry of an array whose superblocks are lost
    Recover(RecoverArgs),
    /// Change the consistency policy of an array that is stopped
    Update(UpdateArgs),
    /// Give an array that is stopped another name
    Rename(RenameArgs),
    /// Remove the superblocks of devices that are members no more
    ZeroSuperblock(ZeroArgs),
    /// Make a member faulty
    #[command(after_help = examples::FAIL)]
    Fail(FailArgs),
    /// Detach a faulty member or a spare; or all that have `failed`, or whose devices are
    /// `detached`
    Remove(RemoveArgs),
    /// Attach a device as a spare, or a node in the place of a lost one; recovery starts when the
    /// array is degraded
    Add(AddArgs),
    /// Take a member back into its old role, copying only what the bitmap marks (an array within
    /// an array is given everything)
    #[command(after_help = examples::RE_ADD)]
    ReAdd(MemberOfArgs),
    /// Copy a member to a spare while it still serves, then make it faulty
    Replace(ReplaceArgs),
    /// Give an array more of its members, more copies or another level, while it serves
    Grow(GrowArgs),
    /// Say what stands on the label of the disk that a member is, and have a light show it
    Identify(IdentifyArgs),
    /// Read all members and count where redundancy does not fit; write nothing
    #[command(visible_alias = "scrub", after_help = examples::CHECK)]
    Check(ScrubArgs),
    /// Read all members and rewrite redundancy where it does not fit
    #[command(after_help = examples::REPAIR)]
    Repair(ScrubArgs),
    /// Show and verify the checksums that lie beside the data of members
    Integrity(IntegrityArgs),
    /// Serve a running array in one more way, or in one less
    Export(ExportArgs),
    /// Have this program serve running arrays in the place of the one that does; clients stay
    Upgrade(UpgradeArgs),
    /// Set the speed of background work, pause or resume it; without options, show what is set
    #[command(alias = "sync")]
    Limit(LimitArgs),
    /// Tell of what happens to arrays, by mail, programs and webhooks; serve metrics and a page
    Monitor(MonitorArgs),
    /// Show all running arrays in a terminal, as they are now; q ends it
    #[command(after_help = examples::TOP)]
    Top,
    /// Write an array's content to stdout, without writing a byte to its members
    #[command(after_help = examples::CAT)]
    Cat(CatArgs),
    /// Show where each data and parity chunk of an array lies
    #[command(after_help = examples::LAYOUT)]
    Layout(LayoutArgs),
    /// Measure, side by side, beside the bound computed first, with the program braid-bench
    #[command(disable_help_flag = true, after_help = examples::BENCH)]
    Bench(BenchArgs),
    /// Keep volumes for arrays over nodes, until SIGTERM; or ask nodes, and tell them what to do
    #[command(after_help = examples::NODE)]
    Node(NodeArgs),
    /// The same as `braid node status`
    #[command(after_help = examples::NODE_STATUS)]
    Nodes(NodesArgs),
    /// Look after volumes of nodes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// The key that nodes and their clients have in common
    Key(KeyArgs),
    /// Write shell completions to stdout
    #[command(after_help = examples::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    #[command(after_help = examples::MAN)]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LayoutArgs {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Members that hold data, `missing` ones included
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) raid_devices: u32,
    /// Show one stripe over nodes, and the transfers with which it is written
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleName>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write schedule: the place where the parities of a stripe over nodes are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleName {
    /// The client, which sends them as it sends data
    Client,
    /// The nodes, each parity along a chain through them
    Chain,
    /// One node, another one for every stripe
    Encoder,
    /// The nodes, with as many shared transfers as are known; for some numbers of nodes
    Static,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What braid-bench is to do; see braid bench --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(required_unless_present = "names")]
    pub(crate) shell: Option<clap_complete::Shell>,
    /// Print the names of arrays that run or are configured, as the completions ask for them
    #[arg(long, hide = true, conflicts_with = "shell")]
    pub(crate) names: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definitions_hold_together() {
        super::Cli::command().debug_assert();
    }
}
