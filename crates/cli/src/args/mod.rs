//! Low arguments: what was typed, before anything is made of it. Help, man pages and shell
//! completions come from these definitions alone. Each command makes high arguments, checked and
//! ready to use, of its own.

mod members;
mod nodes;
mod parse;
mod size;
mod suggest;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use members::{MemberArg, NodeArg};
pub(crate) use members::{check_address, parse_witness};
pub(crate) use nodes::{
    ForgetArgs, KeyAction, KeyArgs, KeyFileArgs, NetworkArgs, NodeArgs, NodeCommand, NodeStopArgs,
    NodesArgs, VolumeArgs, VolumeCommand,
};
pub(crate) use parse::parse;
pub use parse::parse_as;
pub(crate) use size::parse_limit;
pub use size::{Size, parse_size};
pub(crate) use suggest::similar;

const EXIT_CODES: &str = "Exit status: 0 done; 1 refused or failed; 2 wrong usage.\n\
    check --wait: 1 also when something differs or could not be read; repair --wait: could not be \
    read.\n\
    detail --test: 0 healthy, 1 degraded, 2 not usable, 4 no such array.";

const STOP_HELP: &str = "\
    Who uses the array is named and stands against it: programs that have its file open, loop \
    devices and what is mounted on them, NBD clients.\n\
    SIGTERM, SIGINT and SIGHUP to the serving process stop it too. They wait up to 60 seconds for \
    those who use it, and stop it as --force does after that; the log says for whom they wait.";

const ADD_HELP: &str = "\
    Of an array of arrays, NAME/INNER tells which of those gets the device, by the name that \
    status shows. Without it one gets it that it was a member of, or that lacks most. An array of \
    level 0 or linear gets one in the place of a member that was failed and removed, once the \
    array around it goes on without it; when it lacks none, it is rebuilt as a whole. MEMBER may \
    be the name of such an array, to take one back that was removed: it is given everything. What \
    is rebuilt on a device is read back by sample, as by braid replace, before it is in sync: if \
    that cannot be read or differs from what the other members say, the device fails, and the \
    array stays degraded. This is not done in arrays over nodes.";

const UPDATE_HELP: &str = "\
    The array must have been stopped well and be complete, and nobody may use its members. From \
    ppl to bitmap and back the way leads over resync. A bitmap and partial parity logs go into \
    unused space between superblock and data, at the same place on all members: 1 MiB for a log, \
    or 4 KiB and the size of a chunk, 128 KiB at least. The superblocks are written last; the \
    array assembles whenever that is cut off. Arrays with a journal, and arrays over nodes, keep \
    the policy with which they were created.";

const REPLACE_HELP: &str = "\
    Before MEMBER is made faulty, a sample of the copy is read back and compared with it: of \
    pieces of 64 KiB the first, every 64th and the last one, of large members about a thousand. \
    If one cannot be read or differs, the new member fails and MEMBER stays. This is not done in \
    arrays over nodes.";

/// RAID in user space, in Linux md's own on-disk format.
#[derive(Debug, Parser)]
#[command(name = "braid", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(propagate_version = true)]
pub(crate) struct Cli {
    /// Where running arrays keep their control sockets [default: /run/braid for root, else
    /// $XDG_RUNTIME_DIR/braid]
    #[arg(long, global = true, value_name = "DIR", env = "BRAID_RUN_DIR", hide_env_values = true)]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant for each command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the superblocks of a new array; start nothing, unless its members are memory
    Create(CreateArgs),
    /// Find the members of an array, decide who is in, start it and serve it
    Assemble(AssembleArgs),
    /// Flush an array, mark it clean, unmount it and end its process
    Stop(StopArgs),
    /// Show running arrays and their background work
    Status(StatusArgs),
    /// Show the fields of `mdadm --detail` for a running array
    Detail(DetailArgs),
    /// Show the superblocks of members as stored, checksums verified
    Examine(ExamineArgs),
    /// Change the consistency policy of an array that is stopped
    Update(UpdateArgs),
    /// Make a member faulty
    Fail(FailArgs),
    /// Detach a faulty member or a spare
    Remove(MemberOfArgs),
    /// Attach a device as a spare, or a node in the place of a lost one; recovery starts when the
    /// array is degraded
    Add(AddArgs),
    /// Take a member back into its old role, copying only what the bitmap marks (an array within
    /// an array is given everything)
    ReAdd(MemberOfArgs),
    /// Copy a member to a spare while it still serves, then make it faulty
    Replace(ReplaceArgs),
    /// Read all members and count where redundancy does not fit; write nothing
    Check(ScrubArgs),
    /// Read all members and rewrite redundancy where it does not fit
    Repair(ScrubArgs),
    /// Set the speed of background work, pause or resume it; without options, show what is set
    Sync(SyncArgs),
    /// Write an array's content to stdout, without writing a byte to its members
    Cat(CatArgs),
    /// Show where each data and parity chunk of an array lies
    Layout(LayoutArgs),
    /// Measure, side by side, beside the bound computed first, with the program braid-bench
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Keep volumes for arrays over nodes, until SIGTERM; or ask nodes, and tell them what to do
    Node(NodeArgs),
    /// The same as `braid node status`
    Nodes(NodesArgs),
    /// Look after volumes of nodes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// The key that nodes and their clients have in common
    Key(KeyArgs),
    /// Write shell completions to stdout
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Name of the array
    pub(crate) name: String,
    /// Level: linear 0 1 4 5 6 10
    #[arg(long, short, value_name = "LEVEL", allow_hyphen_values = true)]
    pub(crate) level: String,
    /// Members that hold data, `missing` ones included
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) raid_devices: u32,
    /// Layout, as mdadm spells it: left-symmetric, ddf-zero-restart, n2, f2, o2 ... Over nodes
    /// also xor2d, for level 6
    #[arg(long, short = 'p', value_name = "LAYOUT")]
    pub(crate) layout: Option<String>,
    /// Chunk [default: 512K; over nodes 64K, or less where stripes are wide]
    #[arg(long, short, value_parser = parse_size)]
    pub(crate) chunk: Option<Size>,
    /// Further members, which wait until one fails
    #[arg(long, short = 'x', value_name = "N", default_value_t = 0)]
    pub(crate) spare_devices: u32,
    /// Part of each member to use, in bytes unless K, M, G or T follows [default: what the smallest
    /// has]. Over nodes the size of the data on each, which must be given
    #[arg(long, short = 'z', value_parser = parse_size)]
    pub(crate) size: Option<Size>,
    /// Write-intent bitmap [default: internal from 100 GiB on, and over nodes]
    #[arg(long, short, value_name = "internal|none")]
    pub(crate) bitmap: Option<String>,
    /// How an unclean stop is repaired: resync or bitmap; ppl (level 5) or journal (4, 5, 6; with
    /// --write-journal), which also close the write hole; over nodes journal or ppl for all levels
    /// [default over nodes: ppl for levels with parity, otherwise bitmap]
    #[arg(long, short = 'k', value_name = "POLICY")]
    pub(crate) consistency_policy: Option<String>,
    /// A device that holds the journal of an array with parity, and nothing else
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) write_journal: Option<MemberArg>,
    /// What a journal takes on each node, with the policies that have one [default: 64M]
    #[arg(long, value_parser = parse_size)]
    pub(crate) journal_size: Option<Size>,
    /// With members on nodes: another node that has a vote in who may use the array, and holds
    /// nothing of it; may be repeated
    #[arg(long, value_name = "ADDR", value_parser = parse_witness)]
    pub(crate) witness: Vec<String>,
    /// The members agree already (all zero, say): no initial resync
    #[arg(long)]
    pub(crate) assume_clean: bool,
    /// Overwrite superblocks, file systems and partition tables found on the members
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// With members of memory: serve the array so, as `braid assemble` does; may be repeated
    #[arg(long, value_name = "EXPORT")]
    pub(crate) export: Vec<String>,
    /// With members of memory: stay in the foreground until the array is stopped
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Files or block devices, or `missing`, the spares last; or node://HOST:PORT[/VOLUME] for all
    /// of them; or mem:SIZE for all of them, which serves the array at once
    #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
}

/// How nodes are talked to.
#[derive(Debug, Args)]
pub(crate) struct AssembleArgs {
    /// NAME, MEMBERs, or a NAME and MEMBERs: what names a file or contains a slash is a member, as
    /// is node://HOST:PORT/VOLUME (/VOLUME may be left out where it is the NAME). NAME tells which
    /// array is meant: its name, HOST:NAME or UUID; members of other arrays are left out
    #[arg(value_name = "NAME|MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) names: Vec<String>,
    /// Let it run under NAME, whatever its name is; the superblocks keep theirs
    #[arg(long)]
    pub(crate) rename: bool,
    /// Look for members among all block devices
    #[arg(long, short)]
    pub(crate) scan: bool,
    /// Serve the array: nbd:unix:PATH, nbd:tcp:HOST:PORT or fuse:MOUNTPOINT; may be repeated
    #[arg(long, value_name = "EXPORT")]
    pub(crate) export: Vec<String>,
    /// Serve reads only; write nothing to any member
    #[arg(long, short = 'o')]
    pub(crate) readonly: bool,
    /// Start even when a member that should be there is not
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
    /// Start a degraded array that is not clean, or with members that are a little behind
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Say who is in, who is not and why, and what to do; start nothing, write nothing
    #[arg(long)]
    pub(crate) explain: bool,
    /// With --explain: print JSON
    #[arg(long, requires = "explain")]
    pub(crate) json: bool,
    /// With members on nodes: even while another client uses the array, which ends that one's use
    #[arg(long)]
    pub(crate) take_over: bool,
    /// With members on nodes: a witness besides those that the array knows, or that has moved;
    /// may be repeated
    #[arg(long, value_name = "ADDR", value_parser = parse_witness)]
    pub(crate) witness: Vec<String>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// With members on nodes: who builds the parities [default: mix]
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<WriteSchedule>,
    /// With members on nodes: a node that owes an answer for so long counts as missing, or is lost
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) node_timeout: u64,
    /// With members on nodes: while more of them are away than the array can do without, reads and
    /// writes wait for so long and then fail; the array goes on by itself when they are back
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=86400))]
    pub(crate) fail_timeout: u64,
    /// Stay in the foreground until the array is stopped
    #[arg(long)]
    pub(crate) foreground: bool,
}

#[derive(Debug, Args)]
#[command(after_help = STOP_HELP)]
pub(crate) struct StopArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// Even while it is in use: write out the file systems on it, then cut off who uses it
    #[arg(long, short)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Name of the running array [default: all]
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["mdstat", "watch"])]
    pub(crate) json: bool,
    /// Print the text of /proc/mdstat
    #[arg(long)]
    pub(crate) mdstat: bool,
    /// Follow the background work until it ends
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DetailArgs {
    /// Name of the running array
    #[arg(required_unless_present = "scan", conflicts_with = "scan")]
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["export", "scan"])]
    pub(crate) json: bool,
    /// Print KEY=value lines as mdadm does
    #[arg(long, short = 'Y', conflicts_with = "scan")]
    pub(crate) export: bool,
    /// Tell by the exit status: 0 healthy, 1 degraded, 2 not usable, 4 no such array
    #[arg(long, short, conflicts_with = "scan")]
    pub(crate) test: bool,
    /// Print ARRAY lines for mdadm.conf, of all running arrays
    #[arg(long, short)]
    pub(crate) scan: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExamineArgs {
    /// Files, block devices or node://HOST:PORT/VOLUME [default with --scan: all block devices]
    #[arg(required_unless_present = "scan", value_name = "MEMBER")]
    #[arg(value_parser = MemberArg::existing, value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["export", "scan"])]
    pub(crate) json: bool,
    /// Print KEY=value lines as mdadm does
    #[arg(long, short = 'Y', conflicts_with = "scan")]
    pub(crate) export: bool,
    /// Print ARRAY lines for mdadm.conf
    #[arg(long, short)]
    pub(crate) scan: bool,
    /// List what the partial parity log or the journal on the member records, and where it ends
    #[arg(long, conflicts_with_all = ["export", "scan"])]
    pub(crate) log: bool,
}

/// What an array that is stopped is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewPolicy {
    /// A resync of everything follows an unclean stop
    Resync,
    /// A resync of what the bitmap marks
    Bitmap,
    /// Partial parity logs, which close the write hole of a level 5
    Ppl,
}

#[derive(Debug, Args)]
#[command(after_help = UPDATE_HELP)]
pub(crate) struct UpdateArgs {
    /// Name of the array: as it was created, HOST:NAME or UUID
    pub(crate) name: String,
    /// All of its members: files or block devices
    #[arg(required = true, value_name = "MEMBER", value_parser = MemberArg::existing)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
    /// How an unclean stop is to be repaired
    #[arg(long, short = 'k', value_name = "POLICY")]
    pub(crate) consistency_policy: NewPolicy,
}

#[derive(Debug, Args)]
pub(crate) struct MemberOfArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// File or block device, or node://HOST:PORT[/VOLUME]; in an array of arrays also one of those,
    /// by the name that status shows
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) member: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    pub(crate) of: MemberOfArgs,
    /// Even while a resync has yet to make parity fit: what only the member holds of that is lost
    #[arg(long, short)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) of: MemberOfArgs,
    /// Overwrite a superblock, file system or partition table found on the device
    #[arg(long, short)]
    pub(crate) force: bool,
    /// The device is to hold the journal, in the place of one that was lost
    #[arg(long)]
    pub(crate) journal: bool,
}

#[derive(Debug, Args)]
#[command(after_help = REPLACE_HELP)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    pub(crate) of: MemberOfArgs,
    /// The spare to copy it to; of an array over nodes also a node that is none yet, and becomes
    /// one. Without it any spare is used
    #[arg(long, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) with: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// Return when it is finished; show progress
    #[arg(long, short)]
    pub(crate) wait: bool,
    /// End the check or repair that is running, and return when it has ended
    #[arg(long, conflicts_with = "wait")]
    pub(crate) stop: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How writes go by a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JournalModeArg {
    /// A write is answered when it is in the journal and in its place
    WriteThrough,
    /// A write of less than a stripe is answered when it is in the journal
    WriteBack,
}

#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// Bytes per second and member to keep up whatever else goes on
    #[arg(long, value_name = "SPEED", value_parser = parse_size)]
    pub(crate) min: Option<Size>,
    /// Bytes per second and member never to exceed, or none
    #[arg(long, value_name = "SPEED", value_parser = parse_limit)]
    pub(crate) max: Option<Size>,
    /// Pause background work
    #[arg(long, conflicts_with_all = ["min", "max", "resume"])]
    pub(crate) pause: bool,
    /// Resume it
    #[arg(long, conflicts_with_all = ["min", "max"])]
    pub(crate) resume: bool,
    /// How writes go by the journal, until the array is stopped: write-back answers small writes
    /// from the journal and brings them in place later
    #[arg(long, value_name = "MODE")]
    pub(crate) journal_mode: Option<JournalModeArg>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Members of one array, or the name of an array found among all block devices
    #[arg(required = true, value_name = "MEMBER|NAME", value_hint = ValueHint::FilePath)]
    pub(crate) names: Vec<String>,
    /// Byte of the array to begin at
    #[arg(long, value_parser = parse_size)]
    pub(crate) offset: Option<Size>,
    /// Bytes to write [default: to the end]
    #[arg(long, value_parser = parse_size)]
    pub(crate) length: Option<Size>,
    /// Read a degraded array that was not stopped cleanly, or with members that are a little
    /// behind: some of the content may be wrong
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LayoutArgs {
    /// Level: linear 0 1 4 5 6 10
    #[arg(long, short, value_name = "LEVEL", allow_hyphen_values = true)]
    pub(crate) level: String,
    /// Members
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) raid_devices: u32,
    /// Layout, as mdadm spells it, or xor2d for level 6 over nodes [default: left-symmetric, n2]
    #[arg(long, short = 'p', value_name = "LAYOUT")]
    pub(crate) layout: Option<String>,
    /// Chunk
    #[arg(long, short, value_parser = parse_size)]
    pub(crate) chunk: Option<Size>,
    /// Show one stripe over nodes, and the transfers with which it is written
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleName>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who builds the parities of a stripe over nodes.
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

/// Who builds the parities while an array over nodes is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteSchedule {
    /// The nodes, as `encoder`, or the client, whichever is less of a bottleneck at the moment
    Mix,
    /// One node, another one for every slice-set
    Encoder,
    /// The nodes, each parity along a chain through them
    Chain,
    /// The nodes, with as many shared transfers as are known; for some numbers of nodes
    Static,
    /// The client, which sends them as it sends data
    Client,
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
    pub(crate) shell: clap_complete::Shell,
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
