//! `braid bench load`: a process of a comparison over nodes.

use std::io::{self, BufRead};
use std::time::Duration;

use braid_bench::compare::cluster::Pattern;
use braid_bench::compare::cluster::load::{self, ClientLoad};
use braid_cli::{Failure, fabric, open_nodes, output, system_error};
use braid_host::serve::Private;

use super::args::LoadArgs;

/// One client: assembles the array, says so, waits to be told to begin, measures, says what it
/// measured, and stops when there is nothing more to be told.
pub(super) fn load(args: &LoadArgs) -> Result<(), Failure> {
    let refused =
        |reason: String| Failure::refused("bench", "load", reason, "see what the nodes say");
    let kind = fabric("bench", Some(&args.fabric))?;
    let array = open_nodes(&args.members, args.pattern.lost(), args.schedule, kind.into())?;
    let array = Private::start(array).map_err(|error| refused(error.to_string()))?;
    let length = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let load = ClientLoad {
        pattern: args.pattern,
        warm_up: length(args.warm_up),
        length: length(args.seconds),
        in_flight_bytes: args.in_flight.0,
        stripe_bytes: args.stripe.0,
        array_bytes: array.size_bytes(),
    };
    output::answer("ready\n")?;
    let mut told = io::stdin().lock().lines();
    let system = |error: io::Error| refused(system_error(&error));
    told.next().transpose().map_err(system)?;
    let done = match args.pattern {
        Pattern::Rebuild => load::rebuild(array.submissions()),
        _ => load::drive(array.submissions(), &load),
    };
    let done = done.map_err(refused)?;
    output::answer(&format!("{}\n", serde_json::json!(done)))?;
    told.next().transpose().map_err(system)?;
    array.stop().map_err(|error| refused(error.to_string()))
}
