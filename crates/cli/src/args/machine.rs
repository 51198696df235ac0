//! Arguments of the commands for the arrays and nodes of a machine, by its configuration file.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::examples;
use super::odd::absolute;

const UP_HELP: &str = "\
Members that are not there yet are waited for (wait = SECONDS, 30 unless the file says so). After \
that the array starts without them if it can do without and was clean, unless the file says \
degraded = \"refuse\"; that is said loudly. What runs already is left as it is.

Examples:
  braid up                             everything in /etc/braid/arrays.toml
  braid up home
  braid up home --config ./arrays.toml";

const DOWN_HELP: &str = "\
Arrays are stopped before the nodes that they may lie on. What is in use is refused, as by braid \
stop. What does not run is left as it is.

Examples:
  braid down home
  braid down --all";

const CONFIG_HELP: &str = "\
Examples:
  braid config check
  braid config check --config ./arrays.toml";

/// The configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigFileArgs {
    /// The file of arrays and nodes
    #[arg(long, value_name = "FILE", env = "BRAID_CONFIG", hide_env_values = true)]
    #[arg(default_value = crate::args::CONFIG_FILE, value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = UP_HELP)]
pub(crate) struct UpArgs {
    /// Arrays or nodes of the file [default: all]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) file: ConfigFileArgs,
    /// Serve the one that is named in this process until it is stopped, as service managers want it
    #[arg(long, requires = "names")]
    pub(crate) foreground: bool,
    /// The file that braid grow was given by --spill for the reshape in the middle of which the
    /// array that is named stopped: it goes on with that
    #[arg(long, requires = "names", value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = absolute)]
    pub(crate) backup_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["foreground", "backup_file"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = DOWN_HELP)]
pub(crate) struct DownArgs {
    /// Arrays or nodes of the file
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) names: Vec<String>,
    /// Everything in the file
    #[arg(long, short)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) file: ConfigFileArgs,
    /// Even what is in use: write out the file systems on it, then cut off who uses it
    #[arg(long, short)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// Actions on the configuration file.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Say what is wrong with the file of arrays and nodes, and with what it names
    #[command(after_help = CONFIG_HELP)]
    Check {
        #[command(flatten)]
        file: ConfigFileArgs,
        /// The file, as --config names it
        #[arg(value_name = "FILE", hide = true, value_hint = ValueHint::FilePath)]
        named: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write what systemd is to know of each array and node; called at boot, by a generator
    #[command(after_help = examples::CONFIG_UNITS)]
    Units {
        /// Where; systemd names a directory
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        #[command(flatten)]
        file: ConfigFileArgs,
    },
    /// Have the running array of the file that a device belongs to take it: as the spare that it
    /// is, or back, where what changed meanwhile is known; called when a device appears
    #[command(after_help = examples::CONFIG_JOIN)]
    Join {
        /// A block device or file
        #[arg(value_hint = ValueHint::FilePath)]
        device: PathBuf,
        #[command(flatten)]
        file: ConfigFileArgs,
    },
    /// Say which array of the file a device belongs to, as KEY=value; called by a rule of udev
    #[command(after_help = examples::CONFIG_PROBE)]
    Probe {
        /// A block device
        #[arg(value_hint = ValueHint::FilePath)]
        device: PathBuf,
        #[command(flatten)]
        file: ConfigFileArgs,
    },
}
