//! Nodes and clients as processes, in a lab or on loopback, and measurements with them.

use braid_array::Role;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use braid_cluster::pipeline::Params;
use braid_cluster::{Family, Pipeline, Planner};

use super::line;
use super::load::ClientLoad;
use super::rig::{MeasurementKind, Rig};
use super::setting::{Counters, LineRate, Raw, Setting, difference};
use super::words::{Pattern, Storage};
use crate::failure::{Failure, system_error};
use crate::rig::Room;
use crate::rig::lab::{self, Blueprint, Lab};
use crate::rig::leftovers::Guard;
use crate::rig::place::Site;
use crate::rig::process::Process;
use crate::rig::spaces::SpaceHost;

/// Time until a process that was started has to be ready.
const START: Duration = Duration::from_secs(30);
/// Time until the rate of a client is steady.
const WARM_UP: Duration = Duration::from_millis(700);
const ARRAY_BYTES: u64 = 256 << 20;
/// Bytes that a node's memory may lose by being cut up.
const SLACK_BYTES: u64 = 4 << 20;
/// Whole stripes in flight: some being sent, some being closed.
const STRIPES_IN_FLIGHT: u64 = 4;
/// Bytes in flight: the least that is enough, and the most that is possible.
const IN_FLIGHT: (u64, u64) = (24 << 20, 56 << 20);

/// The node processes of one setting, with their stores, and a volume for each client. `start`
/// starts them; each measurement starts the clients of a case, and makes a new array first where
/// the pattern needs its own. Dropped, the processes end, and then their files go.
#[derive(Debug)]
pub(super) struct Nodes {
    setting: Setting,
    family: Family,
    seconds: f64,
    scratch: PathBuf,
    nodes: Vec<Process>,
    addresses: Vec<String>,
    /// Patterns that have arrays of their own by now.
    made: BTreeSet<Pattern>,
    site: Site,
    /// Goes last, when nothing writes there any more.
    _files: Guard,
}

impl Nodes {
    /// Starts the nodes and creates a volume for each client. Volumes and messages of the nodes go
    /// into a directory of their own.
    pub(super) fn start(setting: &Setting, seconds: f64, room: &Room) -> Result<Self, Failure> {
        let family = setting.family().ok_or_else(|| {
            let next = "see braid bench cluster --help";
            Failure::usage(setting.name(), "there is no such array over nodes", next)
        })?;
        let (scratch, files) = directory(room)?;
        let site = site(room, setting)?;
        let mut nodes = Self {
            setting: setting.clone(),
            family,
            seconds,
            scratch,
            nodes: Vec::new(),
            addresses: Vec::new(),
            made: BTreeSet::new(),
            site,
            _files: files,
        };
        for number in 0..setting.nodes {
            nodes.start_node(number)?;
        }
        for number in 0..setting.clients {
            let volume = volume(number, Pattern::Write);
            nodes.create(number, &volume)?;
        }
        Ok(nodes)
    }

    /// Creates arrays for a pattern that leaves nodes behind.
    fn create_for(&mut self, pattern: Pattern) -> Result<(), Failure> {
        if pattern.leaves_some_behind() && self.made.insert(pattern) {
            let mut clients = 0..self.setting.clients;
            clients.try_for_each(|client| self.create(client, &volume(client, pattern)))?;
        }
        Ok(())
    }

    fn start_node(&mut self, number: u16) -> Result<(), Failure> {
        let host = SpaceHost::Node(number);
        let system = |error: io::Error| failed(host)(system_error(&error));
        let ip = self.site.ip(host);
        let store = self.scratch.join(host.to_string());
        let mut command = self.site.braid(host);
        command.args(["node", "--foreground", "--no-key", "--listen", &format!("{ip}:0")]);
        command.args(["--fabric", &self.setting.fabric]);
        command.args(["--ring", &ring_bytes(self.family, &self.setting).to_string()]);
        match self.setting.storage {
            Storage::Memory => command.arg("--memory"),
            Storage::Disk => {
                std::fs::create_dir_all(&store).map_err(system)?;
                command.arg("--store").arg(&store)
            }
        };
        let log = self.scratch.join(format!("{host}.log"));
        let node = Process::start(command, log).map_err(system)?;
        // It says where it listens once it does.
        let address = node.read_line(START).map_err(failed(host))?;
        self.nodes.push(node);
        self.addresses.push(address);
        Ok(())
    }

    fn create(&self, client: u16, volume: &str) -> Result<(), Failure> {
        let host = SpaceHost::Client(client);
        let failed = failed(host);
        let Setting { nodes, block_bytes, ref level, .. } = self.setting;
        let code = self.family.code(nodes, 0).map_err(|error| failed(error.to_string()))?;
        let stripes = ARRAY_BYTES.div_ceil(self.setting.stripe_bytes()).max(2 * STRIPES_IN_FLIGHT);
        let size = stripes * u64::from(code.rows()) * block_bytes;
        let mut command = self.site.braid(host);
        // Its nodes have no key.
        command.env("BRAID_KEY", "");
        command.args(["create", volume, "--assume-clean"]);
        command.args(["--consistency-policy", self.setting.policy.name()]);
        command.args(["--level", level, "--raid-devices", &nodes.to_string()]);
        command.args(["--size", &size.to_string()]);
        if self.family.has_chunk() {
            command.args(["--chunk", &block_bytes.to_string()]);
        }
        command.args(["--fabric", &self.setting.fabric]);
        command.args(self.setting.layout.iter().flat_map(|layout| ["--layout", layout]));
        command.args(self.members(volume));
        let log = self.scratch.join(format!("create-{volume}.log"));
        let started = Process::start(command, log).map_err(|error| failed(system_error(&error)));
        started?.finish(START).map_err(failed)
    }

    fn members(&self, volume: &str) -> impl Iterator<Item = String> {
        self.addresses.iter().map(move |address| format!("node://{address}/{volume}"))
    }

    fn start_client(&self, client: u16, kind: MeasurementKind) -> Result<Process, Failure> {
        let host = SpaceHost::Client(client);
        let failed = failed(host);
        let mut command = self.site.braid(host);
        let stripe_bytes = self.setting.stripe_bytes();
        let load = ClientLoad {
            pattern: kind.pattern,
            warm_up: WARM_UP,
            length: Duration::from_secs_f64(self.seconds),
            in_flight_bytes: (STRIPES_IN_FLIGHT * stripe_bytes).clamp(IN_FLIGHT.0, IN_FLIGHT.1),
            stripe_bytes,
            array_bytes: 0,
        };
        command.args(["bench", "load", &serde_json::json!(load).to_string()]);
        command.args(["--schedule", kind.schedule.name(), "--fabric", &self.setting.fabric]);
        let volume = volume(client, kind.pattern);
        command.args(self.members(&volume).skip(kind.pattern.lost().into()));
        let log = self.scratch.join(format!("{host}.log"));
        let client = Process::start(command, log).map_err(|error| failed(system_error(&error)))?;
        // It says when the array is assembled, then waits to be told to begin.
        client.read_line(START).map_err(failed)?;
        Ok(client)
    }

    fn count(&self, clients: &[Process]) -> Counters {
        let cpu = |processes: &[Process]| processes.iter().map(Process::cpu_seconds).sum();
        let lab = self.site.lab.as_ref();
        let traffic = lab.and_then(|lab| lab::traffic(lab.name()).ok());
        Counters { traffic, clients_cpu_s: cpu(clients), nodes_cpu_s: cpu(&self.nodes) }
    }
}

impl Rig for Nodes {
    fn line(&mut self) -> Result<LineRate, Failure> {
        let before = self.count(&[]);
        let start = Instant::now();
        let bytes_s = line::measure(&self.site, self.seconds.min(1.0))
            .map_err(failed(SpaceHost::Client(0)))?;
        let after = self.count(&[]);
        let seconds = start.elapsed().as_secs_f64();
        let cpu = difference(before.nodes_cpu_s, after.nodes_cpu_s);
        Ok(LineRate { bytes_s, idle_nodes_cpu: cpu.map(|cpu| cpu / seconds) })
    }

    fn measure(&mut self, kind: MeasurementKind, line: LineRate) -> Result<Raw, Failure> {
        self.create_for(kind.pattern)?;
        let numbers = 0..self.setting.clients;
        let started = numbers.map(|number| self.start_client(number, kind));
        let mut clients = started.collect::<Result<Vec<Process>, Failure>>()?;
        let before = self.count(&clients);
        let patience = START + WARM_UP + Duration::from_secs_f64(self.seconds);
        // All begin together.
        for client in &mut clients {
            // One that has ended is found out below.
            let _ = client.write_line("go");
        }
        let mut done = Vec::new();
        for (number, client) in (0..).zip(&clients) {
            let failed = failed(SpaceHost::Client(number));
            let said = client.read_line(patience).map_err(failed)?;
            done.push(serde_json::from_str(&said).map_err(|error| failed(error.to_string()))?);
        }
        let after = self.count(&clients);
        for (number, client) in (0..).zip(&mut clients) {
            client.finish(START).map_err(failed(SpaceHost::Client(number)))?;
        }
        Ok(Raw {
            setting: self.setting.clone(),
            schedule: kind.schedule.name().to_owned(),
            pattern: kind.pattern,
            seconds: self.seconds,
            line,
            clients: done,
            before,
            after,
            node_memory_bytes: self.nodes.iter().filter_map(Process::peak_memory_bytes).max(),
        })
    }
}

fn volume(client: u16, pattern: Pattern) -> String {
    if pattern.leaves_some_behind() {
        format!("bench{client}-{pattern}")
    } else {
        format!("bench{client}")
    }
}

/// Memory that every node needs for the pipelines of all clients, and for one that is being taken
/// down; half of what there is is not given beyond what each gets at once.
fn ring_bytes(family: Family, setting: &Setting) -> u64 {
    let chunk_bytes = u32::try_from(setting.block_bytes).unwrap_or(u32::MAX);
    let planners = [Planner::Encoder { node: Role(0) }, Planner::Chain, Planner::Static];
    let rings = planners.into_iter().filter_map(|planner| {
        let params = Params::for_array(family, setting.nodes, chunk_bytes, 1, planner);
        let pipeline = Pipeline::new(params.ok()?).ok()?;
        Role::all(setting.nodes).map(|node| pipeline.ring_bytes(node)).max()
    });
    2 * (rings.max().unwrap_or(0) + SLACK_BYTES) * (u64::from(setting.clients) + 1)
}

/// A directory below that of the run, gone when the guard goes.
pub(super) fn directory(room: &Room) -> Result<(PathBuf, Guard), Failure> {
    let path = room.scratch.join(format!("cluster{}", another()));
    let guard = Guard::directory(&path)?;
    Ok((path, guard))
}

/// A lab, if links are to be shaped; this machine otherwise.
pub(super) fn site(room: &Room, setting: &Setting) -> Result<Site, Failure> {
    let Setting { clients, nodes, link_bit_s, .. } = *setting;
    let braid = room.braid.clone();
    let Some(_) = link_bit_s else { return Ok(Site { braid, lab: None }) };
    let name = format!("bench{}x{}", std::process::id(), another());
    let blueprint = Blueprint { name, clients, nodes, link_bit_s };
    Ok(Site { braid, lab: Some(Lab::up(&blueprint)?) })
}

/// Several may stand side by side.
fn another() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn failed(host: SpaceHost) -> impl Fn(String) -> Failure + Copy {
    let next = "see braid bench cluster --help, and measure something smaller";
    move |reason| Failure::refused(format_args!("host {host}"), reason, next)
}
