//! Arguments of `braid bench`.

use std::path::PathBuf;

use braid_array::Refusal;
use braid_bench::compare::Rival;
use braid_bench::compare::cluster::ClusterSweep;
use braid_bench::compare::cluster::load::ClientLoad;
use braid_bench::compare::levels::Level;
use braid_bench::rig::lab::Blueprint;
use braid_bench::session::RunArgs;
use braid_cli::{MemberArg, NodeArg, Size, WriteSchedule, parse_size};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

/// Measurements of Braid and of others, side by side in one run, beside the bound computed first.
#[derive(Debug, Parser)]
#[command(name = "braid-bench", bin_name = "braid bench", version, max_term_width = 100)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

/// One variant for each comparison, and hidden ones for the processes it consists of.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// RAID levels and one disk under one job file of fio's
    Levels(LevelsArgs),
    /// Schedules over nodes, side by side, on shaped links
    Cluster(Box<ClusterArgs>),
    /// Chunk sizes against requests and streams, and disks of virtual machines
    Chunk(ChunkArgs),
    /// A mirror in sync, degraded, recovering, and a member of it alone, with dd
    States(RunsArgs),
    /// One disk, two and four in RAID 0, on machines with limits, with bonnie++
    Members(RunsArgs),
    /// Every level from within the process and over each export, beside servers without RAID:
    /// rates, latencies, CPU time
    Engine(EngineArgs),
    /// What consistency policies of RAID 5 cost
    Policies(RunsArgs),
    /// All comparisons but engine and policies, one after the other, in one report
    All(AllArgs),
    /// Write a report again from what the tools said
    Report(ReportArgs),
    /// Network namespaces with shaped links
    #[command(hide = true, subcommand)]
    Lab(LabCommand),
    /// One client with its load
    #[command(hide = true)]
    Load(LoadArgs),
    /// Write shell completions to stdout
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// Existing directory
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

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

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    pub(crate) sweep: ClusterSweep,
    /// Length of one measurement, after it has warmed up
    #[arg(long, value_name = "S", default_value_t = 3.0, requires = "level")]
    pub(crate) seconds: f64,
    /// How often the schedules take turns
    #[arg(long, value_name = "R", default_value_t = 3, requires = "level")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) runs: u16,
    /// Measure reads, too
    #[arg(long, requires = "level")]
    pub(crate) reads: bool,
    /// Measure reads without one node and without two, too, where the level survives that
    #[arg(long, requires = "level")]
    pub(crate) degraded_reads: bool,
    /// Measure writes of whole stripes without one node and without two, too
    #[arg(long, requires = "level")]
    pub(crate) degraded_writes: bool,
    /// Measure writes of 1M in sequence, each answered before the next, too
    #[arg(long, requires = "level")]
    pub(crate) lone_writes: bool,
    /// Measure writes of 4K at random places, too
    #[arg(long, requires = "level")]
    pub(crate) small_writes: bool,
    /// Measure the same one at a time, each durable before the next, too
    #[arg(long, requires = "level")]
    pub(crate) durable_writes: bool,
    /// Measure how one node is rebuilt by the others, too
    #[arg(long, requires = "level")]
    pub(crate) rebuild: bool,
    /// Measure this beside it, where its packages are installed: gluster (GlusterFS, dispersed
    /// volume 3+2)
    #[arg(long, value_name = "RIVAL", requires = "level", value_parser = ["gluster"])]
    pub(crate) against: Option<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Bring a lab up; prints its hosts and their addresses
    Up(Blueprint),
    /// End what runs in a lab, and remove it
    Down {
        /// Name of the lab
        name: String,
    },
    /// Print what every host has sent and received, in bytes
    Bytes {
        /// Name of the lab
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// What to do, and for how long, as JSON
    #[arg(value_parser = parse_load)]
    pub(crate) load: ClientLoad,
    /// Who makes the parities
    #[arg(long)]
    pub(crate) schedule: WriteSchedule,
    /// How data travels
    #[arg(long, default_value = "tcp")]
    pub(crate) fabric: String,
    /// The members that are there, node://HOST:PORT/VOLUME
    #[arg(required = true, value_name = "MEMBER", value_parser = parse_node)]
    pub(crate) members: Vec<NodeArg>,
}

fn parse_load(text: &str) -> Result<ClientLoad, serde_json::Error> {
    serde_json::from_str(text)
}

fn parse_node(text: &str) -> Result<NodeArg, Refusal> {
    match text.parse()? {
        MemberArg::Node(node) => Ok(node),
        _ => Err(Refusal::new("not a volume on a node", "write node://HOST:PORT/VOLUME")),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    /// A client is told its schedule by the name that the comparison has for it.
    #[test]
    fn names_are_those_of_the_comparison() {
        for schedule in braid_bench::compare::cluster::WriteSchedule::ALL {
            assert!(WriteSchedule::from_str(schedule.name(), false).is_ok(), "{schedule}");
        }
    }
}
