//! `braid node`: keeps volumes for arrays over nodes.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use braid_host::control::make_run_dir;
use braid_host::daemon::Daemon;
use braid_host::fabric::Network;
use braid_host::fabric::frame::TransportKind;
use braid_host::node::{NodeSetup, Storage, serve_node};
use braid_host::notify;
use braid_host::run_dir::log_path;

use super::key::whole;
use super::launch::{is_loopback, launch};
use super::nodes::network;
use crate::args::{NodeArgs, Size, check_address};
use crate::failure::{Failure, system_error};
use crate::output;

/// With less a node could not even carry superblocks.
const LEAST_RING: Size = Size(64 << 10);

/// Spelling of options in advice: of the command line, or of the configuration file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spelling {
    /// `--no-key`, `--key FILE`.
    Options,
    /// `no_key = true`, `key = "FILE"`.
    Keys,
}

impl Spelling {
    fn flag(self, option: &str) -> String {
        match self {
            Self::Options => format!("--{option}"),
            Self::Keys => format!("{} = true", option.replace('-', "_")),
        }
    }

    fn value(self, option: &str, value: impl Display) -> String {
        match self {
            Self::Options => format!("--{option} {value}"),
            Self::Keys => format!("{option} = \"{value}\""),
        }
    }
}

pub(super) fn run(run_dir: &Path, args: &NodeArgs) -> Result<(), Failure> {
    // Before anything else: whoever waits for this process has to learn how it goes.
    let daemon = Daemon::adopt();
    let setup = setup(args, Spelling::Options)?;
    launch("node", &setup.listen, args.foreground, daemon, |daemon| serve(run_dir, &setup, daemon))
}

/// Checks the options of a node. Advice has options as they are spelled.
pub(super) fn setup(args: &NodeArgs, spelling: Spelling) -> Result<NodeSetup, Failure> {
    let listen = args.listen.clone().unwrap_or_default();
    check_address(&listen)
        .map_err(|reason| Failure::usage("node", &listen, reason, "write --listen HOST:PORT"))?;
    if args.ring.0 < LEAST_RING.0 {
        let reason = format!("a ring of {} bytes is too small for any client", args.ring.0);
        let least = spelling.value("ring", LEAST_RING);
        let next = format!("use {least} or more; a busy client takes some 20M to 35M");
        return Err(Failure::usage("node", &listen, reason, next));
    }
    let storage = match &args.store {
        None => Storage::Memory,
        // The process that serves works in another directory.
        Some(store) => Storage::Directory(std::path::absolute(store).map_err(|error| {
            let next = "name a directory";
            Failure::refused("node", store.display(), system_error(&error), next)
        })?),
    };
    // Nothing is on its way to who has no volumes.
    let ring_bytes = if args.witness { LEAST_RING.0 } else { args.ring.0 };
    let network = network("node", &args.network)?;
    let network = if args.no_key { network.kind.into() } else { network };
    let network = Network { encrypt: args.encrypt, ..network };
    network.key.map_or(Ok(()), |key| whole("node", &listen, key))?;
    let encrypt = spelling.flag("encrypt");
    let make_key = format!(
        "make a key with `braid key new FILE` and give it with {}",
        spelling.value("key", "FILE")
    );
    if args.encrypt && network.kind != TransportKind::Tcp {
        let reason = "slices pass the processor by over libfabric: nobody could encrypt them";
        let fabric = spelling.value("fabric", "tcp");
        let next = format!("use {fabric}, or leave {encrypt} out");
        return Err(Failure::refused("node", &listen, reason, next));
    }
    if args.encrypt && network.key.is_none() {
        let reason = "data is sealed with a cluster key, and there is none";
        let next = format!("{make_key}, or leave {encrypt} out");
        return Err(Failure::refused("node", &listen, reason, next));
    }
    if network.key.is_none() && !args.no_key && !is_loopback(&listen) {
        let reason = "without a cluster key it listens on loopback addresses only";
        let next = format!(
            "{make_key}, or say {} where everybody who can connect may do everything",
            spelling.flag("no-key")
        );
        return Err(Failure::refused("node", &listen, reason, next));
    }
    Ok(NodeSetup { listen, storage, witness: args.witness, ring_bytes, network })
}

/// Serves until a signal. Says where it listens; in the background it leaves its process id in
/// the run directory and a log, under that address.
fn serve(run_dir: &Path, setup: &NodeSetup, daemon: Option<Daemon>) -> Result<(), Failure> {
    let mut left = PidFile(None);
    let ready = |address: SocketAddr| {
        // A pipe that nobody reads is no reason to end.
        let _ = output::answer(&format!("{address}\n"));
        notify::ready();
        let Some(daemon) = daemon else { return Ok(()) };
        make_run_dir(run_dir)?;
        let pid_file = run_dir.join(format!("node-{address}.pid"));
        std::fs::write(&pid_file, format!("{}\n", std::process::id()))?;
        left.0 = Some(pid_file);
        daemon.ready(&log_path(run_dir, &format!("node-{address}")))
    };
    serve_node(setup, ready)
        .map_err(|error| Failure::refused("node", &setup.listen, error.reason, error.next))
}

/// Goes when the node ends.
struct PidFile(Option<PathBuf>);

impl Drop for PidFile {
    fn drop(&mut self) {
        let removed = self.0.take().map_or(Ok(()), std::fs::remove_file);
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                output::warning(&format!("node: its pid file stays: {}", system_error(&error)));
            }
            _ => {}
        }
    }
}
