//! Arguments of `braid bench` for rerunning a comparison.

use std::path::PathBuf;

use braid_bench::compare::levels::Level;
use braid_bench::compare::rivals::Rival;
use braid_bench::session::RunArgs;
use braid_cli::{Size, parse_size};
use clap::{Args, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct ChunkArgs {
    #[command(flatten)]
    pub(crate) usual: RunsArgs,
    /// Whose chunks: 0 5 6 [default: all of them; 0 and 5 with --quick]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',', value_parser = ["0", "5", "6"])]
    pub(crate) levels: Vec<String>,
    /// Measure this beside the disks of virtual machines: file (one without an array), nbdkit
    /// (that over NBD)
    #[arg(long, value_name = "RIVAL", value_delimiter = ',')]
    pub(crate) against: Vec<Rival>,
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) usual: RunsArgs,
    /// Which: 0 1 5 6 10 [default: all of them; 0 and 5 with --quick]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',')]
    #[arg(value_parser = ["0", "1", "5", "6", "10"])]
    pub(crate) levels: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    #[command(flatten)]
    pub(crate) usual: RunsArgs,
    /// Measure this beside it, where it can be compared: btrfs, md, file, nbdkit
    #[arg(long, value_name = "RIVAL", value_delimiter = ',')]
    pub(crate) against: Vec<Rival>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// How often each [default: 3; 1 with --quick]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) runs: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct LevelsArgs {
    #[command(flatten)]
    pub(crate) usual: RunsArgs,
    /// Which, beside one disk without RAID: 0 1 5 6 10 10f2 10o2 [default: all of them]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',', hide_possible_values = true)]
    pub(crate) levels: Vec<Level>,
    /// Size of the file that is read and written, or with --job the room for files [default: 1G;
    /// 16M with --quick]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<Size>,
    /// Measure this beside it: btrfs (its RAID profiles), md (the kernel's RAID), file (the file
    /// system below), nbdkit (one file, served in user space)
    #[arg(long, value_name = "RIVAL", value_delimiter = ',')]
    pub(crate) against: Vec<Rival>,
    /// Run this job file of fio's instead of the published one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) job: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The report's directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}
