//! Arrays over nodes.

use braid_cluster::policy::{Policy, plan};

use super::{check_name, has_it_already};
use crate::args::{NewPolicy, NodeArg, UpdateArgs};
use crate::cmd::assemble::{present, volumes};
use crate::cmd::nodes::{network, options};
use crate::cmd::volumes::{carry_out, look_at_all};
use crate::cmd::writes;
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;

pub(super) fn run(args: &UpdateArgs, nodes: &[NodeArg]) -> Result<(), Failure> {
    let nodes = volumes("update", Some(&args.name), nodes)?;
    let network = network("update", &args.network)?;
    let nodes = present("update", Some(&args.name), &nodes, network)?;
    let held = look_at_all("update", &nodes, network)?;
    check_name(args, held.iter().filter_map(|volume| volume.candidate.superblock.as_ref().ok()))?;
    let policy = match args.consistency_policy {
        NewPolicy::Resync => Policy::Resync,
        NewPolicy::Bitmap => Policy::Bitmap,
        NewPolicy::Ppl => Policy::PartialParity,
        NewPolicy::Journal => Policy::Journal,
    };
    let change = plan(&held, policy, writes::now())
        .map_err(|why| Failure::explained("update", &args.name, why))?;
    if change.writes.is_empty() {
        return has_it_already(args);
    }
    carry_out("update", &nodes, network, &held, &change)?;
    let words: Vec<String> = nodes.iter().map(|node| shell_word(&node.to_string())).collect();
    let option = options(&args.network);
    let name = shell_word(&args.name);
    output::answer(&format!("braid assemble{option} {name} {}\n", words.join(" ")))
}
