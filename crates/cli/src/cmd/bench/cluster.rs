//! `braid bench cluster`: the schedules of an array over nodes side by side, and the line.

use braid_array::level::Level;
use braid_bench::rig::{leftovers, spaces};
use braid_cluster::Family;
use braid_cluster::family::XOR2D_NAME;
use braid_cluster::pipeline::Params;
use indicatif::ProgressBar;

use super::measure::{self, Kind, Setting};
use super::results::{Entry, Machine, Results};
use super::rig::Cluster;
use super::{bounds, gluster, report, table};
use crate::args::{ClusterArgs, PatternName, PeerName, Size, WriteSchedule, typed};
use crate::cmd::nodes;
use crate::cmd::shape::{self, Typed};
use crate::failure::Failure;
use crate::output;

const RUNS: std::ops::RangeInclusive<u16> = 1..=99;
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=600.0;

pub(super) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    let settings = settings(args)?;
    leftovers::take_away_of_the_dead();
    leftovers::watch_signals(|| ())?;
    if args.link.is_none() {
        output::warning("bench cluster: no --link, so all runs over loopback, unshaped");
    }
    let bar =
        if output::shows_progress() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let mut entries = Vec::new();
    for (number, setting) in settings.iter().enumerate() {
        let Setting { nodes, clients, block_bytes, .. } = *setting;
        let storage = typed(&setting.storage);
        bar.set_message(format!(
            "{} of {}: {nodes} nodes, {clients} clients, blocks of {}, {storage}",
            number + 1,
            settings.len(),
            Size(block_bytes)
        ));
        entries.extend(array(args, setting)?);
    }
    if args.against == Some(PeerName::Gluster) {
        bar.set_message("GlusterFS 3+2");
        entries.extend(gluster::measure(args)?);
    }
    bar.finish_and_clear();
    answer(args, Results::new(Machine::this(), entries))
}

fn answer(args: &ClusterArgs, results: Results) -> Result<(), Failure> {
    if args.json {
        output::print_json(&results)?;
    } else {
        output::answer(&format!("{}\n{}", table::table(&results), table::notes(&results)))?;
    }
    match &args.report {
        Some(directory) => report::write(directory, results),
        None => Ok(()),
    }
}

/// Measures one array.
fn array(args: &ClusterArgs, setting: &Setting) -> Result<Vec<Entry>, Failure> {
    let (scratch, _guard) = leftovers::scratch_directory(args.store.as_deref())?;
    let mut cluster = Cluster::start(setting, args.seconds, &scratch)?;
    measure::measure(&mut cluster, setting, &kinds(args, setting), args.runs, args.seconds)
}

/// What is compared: writes with every schedule; the rest, which does not depend on it, with one.
fn kinds(args: &ClusterArgs, setting: &Setting) -> Vec<Kind> {
    let write = |&schedule| Kind { pattern: PatternName::Write, schedule };
    let mut kinds: Vec<Kind> = args.schedules.iter().map(write).collect();
    let encoder = args.schedules.iter().find(|&&schedule| schedule == WriteSchedule::Encoder);
    let schedule = *encoder.unwrap_or(&args.schedules[0]);
    let others = [
        (args.reads, PatternName::Read),
        (args.degraded_reads, PatternName::ReadOneLost),
        (args.degraded_reads, PatternName::ReadTwoLost),
        (args.small_writes, PatternName::Write4k),
    ];
    let survives = |lost| bounds::survives(setting.family, setting.nodes, lost);
    let asked = others.into_iter().filter(|(asked, pattern)| *asked && survives(pattern.lost()));
    kinds.extend(asked.map(|(_, pattern)| Kind { pattern, schedule }));
    kinds
}

/// Everything that is measured, checked.
fn settings(args: &ClusterArgs) -> Result<Vec<Setting>, Failure> {
    let usage =
        |reason: &str, next: &'static str| Err(Failure::usage("bench", "cluster", reason, next));
    if !RUNS.contains(&args.runs) {
        return usage("--runs is out of range", "use 1 to 99");
    }
    if !SECONDS.contains(&args.seconds) {
        return usage("--seconds is out of range", "use 0.1 to 600");
    }
    if args.clients.iter().any(|clients| !(1..=spaces::MAX_HOSTS).contains(clients)) {
        return usage("--clients is out of range", "use 1 to 64");
    }
    if args.against.is_some() && args.link.is_none() {
        return usage("another file system is measured in a lab only", "give --link a rate");
    }
    nodes::fabric("bench", Some(&args.fabric))?;
    let mut settings = Vec::new();
    for &storage in &args.storage {
        for (&nodes, &clients) in product(&args.nodes, &args.clients) {
            for block in blocks(args, nodes)? {
                let (family, layout) = code(args, nodes, Some(block))?;
                for &schedule in &args.schedules {
                    if bounds::write(family, nodes, schedule, clients).is_none() {
                        let reason = format!("there is no schedule {} here", typed(&schedule));
                        return usage(&reason, "leave it out");
                    }
                }
                let (block_bytes, link_bit_s) = (block.0, args.link);
                let fabric = args.fabric.clone();
                settings.push(Setting {
                    family,
                    layout,
                    nodes,
                    clients,
                    block_bytes,
                    storage,
                    fabric,
                    link_bit_s,
                });
            }
        }
    }
    Ok(settings)
}

fn product<'a, A, B>(a: &'a [A], b: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    a.iter().flat_map(move |a| b.iter().map(move |b| (a, b)))
}

/// The blocks that were typed, or the one that suits the array.
fn blocks(args: &ClusterArgs, nodes: u16) -> Result<Vec<Size>, Failure> {
    if !args.block.is_empty() {
        return Ok(args.block.clone());
    }
    let (family, _) = code(args, nodes, None)?;
    let block = Params::default_chunk_bytes(family, nodes)
        .map_err(|error| Failure::explained("bench", "cluster", error).with_code(Failure::USAGE))?;
    Ok(vec![Size(block.into())])
}

/// The code that was typed, with the layout's name. Without one, level 6 is that of nodes.
fn code(
    args: &ClusterArgs,
    nodes: u16,
    block: Option<Size>,
) -> Result<(Family, Option<String>), Failure> {
    let by_default = matches!(args.level.parse(), Ok(Level::Raid6)).then_some(XOR2D_NAME);
    let typed = Typed {
        operation: "bench",
        object: "cluster",
        level: &args.level,
        layout: args.layout.as_deref().or(by_default),
        raid_devices: nodes.into(),
        chunk: block,
    };
    let whole = block.is_none_or(|block| block.0.is_multiple_of(4096));
    if !whole || !(1..=spaces::MAX_HOSTS).contains(&nodes) {
        let next = "use blocks that are multiples of 4K, and up to 64 nodes";
        return Err(typed.usage("--block or --nodes is out of range", next));
    }
    let family = shape::family(&typed)?;
    family.code(nodes, 0).map_err(|error| typed.wrong(&error))?;
    Ok(match family {
        Family::Xor2d => (family, Some(XOR2D_NAME.to_owned())),
        Family::Md { layout, .. } => (family, layout.name()),
    })
}
