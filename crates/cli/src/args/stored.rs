//! Commands to arrays that do not run, by what is stored on their members: how one is made,
//! started, looked at, changed and read.

use std::path::PathBuf;

use braid_host::limits::{Limit, Limits};
use clap::{Args, ValueEnum, ValueHint};

use super::limit::{parse_max, parse_min};
use super::members::{MemberArg, parse_node_address};
use super::nodes::NetworkArgs;
use super::odd::{GeometryArgs, MapArgs, OverlayArgs, ReshapeArgs};
use super::size::{Size, parse_rounded, parse_size};

const UPDATE_HELP: &str = "\
    The array must have been stopped well and be complete, and nobody may use its members, all of \
    which are to be named, spares and a journal too. On disks the way from one of bitmap, ppl and \
    journal to another leads over resync. A bitmap and partial parity logs go into unused space \
    between superblock and data, at the same place on all members: 1 MiB for a log, or 4 KiB and \
    the size of a chunk, 128 KiB at least. A journal that is taken away leaves its device blank. \
    Over nodes ppl and journal need the room behind the data that volumes are made with for \
    them. The array assembles whenever that is cut off.\n\n\
    Examples:\n  \
    braid update home /dev/sda /dev/sdb /dev/sdc --consistency-policy bitmap\n  \
    braid update data node://10.0.0.{1,2,3,4,5}:7000 --consistency-policy journal";

const CREATE_HELP: &str = "\
A SIZE is in bytes, or has a unit: K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024); KB, MB, GB, \
TB (powers of 1000); 1.5T is fine.

Examples:
  braid create home --level 5 /dev/sda /dev/sdb /dev/sdc
  braid create home --level 1 --raid-devices 2 --metadata 1.0 --dry-run a.img b.img";

const RENAME_HELP: &str = "\
The new name is in the superblocks of all members, which must be there, and lasts. A host in front \
of the old name (HOST:NAME) stays, and so do the names of volumes. To run an array under another \
name once, see braid assemble --rename.

Example:
  braid rename home attic /dev/sda /dev/sdb /dev/sdc";

const ZERO_HELP: &str = "\
Nothing but superblocks is removed, of every version, wherever one may lie: what the array held \
stays on the device. Members in use are refused. A superblock whose checksum is wrong, or that is \
of a version nobody knows, is removed with --force only.

Example:
  braid zero-superblock /dev/sda /dev/sdb";

/// Geometry: the arrangement of the bytes of an array on its members.
#[derive(Debug, Args)]
pub(crate) struct ShapeArgs {
    /// Level: linear 0 1 4 5 6 10
    #[arg(long, short, value_name = "LEVEL", allow_hyphen_values = true)]
    pub(crate) level: String,
    /// Layout, as mdadm spells it: left-symmetric, ddf-zero-restart, n2, f2, o2 ... Over nodes
    /// also xor2d, for level 6 [default: left-symmetric, n2]
    #[arg(long, short = 'p', value_name = "LAYOUT")]
    pub(crate) layout: Option<String>,
    /// Chunk [default: 512K; over nodes 64K, or less where stripes are wide]
    #[arg(long, short, value_parser = parse_size)]
    pub(crate) chunk: Option<Size>,
}

/// Versions of superblocks that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetadataArg {
    /// At the end of the device
    #[value(name = "1.0")]
    V1_0,
    /// At its beginning
    #[value(name = "1.1")]
    V1_1,
    /// 4 KiB from its beginning
    #[value(name = "1.2")]
    V1_2,
}

#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct CreateArgs {
    /// Name of the array: up to 32 bytes of letters, digits, `.`, `_` and `-`
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Members that hold data, `missing` ones included [default: the MEMBERs less the spares]
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: Option<u32>,
    #[command(flatten)]
    pub(crate) overlay: OverlayArgs,
    /// Further members, which wait until one fails
    #[arg(long, short = 'x', value_name = "N", default_value_t = 0)]
    pub(crate) spare_devices: u32,
    /// Part of each member to use, in bytes unless K, M, G or T follows [default: what the smallest
    /// has]. Over nodes the size of the data on each, which must be given
    #[arg(long, short = 'z', value_parser = parse_rounded)]
    pub(crate) size: Option<Size>,
    /// Write-intent bitmap [default: internal from 100 GiB on, and over nodes]
    #[arg(long, short, value_name = "internal|none")]
    pub(crate) bitmap: Option<String>,
    /// How an unclean stop is repaired: resync or bitmap; ppl (level 5) or journal (4, 5, 6; with
    /// --write-journal), which also close the write hole; over nodes journal or ppl for all levels
    /// [default over nodes: ppl for levels with parity, otherwise bitmap]
    #[arg(long, short = 'k', value_name = "POLICY")]
    pub(crate) consistency_policy: Option<String>,
    /// Version of the superblocks: 1.2, 1.1 (both in front of the data) or 1.0 (behind it)
    /// [default: 1.2; over nodes always]
    #[arg(long, short = 'e', value_name = "VERSION")]
    pub(crate) metadata: Option<MetadataArg>,
    /// Where data begins on each member [default: 1M or more, with room for metadata and a later
    /// reshape; 0 with metadata 1.0]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data_offset: Option<Size>,
    /// A device that holds the journal of an array with parity, and nothing else
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) write_journal: Option<MemberArg>,
    /// What a journal takes on each node, with the policies that have one [default: 64M]
    #[arg(long, value_parser = parse_size)]
    pub(crate) journal_size: Option<Size>,
    /// With members on nodes: another node that has a vote in who may use the array, and holds
    /// nothing of it; may be repeated
    #[arg(long, value_name = "ADDR", value_parser = parse_node_address)]
    pub(crate) witness: Vec<String>,
    /// The members agree already (all zero, say): no initial resync
    #[arg(long)]
    pub(crate) assume_clean: bool,
    /// Keep checksums of all blocks, behind the data of each member: rot is noticed when it is
    /// read, and healed from the other members; for levels with redundancy
    #[arg(long)]
    pub(crate) integrity: bool,
    /// Overwrite superblocks, file systems and partition tables found on the members
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Check everything, and show what would be made and how large it is; write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// With members of memory: serve the array so, as `braid assemble` does; may be repeated
    #[arg(long, value_name = "EXPORT")]
    pub(crate) export: Vec<String>,
    /// Serve over NBD on an address beyond loopback without TLS: who can connect can read and write
    /// everything
    #[arg(long, requires = "export")]
    pub(crate) insecure: bool,
    /// With members of memory: stay in the foreground until the array is stopped
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Files or block devices, or `missing`, the spares last; or node://HOST:PORT[/VOLUME] for all
    /// of them; or mem:SIZE for all of them, which serves the array at once
    #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
}

impl CreateArgs {
    /// Returns the number of members that hold data: as typed, or those named less the spares.
    pub(crate) fn raid_devices(&self) -> u32 {
        let named = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.raid_devices.unwrap_or(named.saturating_sub(self.spare_devices))
    }
}

#[derive(Debug, Args)]
pub(crate) struct AssembleArgs {
    /// NAME, MEMBERs, or a NAME and MEMBERs: what names a file or contains a slash is a member, as
    /// is node://HOST:PORT/VOLUME (/VOLUME may be left out where it is the NAME). NAME tells which
    /// array is meant: its name, HOST:NAME or UUID; members of other arrays are left out. FILE#N is
    /// partition N of a disk or image, FILE@OFFSET+SIZE a part of it; nbd://HOST/EXPORT and
    /// nbd+unix:///EXPORT?socket=FILE are disks at NBD servers
    #[arg(value_name = "NAME|MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) names: Vec<String>,
    /// Let it run under NAME, whatever its name is; the superblocks keep theirs
    #[arg(long)]
    pub(crate) rename: bool,
    /// Look for members among all block devices
    #[arg(long, short)]
    pub(crate) scan: bool,
    /// Serve the array: nbd:unix:PATH, nbd:tcp:HOST:PORT, fuse:MOUNTPOINT, vhost-user:PATH or
    /// ublk[:NUMBER] (a block device /dev/ublkbNUMBER); may be repeated. After a PATH or MOUNTPOINT
    /// may come ,mode=MODE ,owner=USER ,group=GROUP of the socket or file [default: 0600, 0660 with
    /// group=, and the user's own]; after an nbd: also ,name=NAME ,offset=SIZE ,size=SIZE ,readonly
    /// for a part of the array: several on one socket have different names; after nbd:tcp: ,tls=DIR
    /// with server-cert.pem, server-key.pem and ca-cert.pem; after vhost-user:PATH ,queues=N for at
    /// most so many of a guest's queues [default: 64]
    #[arg(long, value_name = "EXPORT")]
    pub(crate) export: Vec<String>,
    /// Serve over NBD on an address beyond loopback: who can connect can read and write everything
    #[arg(long, requires = "export")]
    pub(crate) insecure: bool,
    /// Serve reads only; write nothing to any member
    #[arg(long, short = 'o')]
    pub(crate) readonly: bool,
    /// Keep checksums of members that have none behind their data in this directory, on another
    /// disk: a file for each of 1/960 of its size, made where there is none; not a byte of a member
    /// changes. Name it at each start
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with_all = ["part", "geometry", "overlay"])]
    pub(crate) integrity_store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overlay: OverlayArgs,
    #[command(flatten)]
    pub(crate) maps: MapArgs,
    #[command(flatten)]
    pub(crate) bare: GeometryArgs,
    #[command(flatten)]
    pub(crate) reshape: ReshapeArgs,
    /// Serve what lies on the array of these MEMBERs, or on several arrays: a partition or a volume
    /// of LVM2, by its name in `braid cat --list`; it runs under NAME; with --readonly
    #[arg(long, value_name = "PART", conflicts_with = "geometry")]
    pub(crate) part: Option<String>,
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
    #[arg(long, value_name = "ADDR", value_parser = parse_node_address)]
    pub(crate) witness: Vec<String>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// With members on nodes: who builds the parities [default: mix]
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<WriteSchedule>,
    /// With members on nodes: a node that owes an answer for so long counts as missing, or is lost
    #[arg(long, value_name = "SECONDS", default_value_t = Self::NODE_TIMEOUT_S)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) node_timeout: u64,
    /// With members on nodes: while more of them are away than the array can do without, reads and
    /// writes wait for so long and then fail; the array goes on by itself when they are back
    #[arg(long, value_name = "SECONDS", default_value_t = Self::FAIL_TIMEOUT_S)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=86400))]
    pub(crate) fail_timeout: u64,
    /// Stay in the foreground until the array is stopped
    #[arg(long)]
    pub(crate) foreground: bool,
    /// By which the array is known, whatever its name is.
    #[arg(skip)]
    pub(crate) uuid: Option<String>,
    #[command(flatten)]
    pub(crate) speed: SpeedArgs,
}

/// Limits of the speed of background work.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SpeedArgs {
    /// Bytes per second and member that background work keeps up, as for braid limit
    #[arg(long, value_name = "SPEED", value_parser = parse_min)]
    pub(crate) min: Option<Limit>,
    /// Bytes per second and member that background work never exceeds, from its begin
    #[arg(long, value_name = "SPEED", value_parser = parse_max)]
    pub(crate) max: Option<Limit>,
}

impl AssembleArgs {
    /// Default for callers that have no option for the timeout.
    pub(crate) const NODE_TIMEOUT_S: u64 = 5;
    /// As above.
    pub(crate) const FAIL_TIMEOUT_S: u64 = 60;

    /// Limits of the speed of background work.
    pub(crate) fn limits(&self) -> Limits {
        let SpeedArgs { min, max } = self.speed.clone();
        Limits { min, max }
    }

    /// Directory of checksums: the process that serves works in another one.
    pub(crate) fn integrity_store(&self) -> Option<PathBuf> {
        let dir = self.integrity_store.as_ref()?;
        Some(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()))
    }
}

/// Write schedule: the place where the parities are computed while an array over nodes is written.
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
pub(crate) struct ExamineArgs {
    /// Files, block devices or node://HOST:PORT/VOLUME [default with --scan: all block devices]
    #[arg(required_unless_present = "scan", value_name = "MEMBER")]
    #[arg(value_parser = MemberArg::existing, value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
    #[command(flatten)]
    pub(crate) maps: MapArgs,
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

/// Consistency policy to give to a stopped array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewPolicy {
    /// A resync of everything follows an unclean stop
    Resync,
    /// A resync of what the bitmap marks
    Bitmap,
    /// Partial parity logs, which close the write hole of a level 5; over nodes journals of what is
    /// written to parts of stripes
    Ppl,
    /// A journal of all that is written: on a device of its own, or over nodes on all volumes
    Journal,
}

#[derive(Debug, Args)]
#[command(after_help = UPDATE_HELP)]
pub(crate) struct UpdateArgs {
    /// Name of the array: as it was created, HOST:NAME or UUID
    pub(crate) name: String,
    /// All of its members: files or block devices, or node://HOST:PORT[/VOLUME]
    #[arg(required = true, value_name = "MEMBER", value_parser = MemberArg::existing)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
    /// How an unclean stop is to be repaired
    #[arg(long, short = 'k', value_name = "POLICY")]
    pub(crate) consistency_policy: NewPolicy,
    #[command(flatten)]
    pub(crate) overlay: OverlayArgs,
    /// With policy journal, on disks: the device that is to hold it, and nothing else
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) write_journal: Option<MemberArg>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
#[command(after_help = RENAME_HELP)]
pub(crate) struct RenameArgs {
    /// Name of an array that is stopped: as it was created, HOST:NAME or UUID
    pub(crate) name: String,
    /// The name that it is to have
    pub(crate) new_name: String,
    #[command(flatten)]
    pub(crate) overlay: OverlayArgs,
    /// All of its members: files or block devices, or node://HOST:PORT[/VOLUME] [default: found
    /// among all block devices]
    #[arg(value_name = "MEMBER", value_parser = MemberArg::existing)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
#[command(after_help = ZERO_HELP)]
pub(crate) struct ZeroArgs {
    /// Files or block devices that nobody uses
    #[arg(required = true, value_name = "MEMBER", value_parser = MemberArg::existing)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<MemberArg>,
    #[command(flatten)]
    pub(crate) overlay: OverlayArgs,
    /// Remove what looks like a superblock and cannot be trusted, too; devices without any are fine
    #[arg(long, short)]
    pub(crate) force: bool,
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
    /// List what lies on the array instead: partitions, logical volumes, file systems. Members of
    /// several arrays may be named, whose volumes belong together
    #[arg(long, conflicts_with_all = ["offset", "length", "part"])]
    pub(crate) list: bool,
    /// Write a partition or a volume, by the name that --list has for it
    #[arg(long, value_name = "PART")]
    pub(crate) part: Option<String>,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
    /// Read a degraded array that was not stopped cleanly, or with members that are a little
    /// behind: some of the content may be wrong
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Accepted, and changes nothing: cat never writes to members
    #[arg(long = "readonly")]
    _readonly: bool,
    #[command(flatten)]
    pub(crate) maps: MapArgs,
    #[command(flatten)]
    pub(crate) bare: GeometryArgs,
    #[command(flatten)]
    pub(crate) reshape: ReshapeArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}
