//! One running array: engine, exports and control socket, from the start to a clean stop.
//!
//! Nothing is written to a member before everything else stands: the name is taken, the sockets
//! listen, the file is mounted, and then the engine starts.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use braid_array::assemble::Config;
use braid_array::events::ArrayEvent;
use braid_array::level::Level;
use braid_array::name::check_name;
use braid_array::status::Status;
use braid_array::{AnyMachine, BlockMachine, MemberId, Refusal, SECTOR_BYTES};
use braid_cluster::ClientConfig;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};

use crate::arena::Arena;
use crate::control::{ControlServer, News, Served, StopRequest};
use crate::disk::Disks;
use crate::engine::Engine;
use crate::engine::array_size::ArraySize;
use crate::export::vhost_user;
use crate::fabric::Network;
use crate::heap;
use crate::limits::{LimitKeeper, Limits};
use crate::log;
use crate::member::MemberFile;
use crate::notify::{self, Watched};
use crate::submission::{Message, SubmissionQueue};
use crate::system::{refused_by_system, since_1970};

mod again;
mod check;
mod contents;
mod faulty;
mod leftovers;
mod listening;
mod machinery;
mod nodes;
mod open_exports;
mod part;
mod private;
mod report;
mod running;
mod sockets;
mod spec;
mod sums;
#[cfg(test)]
mod tests;
mod trial;
mod upgrade;

pub use again::{Again, Judge};
pub use check::{ExportedArray, check_exports};
pub use leftovers::{ArrayVolumes, Leftovers, remove_volume};
use machinery::Machinery;
use nodes::{Nodes, NotSetUp};
use open_exports::OpenExports;
pub use part::ExportPart;
pub use private::Private;
use running::Running;
pub use spec::{ExportPlace, ExportSpec, SpecError};
pub use upgrade::Successor;
use upgrade::Upgrade;

/// Array to serve, and settings.
#[derive(Debug)]
pub struct Serving {
    /// Name of the array.
    pub name: String,
    /// Result of assembly.
    pub array: Assembled,
    /// Ways in which programs get at it.
    pub exports: Vec<ExportSpec>,
    /// Speed limits of its background work.
    pub limits: Limits,
    /// Directory of the control socket.
    pub run_dir: PathBuf,
    /// Way in which another program can go on with it, where that is possible.
    pub successor: Option<Successor>,
    /// Volumes to be removed once their data have all moved.
    pub leftovers: Option<Leftovers>,
    /// Directory of the stores of checksums: each member that has none behind its data gets one.
    pub integrity_store: Option<PathBuf>,
}

/// Result of assembly, with the members: opened and locked, in the order of `config.members`.
#[derive(Debug)]
pub enum Assembled {
    /// An array of devices.
    Array {
        /// The array.
        config: Config,
        /// Its members.
        members: Vec<MemberFile>,
    },
    /// An array of arrays.
    Nested {
        /// The outer array; its members are the inner ones, in the same order.
        outer: Config,
        /// The inner arrays with their members.
        inner: Vec<(Config, Vec<MemberFile>)>,
    },
    /// Arrays that are read as one, a piece of each behind the other; several of them may have the
    /// same devices.
    Pieces {
        /// The array of their pieces; its members are these arrays, in the same order.
        whole: Config,
        /// The arrays with their members.
        arrays: Vec<(Config, Vec<MemberFile>)>,
    },
    /// An array over nodes.
    Cluster {
        /// The array.
        config: ClientConfig,
        /// Network by which its nodes are reached.
        network: Network,
        /// Way to go on after too many nodes were away; without, requests fail then.
        again: Option<Again>,
        /// Lines for the log about members that it starts without.
        missing: Vec<String>,
    },
    /// An array over nodes, all data of which move to another one.
    Moving {
        /// The old array and the new one, and how each goes on after too many nodes were away.
        arrays: Box<[(ClientConfig, Again); 2]>,
        /// Network by which their nodes are reached.
        network: Network,
        /// Lines for the log about members that they start without.
        missing: Vec<String>,
    },
}

/// Serves an array until it is stopped: over the control socket, or by SIGTERM, SIGINT or SIGHUP,
/// which wait a minute for users of the array. Calls `ready` when the exports accept connections,
/// with lines about members lost until then; when that fails, the array is stopped.
///
/// # Errors
/// [`Refusal`]. Before `ready` was called nothing has been written.
pub fn serve(
    serving: Serving,
    ready: impl FnOnce(&[String]) -> io::Result<()>,
) -> Result<(), Refusal> {
    log::begin();
    let stops = Stops::new(running::PATIENCE);
    heap::set_up();
    let mut array = serving.array;
    upgrade::list_faulty(&mut array);
    let stores = serving.integrity_store.as_deref();
    let machinery = Machinery::new(array, &serving.exports, stores)?;
    let how = How {
        name: serving.name,
        exports: serving.exports,
        limits: serving.limits,
        run_dir: serving.run_dir,
        successor: serving.successor,
        leftovers: serving.leftovers,
    };
    serve_machine(&how, machinery, stops, ready)
}

/// Settings of an array that is served, whatever it is made of.
struct How {
    name: String,
    exports: Vec<ExportSpec>,
    limits: Limits,
    run_dir: PathBuf,
    successor: Option<Successor>,
    leftovers: Option<Leftovers>,
}

/// Channel of reasons to stop.
struct Stops {
    sender: Sender<StopRequest>,
    receiver: Receiver<StopRequest>,
    /// Time for which a signal waits for users of the array.
    patience: Duration,
}

impl Stops {
    fn new(patience: Duration) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver, patience }
    }
}

fn engine_for(
    machine: Box<dyn BlockMachine + Send>,
    members: Vec<(MemberId, MemberFile)>,
    arena: Arena,
    nodes: Option<Nodes>,
) -> Result<Engine, Refusal> {
    let engine = Engine::new(AnyMachine::Block(machine), members, arena);
    let mut engine = engine.map_err(|error| refused_by_system(&error))?;
    if let Some(nodes) = nodes {
        engine.set_fabric(nodes.network(), None)?;
    }
    Ok(engine)
}

/// Returns the directory of the members' overlays, if they have any.
fn overlay_of(members: &[(MemberId, MemberFile)]) -> Option<PathBuf> {
    members.iter().find_map(|(_, member)| Some(member.overlay.as_ref()?.dir.clone()))
}

/// The exports that were asked for.
fn open_exports(
    how: &How,
    engine: &mut Engine,
    facts: Facts,
    mounts: u32,
) -> Result<OpenExports, Refusal> {
    let How { name, run_dir, .. } = how;
    let parts = upgrade::parts();
    let mut open_exports = OpenExports::new(name, run_dir, facts, mounts, parts, engine);
    let mut open = |export| open_exports.open(export, &mut |export| Ok(engine.add_export(export)));
    how.exports.iter().try_for_each(&mut open)?;
    Ok(open_exports)
}

fn serve_machine(
    how: &How,
    array: Machinery,
    stops: Stops,
    ready: impl FnOnce(&[String]) -> io::Result<()>,
) -> Result<(), Refusal> {
    let How { name, run_dir, successor, .. } = how;
    check_name(name)?;
    let system = |error: io::Error| refused_by_system(&error);
    let mut control = ControlServer::bind(run_dir, name)?;
    let signals = watch_signals(stops.sender.clone()).map_err(system)?;
    let overlay = overlay_of(&array.members);
    let disks = Disks::of_members(&array.machine.status());
    let facts = Facts::of(array.machine.as_ref());
    let mut engine = engine_for(array.machine, array.members, array.arena, array.nodes)?;
    let submissions = engine.submissions();
    let more = engine.export_queue();
    let (news, events) = report_events(&mut engine, stops.sender.clone());
    let open_exports = open_exports(how, &mut engine, facts, array.mounts)?;
    let limits = LimitKeeper::start(submissions.clone()).map_err(system)?;
    upgrade::begin_limited(&limits, how.limits.clone());
    let served = Served {
        name: name.to_owned(),
        submissions: submissions.clone(),
        block_bytes: facts.block_bytes,
        network: array.nodes.map(Nodes::network),
        exports: open_exports.shown(),
        run_dir: run_dir.to_owned(),
        started_unix_s: since_1970().as_secs(),
        limits: limits.clone(),
        stop: stops.sender.clone(),
        news: Arc::clone(&news),
        disks,
        overlay,
    };
    let engine = run_apart(engine, stops.sender.clone()).map_err(system)?;
    let mut running = Running::new(name.to_owned(), submissions, open_exports, more, engine);
    let watched = watched(&running.submissions).map_err(system)?;
    // Who asks for its state hears it while nodes are waited for, too.
    let answers = control.run(Arc::new(served)).map_err(|error| NotSetUp::from(system(error)));
    let connected = answers.and_then(|()| match array.nodes {
        Some(nodes) => nodes.connected(&running.submissions, &news, stops.sender, &stops.receiver),
        None => Ok(Vec::new()),
    });
    let started = connected.and_then(|lost| {
        running.start_exports()?;
        upgrade::restore(&running.submissions)?;
        let missing = [&array.missing[..], &lost].concat();
        // Of nodes that are away others have told.
        let told = ready(if array.nodes.is_some() { &lost } else { &missing });
        let logged = told.and_then(|()| log_events(name, &missing, events, &running.submissions));
        logged.map_err(|error| NotSetUp::from(system(error)))?;
        Ok(running.take_over(how.leftovers.clone())?)
    });
    let upgrade = Upgrade { successor, limits: &limits, news: &news, control: &control };
    let upgrade = |running: &mut Running, wanted| upgrade.replace_program(running, wanted);
    // Who starts it is told why it did not.
    let served_once = started.is_ok();
    let (told, result) = match started {
        Ok(()) => match running.supervise(&stops.receiver, stops.patience, upgrade) {
            Ok(told) => (told, Ok(())),
            Err(error) => (None, Err(error)),
        },
        Err(not_set_up) => running.end_start(not_set_up),
    };
    signals.close();
    // The name is free before the one who asked hears of it.
    drop((running, control, watched));
    if served_once {
        log_end(name, &result);
    }
    told.into_iter().for_each(|told| told(Ok(())));
    result
}

/// The service manager hears that all is well while the engine answers.
fn watched(submissions: &SubmissionQueue) -> io::Result<Option<Watched>> {
    let submissions = submissions.clone();
    notify::watch(move || submissions.call(|done| Message::Clients { done }).is_some())
}

/// Runs an engine in a thread of its own, which tells how it ended.
fn run_apart(engine: Engine, stop: Sender<StopRequest>) -> io::Result<Receiver<io::Result<()>>> {
    let (end, ended) = mpsc::channel();
    let run = move || {
        // Nobody hears it when the array is not served any more.
        let _ = (end.send(engine.run()), stop.send(StopRequest::EngineEnded));
    };
    thread::Builder::new().name("engine".into()).spawn(run)?;
    Ok(ended)
}

fn log_end(name: &str, result: &Result<(), Refusal>) {
    match result {
        Ok(()) => tracing::info!(array = name, "has stopped"),
        Err(error) => tracing::error!(array = name, "has ended: {error}"),
    }
}

/// Properties of the array that exports need, besides its size.
#[derive(Clone, Copy, Debug)]
struct Facts {
    uuid: [u8; 16],
    block_bytes: u32,
    /// 0 where there are no stripes.
    chunk_bytes: u64,
    /// Bytes in a stripe without its parity and copies.
    stripe_bytes: u64,
    read_only: bool,
}

impl Facts {
    fn of(machine: &dyn BlockMachine) -> Self {
        let Status { superblock, array_sectors, used_member_sectors, .. } = machine.status();
        let level = Level::from_md(superblock.level);
        let striped = !matches!(level, Some(Level::Linear | Level::Raid1));
        let chunk_sectors = if striped { superblock.chunk_sectors } else { 0 };
        let data_members = array_sectors.checked_div(used_member_sectors);
        let data_members = data_members.unwrap_or(superblock.raid_disks.into()).max(1);
        let chunk_bytes = u64::from(chunk_sectors) * SECTOR_BYTES;
        Self {
            uuid: superblock.set_uuid,
            block_bytes: machine.block_bytes(),
            chunk_bytes,
            stripe_bytes: chunk_bytes * data_members,
            read_only: machine.read_only(),
        }
    }

    /// Returns the properties on which the bytes of an export depend.
    fn exported(&self, size: &ArraySize) -> ExportedArray {
        let Self { block_bytes, read_only, .. } = *self;
        let size_bytes = size.bytes();
        ExportedArray { size_bytes, block_bytes, read_only }
    }

    fn vhost_user_device(
        &self,
        name: &str,
        size: ArraySize,
        queues: Option<u16>,
    ) -> vhost_user::ExportedDevice {
        let Self { block_bytes, read_only, chunk_bytes, stripe_bytes, .. } = *self;
        vhost_user::ExportedDevice {
            name: name.to_owned(),
            size,
            block_bytes,
            read_only,
            chunk_bytes,
            stripe_bytes,
            rings: queues.unwrap_or(vhost_user::MAX_RINGS as u16),
        }
    }
}

/// Keeps the array's reports, for the log and for the answer to `status`.
fn report_events(
    engine: &mut Engine,
    stop: Sender<StopRequest>,
) -> (Arc<News>, Receiver<ArrayEvent>) {
    let news = Arc::new(News::after(upgrade::last_scrub()));
    let reporter = Arc::clone(&news);
    let (sender, events) = mpsc::channel();
    engine.on_event(Box::new(move |event| {
        reporter.report(event);
        if *event == ArrayEvent::TakenOver {
            // Nobody hears it when the array ends already.
            let _ = stop.send(StopRequest::TakenOver);
        }
        // The log is written elsewhere; when its thread is gone there is no log to write.
        let _ = sender.send(event.clone());
    }));
    (news, events)
}

/// Writes the log from now on, beginning with earlier reports. Missing members were already
/// reported to the user who started the array.
fn log_events(
    name: &str,
    missing: &[String],
    events: Receiver<ArrayEvent>,
    submissions: &SubmissionQueue,
) -> io::Result<()> {
    tracing::info!(array = name, "is served");
    missing.iter().for_each(|line| tracing::warn!(array = name, "{line}"));
    let name = name.to_owned();
    let submissions = submissions.clone();
    let write = move || report::log(&name, &events, &submissions);
    thread::Builder::new().name("log".into()).spawn(write).map(drop)
}

/// SIGTERM, SIGINT and SIGHUP ask for a stop from here on.
pub(crate) fn watch_signals(stop: Sender<StopRequest>) -> io::Result<Handle> {
    // What is caught does not end the process: a write beyond the limit of a file's size is one
    // that fails.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let handle = signals.handle();
    let watch = move || {
        for _ in signals.forever() {
            if stop.send(StopRequest::Signal).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(handle)
}
