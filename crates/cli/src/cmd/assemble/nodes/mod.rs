//! `braid assemble` with members on nodes.

use std::path::Path;
use std::time::Duration;

use braid_array::Refusal;
use braid_array::format::MoveNote;
use braid_array::refusal::Invocation;
use braid_cluster::ClientConfig;
use braid_cluster::assemble::Options;
use braid_cluster::client::NODE_TIMEOUT_MS;
use braid_host::daemon::Daemon;
use braid_host::fabric::Network;
use braid_host::serve::{Again, Assembled, Leftovers};

use super::{Called, never_degraded};
use crate::args::{AssembleArgs, NodeArg, WriteSchedule};
use crate::cmd::launch::{self, launch};
use crate::cmd::nodes::{Missing, check_witnesses, network};
use crate::cmd::successor::HowAssembled;
use crate::failure::Failure;
use crate::output;

mod config;
mod explain;
mod judge;
mod pair;

use config::{HowOverNodes, check_note, config_of, judge_again};
use explain::explain_nodes;
use judge::{Look, judge, judge_look, look, not_taken};
pub(in crate::cmd) use judge::{ask_all, volumes};
use pair::Counting;

pub(super) fn run(
    run_dir: &Path,
    args: &AssembleArgs,
    called: &Called,
    nodes: &[NodeArg],
    serving: launch::How,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    if args.integrity_store.is_some() {
        let reason = "arrays over nodes have no checksums yet";
        return Err(Failure::usage("assemble", "--integrity-store", reason, "leave it out"));
    }
    let name = called.wanted();
    let serving = launch::How { again: Some(HowAssembled::of_nodes(run_dir, args)), ..serving };
    let volumes = volumes("assemble", name, nodes)?;
    check_witnesses("assemble", &args.witness, &volumes)?;
    let network = network("assemble", &args.network)?;
    let options = Options { force: args.force, read_only: args.readonly, unclean: true };
    let timeout = Duration::from_secs(args.node_timeout);
    if args.explain {
        let look = look("assemble", &volumes, true, network, timeout)?;
        let chosen = Counting::of(look, name)
            .map_err(|why| Failure::explained("assemble", &volumes[0], why))?;
        let arrays = match chosen {
            Counting::One(look) | Counting::Left(look, _) => vec![look.names(&volumes)],
            Counting::Pair(looks) => looks.iter().map(|look| look.names(&volumes)).collect(),
        };
        return explain_nodes(called, &arrays, options, args);
    }
    let object = called.name.clone().unwrap_or_else(|| volumes[0].to_string());
    let start = StartOverNodes {
        name,
        options,
        whole: serving.whole,
        how: HowOverNodes {
            schedule: args.schedule.unwrap_or(WriteSchedule::Mix),
            timeout,
            network,
        },
        called,
        args,
        object: &object,
    };
    launch("assemble", &object, args.foreground, daemon, |daemon| {
        let look = look("assemble", &volumes, true, network, timeout)?;
        let refused = |why| Failure::explained("assemble", &object, why);
        let chosen = Counting::of(look, name).map_err(refused)?;
        let mut serving = serving;
        let (name, array) = match chosen {
            Counting::One(look) => start.one(look)?,
            Counting::Left(look, left) => {
                serving.leftovers = Some(Leftovers { arrays: vec![left], network });
                start.one(look)?
            }
            Counting::Pair(looks) => {
                let arrays = looks.iter().filter_map(pair::volumes).collect();
                serving.leftovers = Some(Leftovers { arrays, network });
                start.pair(*looks)?
            }
        };
        // Who only reads removes nothing.
        serving.leftovers.take_if(|_| options.read_only);
        launch::serve("assemble", run_dir, name, array, serving, daemon)
    })
}

/// An array as it is to be started.
struct StartOverNodes<'a> {
    name: Option<&'a str>,
    options: Options,
    whole: bool,
    how: HowOverNodes,
    called: &'a Called,
    args: &'a AssembleArgs,
    /// Object of messages until the name of the array is known.
    object: &'a str,
}

/// An array that can be started.
struct StartedClient {
    name: String,
    config: ClientConfig,
    again: Again,
    /// Lines about members that it starts without.
    not_in: Vec<String>,
}

/// The way in which an array is served.
#[derive(Clone, Copy)]
enum Served {
    Alone,
    /// With the one that its data go to or come from.
    InAPair,
}

impl StartOverNodes<'_> {
    fn one(&self, look: Look) -> Result<(String, Assembled), Failure> {
        let StartedClient { name, config, again, not_in } = self.started(look, Served::Alone)?;
        let network = self.how.network;
        let again = Some(again);
        Ok((name, Assembled::Cluster { config, network, again, missing: not_in }))
    }

    fn pair(&self, [old, new]: [Look; 2]) -> Result<(String, Assembled), Failure> {
        let old = self.started(old, Served::InAPair)?;
        let new = self.started(new, Served::InAPair)?;
        let arrays = Box::new([(old.config, old.again), (new.config, new.again)]);
        let missing = [old.not_in, new.not_in].concat();
        Ok((new.name, Assembled::Moving { arrays, network: self.how.network, missing }))
    }

    /// Prepares an array.
    fn started(&self, look: Look, served: Served) -> Result<StartedClient, Failure> {
        let Self { object, args, how, called, .. } = self;
        let volumes: Vec<String> = look.volumes.iter().map(|one| one.node.to_string()).collect();
        let takeover = (args.take_over, how.timeout);
        let judged = judge_look(look, self.name, self.options, how.network, takeover)?;
        let newest = judged.assembly.newest.as_deref();
        let expected = match served {
            Served::Alone => Some(MoveNote::Apart),
            // Nothing moves, so what is where stays known.
            Served::InAPair if self.options.read_only => newest.map(MoveNote::of),
            Served::InAPair => None,
        };
        check_note(newest, expected).map_err(|why| Failure::explained("assemble", object, why))?;
        let plan = judged.start().cloned().map_err(|(node, Refusal { reason, next })| {
            let object = node.map_or_else(|| (*object).to_owned(), NodeArg::to_string);
            Failure::refused("assemble", object, reason, called.named(next))
        })?;
        let name = called.run_name(judged.assembly.newest.as_deref(), object)?;
        let not_in: Vec<String> = judged
            .missing
            .iter()
            .map(Missing::to_string)
            .chain(not_taken(&plan, &judged.assembly.verdicts))
            .collect();
        not_in.iter().for_each(|line| output::warning(&format!("assemble {name}: {line}")));
        if self.whole && plan.degraded() > 0 {
            let options = braid_array::assemble::Options::default();
            let name = Some(name);
            let by_hand = Invocation::Assemble { name, rename: false, options, devices: volumes };
            let why = never_degraded(plan.degraded(), by_hand);
            return Err(Failure::explained("assemble", object, why));
        }
        let config = judged.without(config_of(&name, plan, how, args.force)?);
        let config = ClientConfig { witnesses: args.witness.clone(), ..config };
        let fail_timeout = Duration::from_secs(args.fail_timeout);
        let again =
            Again { judge: judge_again(name.clone(), &config, *how, expected), fail_timeout };
        Ok(StartedClient { name, config, again, not_in })
    }
}

/// Returns the volumes that an array has which is stopped, of those that were named: since it got
/// more nodes they may have other names.
pub(in crate::cmd) fn present(
    operation: &str,
    name: Option<&str>,
    volumes: &[NodeArg],
    network: Network,
) -> Result<Vec<NodeArg>, Failure> {
    let mut arrays = present_arrays(operation, name, volumes, network)?;
    match arrays.pop() {
        Some(volumes) if arrays.is_empty() => Ok(volumes),
        _ => {
            let object = name.map_or_else(|| volumes[0].to_string(), str::to_owned);
            let reason = "its data are on their way to other nodes";
            let next = "assemble it, and wait until all have moved";
            Err(Failure::refused(operation, object, reason, next))
        }
    }
}

/// Returns the volumes of the array that has the data, or of the old and the new one between which
/// they move.
pub(in crate::cmd) fn present_arrays(
    operation: &str,
    name: Option<&str>,
    volumes: &[NodeArg],
    network: Network,
) -> Result<Vec<Vec<NodeArg>>, Failure> {
    let object = name.map_or_else(|| volumes[0].to_string(), str::to_owned);
    let timeout = Duration::from_millis(NODE_TIMEOUT_MS);
    let look = look(operation, volumes, true, network, timeout)?;
    let chosen =
        Counting::of(look, name).map_err(|why| Failure::explained(operation, &object, why));
    Ok(match chosen? {
        Counting::One(look) | Counting::Left(look, _) => vec![look.names(volumes)],
        Counting::Pair(looks) => looks.iter().map(|look| look.names(volumes)).collect(),
    })
}

/// Opens an array with exactly this number of missing members, for use by this process.
///
/// # Errors
/// Returns an error if the array cannot be started, or the number of missing members differs.
pub fn open_nodes(
    members: &[NodeArg],
    missing: u16,
    schedule: WriteSchedule,
    network: Network,
) -> Result<Assembled, Failure> {
    let volumes = volumes("assemble", None, members)?;
    let object = volumes[0].to_string();
    let timeout = Duration::from_millis(NODE_TIMEOUT_MS);
    let judged = judge(&volumes, Options::default(), network, timeout)?;
    match judged.start() {
        Ok(plan) if plan.degraded() == usize::from(missing) => {
            let how = HowOverNodes { schedule, timeout, network };
            let config = config_of(&object, plan.clone(), &how, missing > 0)?;
            Ok(Assembled::Cluster { config, network, again: None, missing: Vec::new() })
        }
        Ok(plan) => {
            let reason = format!("{} members are missing, not {missing}", plan.degraded());
            Err(Failure::refused("assemble", object, reason, "name all others"))
        }
        Err((node, why)) => {
            let object = node.map_or_else(|| object.clone(), NodeArg::to_string);
            Err(Failure::explained("assemble", object, why))
        }
    }
}
