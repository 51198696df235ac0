//! Arguments that name storage nodes and their keys.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::members::parse_node_address;
use super::{Size, examples, parse_size};

#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// With nodes: how data travels, tcp, ofi or ofi:PROVIDER; the same for all nodes and clients
    /// of an array [default: tcp]
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<String>,
    #[command(flatten)]
    pub(crate) key_file: KeyFileArgs,
}

/// Where the key is.
#[derive(Debug, Args)]
pub(crate) struct KeyFileArgs {
    /// With nodes: the file of the cluster key, or for clients of the key of one array [default:
    /// /etc/braid/cluster.key, if there]
    #[arg(long, value_name = "FILE", env = "BRAID_KEY", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) action: KeyAction,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeyAction {
    /// Make a file with a new key that only you can read; give the same to all nodes and clients
    #[command(after_help = examples::KEY_NEW)]
    New {
        /// A file that is not there yet
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Make a file with the key of one array, from the cluster key: for a client that is to use no
    /// other array. All commands take it with --key; nodes do not
    #[command(after_help = examples::KEY_DERIVE)]
    Derive {
        /// The array's UUID, as `braid detail` and `braid examine` print it
        #[arg(long, value_name = "UUID")]
        array: String,
        /// A file that is not there yet
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        key_file: KeyFileArgs,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("storage").required(true).args(["store", "memory"]))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    /// Where to listen: HOST:PORT, port 0 for any that is free. Without a cluster key, a
    /// loopback address
    #[arg(long, value_name = "ADDR", required = true)]
    pub(crate) listen: Option<String>,
    /// Keep volumes as files in this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) store: Option<PathBuf>,
    /// Keep volumes in memory; they are gone when the node ends
    #[arg(long)]
    pub(crate) memory: bool,
    /// Keep no volumes: only vote in who may use the arrays of which this is a witness
    #[arg(long, conflicts_with = "memory")]
    pub(crate) witness: bool,
    /// Memory for data on its way, of all arrays that are in use
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub(crate) ring: Size,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Listen without a cluster key, on any address: who can connect can do everything
    #[arg(long)]
    pub(crate) no_key: bool,
    /// Seal data on its way to this node and from it, with AES-256-GCM, not only what is said of
    /// it; needs a cluster key
    #[arg(long, conflicts_with = "no_key")]
    pub(crate) encrypt: bool,
    /// Stay in the foreground until the node is told to end
    #[arg(long)]
    pub(crate) foreground: bool,
}

/// Commands to nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Version, space, ring memory, clients and volumes of each node
    #[command(after_help = examples::NODE_STATUS)]
    Status(NodesArgs),
    /// Remove a volume; refused while it is in use, and of a member of an array unless that is
    /// named
    #[command(after_help = examples::NODE_DELETE)]
    Delete(VolumeArgs),
    /// Have a node forget what it has voted of an array; you vouch that nothing needs that
    ///
    /// The node refuses while one of its volumes carries a member of the array, or a client has
    /// the array. Nodes do not know of each other: you vouch that the array is gone from all
    /// nodes, or that this node was replaced in it and all of its nodes and witnesses have been
    /// there together since. Otherwise writes may be lost.
    #[command(after_help = examples::NODE_FORGET)]
    Forget(ForgetArgs),
    /// End a node, as SIGTERM does
    #[command(after_help = examples::NODE_STOP)]
    Stop(NodeStopArgs),
}

/// Commands on volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// The same as `braid node delete`
    #[command(after_help = examples::NODE_DELETE)]
    Delete(VolumeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// Where the nodes listen, HOST:PORT
    #[arg(required = true, value_name = "ADDR", value_parser = parse_node_address)]
    pub(crate) addresses: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    /// Where the node listens, HOST:PORT
    #[arg(value_name = "ADDR", value_parser = parse_node_address)]
    pub(crate) address: String,
    /// Name of the volume
    pub(crate) volume: String,
    /// The array that the volume is a member of, by its name, HOST:NAME or UUID: what the member
    /// holds of it is lost
    #[arg(long, value_name = "NAME", conflicts_with = "force")]
    pub(crate) array: Option<String>,
    /// Whatever the volume holds
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// Where the node listens, HOST:PORT
    #[arg(value_name = "ADDR", value_parser = parse_node_address)]
    pub(crate) address: String,
    /// The array's UUID, as `braid node status` prints it
    #[arg(value_name = "ARRAY-UUID")]
    pub(crate) array: String,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NodeStopArgs {
    /// Where the node listens, HOST:PORT
    #[arg(value_name = "ADDR", value_parser = parse_node_address)]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}
