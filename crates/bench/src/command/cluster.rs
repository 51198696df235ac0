//! `braid bench cluster`: the arrays that were published, or the ones that were typed; and `braid
//! bench load`, one of its clients.

use std::io::{self, BufRead};
use std::ops::RangeInclusive;

use braid_array::level::Level;
use braid_bench::compare::cluster::load::{self, ClientLoad};
use braid_bench::compare::cluster::{
    Cluster, ClusterOptions, ClusterSweep, Pattern, WriteSchedule,
};
use braid_bench::rig::spaces::MAX_HOSTS;
use braid_cli::{Failure, Size, Typed, fabric, family, open_nodes, output, system_error};
use braid_cluster::family::XOR2D_NAME;
use braid_host::serve::Private;

use super::args::{ClusterArgs, LoadArgs, RunsArgs};
use super::compare;

const SECONDS: RangeInclusive<f64> = 0.1..=600.0;

pub(super) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    if args.sweep.level.is_empty() {
        return compare::usual::<Cluster>(&RunsArgs { run: args.run.clone(), runs: None });
    }
    let options = options(args)?;
    if args.sweep.link_bit_s.is_none() {
        output::warning("bench cluster: no --link, so all runs over loopback, unshaped");
    }
    compare::run_as_said(&args.run, vec![Box::new(Cluster::new(options))])
}

/// Checks the arguments and returns the options.
fn options(args: &ClusterArgs) -> Result<ClusterOptions, Failure> {
    let asked = &args.sweep;
    let usage =
        |reason: &str, next: &'static str| Err(Failure::usage("bench", "cluster", reason, next));
    if !SECONDS.contains(&args.seconds) {
        return usage("--seconds is out of range", "use 0.1 to 600");
    }
    if args.against.is_some() && asked.link_bit_s.is_none() {
        return usage("another file system is measured in a lab only", "give --link a rate");
    }
    fabric("bench", Some(&asked.fabric))?;
    let by_default = matches!(asked.level.parse(), Ok(Level::Raid6)).then_some(XOR2D_NAME);
    let layout = asked.layout.clone().or(by_default.map(str::to_owned));
    for &nodes in &asked.nodes {
        for block in [None].into_iter().chain(asked.block_bytes.iter().copied().map(Some)) {
            check_block(&asked.level, layout.as_deref(), nodes, block.map(Size))?;
        }
    }
    let others = [
        (args.reads, Pattern::Read),
        (args.degraded_reads, Pattern::ReadOneLost),
        (args.degraded_reads, Pattern::ReadTwoLost),
        (args.degraded_writes, Pattern::WriteOneLost),
        (args.degraded_writes, Pattern::WriteTwoLost),
        (args.lone_writes, Pattern::WriteAlone),
        (args.small_writes, Pattern::Write4k),
        (args.durable_writes, Pattern::Write4kDurable),
        (args.rebuild, Pattern::Rebuild),
    ];
    let others = others.into_iter().filter(|(asked, _)| *asked).map(|(_, other)| other).collect();
    let gluster = args.against.is_some();
    let sweep = ClusterSweep { layout, others, gluster, ..asked.clone() };
    for setting in sweep.settings() {
        let missing = |schedule: &&WriteSchedule| !setting.has(**schedule);
        if let Some(schedule) = sweep.schedules.iter().find(missing) {
            return usage(&format!("there is no schedule {schedule} here"), "leave it out");
        }
    }
    Ok(ClusterOptions { sweeps: vec![sweep], seconds: args.seconds, runs: args.runs })
}

/// Level, layout, nodes and block have to go together.
fn check_block(
    level: &str,
    layout: Option<&str>,
    nodes: u16,
    block: Option<Size>,
) -> Result<(), Failure> {
    let operation = "bench";
    let object = "cluster";
    let raid_devices = nodes.into();
    let typed = Typed { operation, object, level, layout, raid_devices, chunk: block };
    let whole = block.is_none_or(|block| block.0.is_multiple_of(4096));
    if !whole || !(1..=MAX_HOSTS).contains(&nodes) {
        let next = "use blocks that are multiples of 4K, and up to 64 nodes";
        return Err(typed.usage("--block or --nodes is out of range", next));
    }
    let code = family(&typed)?;
    code.code(nodes, 0).map(drop).map_err(|error| typed.wrong(&error))
}

/// One client: assembles the array, says so, waits to be told to begin, measures, says what it
/// measured, and stops when there is nothing more to be told.
pub(super) fn load(args: &LoadArgs) -> Result<(), Failure> {
    let refused =
        |reason: String| Failure::refused("bench", "load", reason, "see what the nodes say");
    let kind = fabric("bench", Some(&args.fabric))?;
    let lost = args.load.pattern.lost();
    let array = open_nodes(&args.members, lost, args.schedule, kind.into())?;
    let array = Private::start(array).map_err(|error| refused(error.to_string()))?;
    let load = ClientLoad { array_bytes: array.size_bytes(), ..args.load };
    output::answer("ready\n")?;
    let mut told = io::stdin().lock().lines();
    let system = |error: io::Error| refused(system_error(&error));
    told.next().transpose().map_err(system)?;
    let done = match load.pattern {
        Pattern::Rebuild => load::rebuild(array.submissions()),
        _ => load::drive(array.submissions(), &load),
    };
    let done = done.map_err(refused)?;
    output::answer(&format!("{}\n", serde_json::json!(done)))?;
    told.next().transpose().map_err(system)?;
    array.stop().map_err(|error| refused(error.to_string()))
}
