//! `braid down`: stops the arrays and nodes of the file, arrays first.

use std::path::Path;

use braid_host::control::{Client, ControlError};

use super::{entry, node_admin, up};
use crate::args::{DownArgs, NodeStopArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::output;

const OPERATION: &str = "down";

pub(super) fn run(run_dir: &Path, args: &DownArgs) -> Result<(), Failure> {
    let config = Config::read(OPERATION, &args.file.config)?;
    let mut names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    if args.all {
        // Nodes come first where things are started.
        names = config.names();
        names.reverse();
    } else {
        names.sort_by_key(|name| config.array(name).is_none());
    }
    let stopped = names.iter().map(|name| stop(run_dir, &config, name, args.force));
    let failures: Vec<Failure> = stopped.filter_map(Result::err).collect();
    failures.iter().for_each(output::failure);
    let code = failures.iter().map(Failure::code).max();
    code.map_or(Ok(()), |code| Err(Failure::Silent(code)))
}

fn stop(run_dir: &Path, config: &Config, name: &str, force: bool) -> Result<(), Failure> {
    if config.array(name).is_some() {
        return match Client::connect(run_dir, name).and_then(|client| client.stop(force)) {
            Ok(()) => output::answer(&format!("{name}: stopped\n")),
            Err(ControlError::NotRunning) => idle(name),
            Err(error) => Err(Failure::explained(OPERATION, name, error)),
        };
    }
    let Some(entry) = config.node(name) else {
        return Err(up::unknown(OPERATION, config, name));
    };
    let words = entry::node_words(entry, false);
    if !up::answers(&words)? {
        return idle(name);
    }
    node_admin::stop(&NodeStopArgs { address: up::address(&words), network: words.network })
}

fn idle(name: &str) -> Result<(), Failure> {
    output::answer(&format!("{name}: does not run\n"))
}
