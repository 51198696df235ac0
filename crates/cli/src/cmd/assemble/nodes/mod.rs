//! `braid assemble` with members on nodes.

use std::path::Path;
use std::time::Duration;

use braid_array::Refusal;
use braid_array::refusal::Invocation;
use braid_cluster::ClientConfig;
use braid_cluster::assemble::Options;
use braid_cluster::client::NODE_TIMEOUT_MS;
use braid_host::daemon::Daemon;
use braid_host::fabric::Network;
use braid_host::serve::{Again, Assembled};

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

use config::{HowOverNodes, config_of, judge_again};
use explain::explain_nodes;
pub(in crate::cmd) use judge::{ask_all, volumes};
use judge::{judge, not_taken};

pub(super) fn run(
    run_dir: &Path,
    args: &AssembleArgs,
    called: &Called,
    nodes: &[NodeArg],
    serving: launch::How,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let name = called.wanted();
    let serving = launch::How { again: Some(HowAssembled::of_nodes(run_dir, args)), ..serving };
    let volumes = volumes("assemble", name, nodes)?;
    check_witnesses("assemble", &args.witness, &volumes)?;
    let network = network("assemble", &args.network)?;
    let options = Options { force: args.force, read_only: args.readonly, unclean: true };
    let timeout = Duration::from_secs(args.node_timeout);
    if args.explain {
        return explain_nodes(called, &volumes, options, args);
    }
    let object = called.name.clone().unwrap_or_else(|| volumes[0].to_string());
    launch("assemble", &object, args.foreground, daemon, |daemon| {
        let takeover = (args.take_over, timeout);
        let judged = judge(&volumes, name, options, network, takeover)?;
        let plan = judged.start().cloned().map_err(|(node, Refusal { reason, next })| {
            let object = node.map_or_else(|| object.clone(), NodeArg::to_string);
            Failure::refused("assemble", object, reason, called.named(next))
        })?;
        let name = called.run_name(judged.assembly.newest.as_deref(), &object)?;
        let not_in: Vec<String> = judged
            .missing
            .iter()
            .map(Missing::to_string)
            .chain(not_taken(&plan, &judged.assembly.verdicts))
            .collect();
        not_in.iter().for_each(|line| output::warning(&format!("assemble {name}: {line}")));
        if serving.whole && plan.degraded() > 0 {
            let devices = volumes.iter().map(NodeArg::to_string).collect();
            let options = braid_array::assemble::Options::default();
            let name = Some(name);
            let by_hand = Invocation::Assemble { name, rename: false, options, devices };
            let why = never_degraded(plan.degraded(), by_hand);
            return Err(Failure::explained("assemble", &object, why));
        }
        let how = HowOverNodes {
            schedule: args.schedule.unwrap_or(WriteSchedule::Mix),
            timeout,
            network,
        };
        let config = config_of(&name, plan, &how, args.force)?;
        let config = judged.without(config);
        let config = ClientConfig { witnesses: args.witness.clone(), ..config };
        let fail_timeout = Duration::from_secs(args.fail_timeout);
        let again = Some(Again { judge: judge_again(name.clone(), &config, how), fail_timeout });
        let array = Assembled::Cluster { config, network, again, missing: not_in };
        launch::serve("assemble", run_dir, name, array, serving, daemon)
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
    let judged = judge(&volumes, None, Options::default(), network, (false, timeout))?;
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
