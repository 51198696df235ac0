//! Commands to arrays that run: their state, their members, their background work.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use braid_host::limits::Limit;

use super::limit::{parse_max, parse_min};
use super::machine::ConfigFileArgs;

const STOP_HELP: &str = "\
    Who uses the array is named and stands against it: programs that have its file open, loop \
    devices and what is mounted on them, NBD clients.\n\
    SIGTERM, SIGINT and SIGHUP to the serving process stop it too. They wait up to 60 seconds for \
    those who use it, and stop it as --force does after that; the log says for whom they wait.\n\n\
    Examples:\n  \
    braid stop home\n  \
    braid stop --all";

const ADD_HELP: &str = "\
    Of an array of arrays, NAME/INNER tells which of those gets the device, by the name that \
    status shows. Without it one gets it that it was a member of, or that lacks most. An array of \
    level 0 or linear gets one in the place of a member that was failed and removed, once the \
    array around it goes on without it; when it lacks none, it is rebuilt as a whole. MEMBER may \
    be the name of such an array, to take one back that was removed: it is given everything. What \
    is rebuilt on a device is read back by sample, as by braid replace, before it is in sync: if \
    that cannot be read or differs from what the other members say, the device fails, and the \
    array stays degraded. This is not done in arrays over nodes.\n\n\
    Examples:\n  \
    braid add home /dev/sdd\n  \
    braid add home /dev/nvme0n1 --journal\n  \
    braid add data node://10.0.0.6:7000";

const EXPORT_HELP: &str = "\
EXPORT is spelled as for braid assemble --export, or as braid status shows it; what is removed is \
found without its options but name=.

Examples:
  braid export home add nbd:unix:/run/home.nbd,mode=0660,group=backup
  braid export home add nbd:unix:/run/vms.nbd,name=vm1,offset=1GiB,size=10GiB
  braid export home add nbd:tcp:0.0.0.0:10809,tls=/etc/braid/tls
  braid export home add fuse:/mnt/home
  braid export home remove nbd:unix:/run/home.nbd
  braid export home remove fuse:/mnt/home --force";

const REMOVE_HELP: &str = "\
Examples:
  braid remove home /dev/sdb
  braid remove home failed
  braid remove home ./failed           a file that is called so";

const REPLACE_HELP: &str = "\
    Before MEMBER is made faulty, a sample of the copy is read back and compared with it: of \
    pieces of 64 KiB the first, every 64th and the last one, of large members about a thousand. \
    If one cannot be read or differs, the new member fails and MEMBER stays. This is not done in \
    arrays over nodes.\n\n\
    Examples:\n  \
    braid replace home /dev/sdb --with /dev/sdd\n  \
    braid replace data node://10.0.0.2:7000 --with node://10.0.0.6:7000";

const IDENTIFY_HELP: &str = "\
    The lamp of a slot is there in enclosures that the kernel knows (ses). Elsewhere MEMBER is \
    read for half a second of every second, which its light of activity shows; nothing is \
    written.\n\n\
    Example:\n  \
    braid identify home /dev/sdb --seconds 600";

const UPGRADE_HELP: &str = "\
The array's process goes on with the program that this command is: requests wait for a moment, \
what is under way is answered, and nothing is disconnected but clients that use TLS and front ends \
of vhost-user, which connect again by themselves. If this program cannot serve the array, the one \
before takes it back. An array in memory cannot be upgraded, nor one that is being checked or \
repaired. A storage node is restarted instead: arrays wait for it.

Examples:
  braid upgrade home
  braid upgrade --all --check";

#[derive(Debug, Args)]
#[command(after_help = UPGRADE_HELP)]
pub(crate) struct UpgradeArgs {
    /// Names of running arrays
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) names: Vec<String>,
    /// All that run
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only say whether it can be done
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Hang up on clients that do not take their data or do not send the rest of it; without, such
    /// a client makes all others wait for 5 s, and the upgrade is refused
    #[arg(long, conflicts_with = "check")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = STOP_HELP)]
pub(crate) struct StopArgs {
    /// Name of the running array
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// All that run, those first that no other one lies on
    #[arg(long, short)]
    pub(crate) all: bool,
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
    /// With --scan: print entries for /etc/braid/arrays.toml instead, also of arrays that do not
    /// run and whose members are found among all block devices
    #[arg(long, requires = "scan")]
    pub(crate) toml: bool,
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
#[command(after_help = EXPORT_HELP)]
pub(crate) struct ExportArgs {
    /// Name of the running array
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) action: ExportAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportAction {
    /// Serve the array in one more way, until it is stopped
    #[command(after_help = EXPORT_HELP)]
    Add {
        /// nbd:unix:PATH, nbd:tcp:HOST:PORT, fuse:MOUNTPOINT or vhost-user:PATH, with options as
        /// for braid assemble
        export: String,
        /// Serve over NBD on an address beyond loopback without TLS: who can connect can read and
        /// write everything
        #[arg(long)]
        insecure: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve it so no more; refused while somebody uses it so
    #[command(after_help = EXPORT_HELP)]
    Remove {
        /// As it was added, or as braid status shows it
        export: String,
        /// Even while it is in use: write out the file systems on it, then cut off who uses it
        #[arg(long, short)]
        force: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = REMOVE_HELP)]
pub(crate) struct RemoveArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// File or block device, or node://HOST:PORT[/VOLUME]; in an array of arrays also one of those,
    /// by the name that status shows. Or failed: all faulty members; or detached: those of them and
    /// of the spares whose device or file is gone
    #[arg(value_hint = ValueHint::FilePath, value_name = "MEMBER|failed|detached")]
    pub(crate) member: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    pub(crate) of: MemberOfArgs,
    /// Even while a resync has yet to make parity fit: what only the member holds of that is lost.
    /// And even if the array fails without the member: it is to be assembled again then
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
#[command(after_help = IDENTIFY_HELP)]
pub(crate) struct IdentifyArgs {
    #[command(flatten)]
    pub(crate) of: MemberOfArgs,
    /// For how long, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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

/// Journal mode of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JournalModeArg {
    /// A write is answered when it is in the journal and in its place
    WriteThrough,
    /// A write of less than a stripe is answered when it is in the journal
    WriteBack,
}

const LIMIT_HELP: &str = "\
A SPEED is a size, and may be followed by others that hold at times of the day, by this machine's \
clock: SPEED@FROM-UNTIL=SPEED,FROM-UNTIL=SPEED. What is set holds until the array is stopped; \
limits that are to stay are written into /etc/braid/arrays.toml, as min = and max =, or given to \
braid assemble.

Examples:
  braid limit home --max 50M
  braid limit home --max 200M@22:00-06:00=none
  braid limit home --min 1M@01:00-05:30=100M,12:00-13:00=10M";

#[derive(Debug, Args)]
#[command(after_help = LIMIT_HELP)]
pub(crate) struct LimitArgs {
    /// Name of the running array
    pub(crate) name: String,
    /// Bytes per second and member to keep up whatever else goes on
    #[arg(long, value_name = "SPEED", value_parser = parse_min)]
    pub(crate) min: Option<Limit>,
    /// Bytes per second and member never to exceed, or none
    #[arg(long, value_name = "SPEED", value_parser = parse_max)]
    pub(crate) max: Option<Limit>,
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
    #[command(flatten)]
    pub(crate) file: ConfigFileArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
