//! Nodes and clients as processes, in a lab or on loopback, and measurements with them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_bench::rig::lab::{self, Blueprint, Lab, Traffic};
use braid_bench::rig::place::Site;
use braid_bench::rig::spaces::Host;
use braid_bench::rig::talk::Talk;
use braid_bench::tool::Tool;
use braid_cluster::pipeline::Params;
use braid_cluster::{Pipeline, Planner};

use super::line;
use super::load::Done;
use super::measure::{Kind, Line, Rig, Sample, Setting};
use crate::args::{PatternName, StorageName, typed};
use crate::failure::{Failure, system_error};

/// Until a process that was started has to be ready.
const START: Duration = Duration::from_secs(30);
/// Until the rate of a client is steady.
const WARM_UP: Duration = Duration::from_millis(700);
/// At least so much data in an array.
const ARRAY_BYTES: u64 = 256 << 20;
/// What a node's memory may be cut up by.
const SLACK_BYTES: u64 = 4 << 20;
/// Whole stripes in flight: some being sent, some being closed.
const STRIPES_IN_FLIGHT: u64 = 4;
/// How many bytes in flight are at least enough, and at most possible.
const IN_FLIGHT: (u64, u64) = (24 << 20, 56 << 20);

/// See the module.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    setting: &'a Setting,
    seconds: f64,
    scratch: PathBuf,
    nodes: Vec<Talk>,
    addresses: Vec<String>,
    /// Goes last: it ends what runs in it.
    site: Site,
}

/// What was counted so far.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// By link; `None` where links are not counted.
    pub(super) traffic: Option<Vec<(Host, Traffic)>>,
    /// CPU seconds.
    pub(super) clients_cpu: Option<f64>,
    pub(super) nodes_cpu: Option<f64>,
}

impl<'a> Cluster<'a> {
    /// Starts the nodes and creates a volume for each client. What the nodes store and say goes
    /// below `scratch`.
    pub(super) fn start(
        setting: &'a Setting,
        seconds: f64,
        scratch: &Path,
    ) -> Result<Self, Failure> {
        let site = site(setting.link_bit_s, setting.clients, setting.nodes)?;
        let scratch = scratch.to_owned();
        let mut cluster =
            Self { setting, seconds, scratch, nodes: Vec::new(), addresses: Vec::new(), site };
        for number in 0..setting.nodes {
            cluster.start_node(number).map_err(|reason| failed(Host::Node(number), &reason))?;
        }
        for number in 0..setting.clients {
            cluster.create(number).map_err(|reason| failed(Host::Client(number), &reason))?;
        }
        Ok(cluster)
    }

    fn start_node(&mut self, number: u16) -> Result<(), String> {
        let host = Host::Node(number);
        let system = |error: io::Error| system_error(&error);
        let (ip, store) = (self.site.ip(host), self.scratch.join(host.to_string()));
        let mut command = self.site.braid(host);
        command.args(["node", "--foreground", "--listen", &format!("{ip}:0")]);
        command.args(["--fabric", &self.setting.fabric]);
        command.args(["--ring", &ring_bytes(self.setting).to_string()]);
        match self.setting.storage {
            StorageName::Memory => command.arg("--memory"),
            StorageName::Disk => {
                std::fs::create_dir_all(&store).map_err(system)?;
                command.arg("--store").arg(&store)
            }
        };
        let log = self.scratch.join(format!("{host}.log"));
        let node = Talk::start(command, log).map_err(system)?;
        // It says where it listens once it does.
        let address = node.hear(START)?;
        self.nodes.push(node);
        self.addresses.push(address);
        Ok(())
    }

    fn create(&self, client: u16) -> Result<(), String> {
        let Setting { family, nodes, block_bytes, .. } = *self.setting;
        let code = family.code(nodes, 0).map_err(|error| error.to_string())?;
        let stripes = ARRAY_BYTES.div_ceil(self.setting.stripe_bytes()).max(2 * STRIPES_IN_FLIGHT);
        let size = stripes * u64::from(code.rows()) * block_bytes;
        let host = Host::Client(client);
        let mut command = self.site.braid(host);
        command.args(["create", &format!("bench{client}"), "--assume-clean", "--bitmap", "none"]);
        command.args(["--level", family.level().name(), "--raid-devices", &nodes.to_string()]);
        command.args(["--chunk", &block_bytes.to_string(), "--size", &size.to_string()]);
        command.args(["--fabric", &self.setting.fabric]);
        command.args(self.setting.layout.iter().flat_map(|layout| ["--layout", layout]));
        command.args(self.members(client));
        let log = self.scratch.join(format!("create{client}.log"));
        Talk::start(command, log).map_err(|error| system_error(&error))?.farewell(START)
    }

    fn members(&self, client: u16) -> impl Iterator<Item = String> {
        self.addresses.iter().map(move |address| format!("node://{address}/bench{client}"))
    }

    fn start_client(&self, client: u16, kind: Kind) -> Result<Talk, String> {
        let host = Host::Client(client);
        let mut command = self.site.braid(host);
        command.args(["bench", "load", "--pattern", &typed(&kind.pattern)]);
        command.args(["--schedule", &typed(&kind.schedule)]);
        command.args(["--fabric", &self.setting.fabric]);
        command.args(["--seconds", &self.seconds.to_string()]);
        command.args(["--warm-up", &WARM_UP.as_secs_f64().to_string()]);
        command.args(["--in-flight", &self.in_flight_bytes().to_string()]);
        command.args(["--stripe", &self.setting.stripe_bytes().to_string()]);
        command.args(self.members(client).skip(kind.pattern.lost().into()));
        let log = self.scratch.join(format!("{host}.log"));
        let client = Talk::start(command, log).map_err(|error| system_error(&error))?;
        // It says when the array is assembled, then waits to be told to begin.
        client.hear(START)?;
        Ok(client)
    }

    fn in_flight_bytes(&self) -> u64 {
        (STRIPES_IN_FLIGHT * self.setting.stripe_bytes()).clamp(IN_FLIGHT.0, IN_FLIGHT.1)
    }

    fn count(&self, clients: &[Talk]) -> Counters {
        let cpu = |processes: &[Talk]| processes.iter().map(Talk::cpu_seconds).sum();
        let lab = self.site.lab.as_ref();
        let traffic = lab.and_then(|lab| lab::traffic(lab.name()).ok());
        Counters { traffic, clients_cpu: cpu(clients), nodes_cpu: cpu(&self.nodes) }
    }
}

impl Rig for Cluster<'_> {
    fn line(&mut self) -> Result<Line, Failure> {
        let (before, start) = (self.count(&[]), Instant::now());
        let bytes_s = line::measure(&self.site, self.seconds.min(1.0), &self.scratch)
            .map_err(|reason| failed(Host::Client(0), &reason))?;
        let (after, seconds) = (self.count(&[]), start.elapsed().as_secs_f64());
        let cpu = difference(before.nodes_cpu, after.nodes_cpu);
        Ok(Line { bytes_s, idle_nodes_cpu: cpu.map(|cpu| cpu / seconds) })
    }

    fn sample(&mut self, kind: Kind) -> Result<Sample, Failure> {
        let numbers = 0..self.setting.clients;
        let started = numbers.map(|number| {
            let client = self.start_client(number, kind);
            client.map_err(|reason| failed(Host::Client(number), &reason))
        });
        let mut clients = started.collect::<Result<Vec<Talk>, Failure>>()?;
        let before = self.count(&clients);
        let patience = START + WARM_UP + Duration::from_secs_f64(self.seconds);
        // All begin together.
        for client in &mut clients {
            // One that has ended is found out below.
            let _ = client.say("go");
        }
        let mut all = Vec::new();
        for (number, client) in (0..).zip(&clients) {
            let failed = |reason: String| failed(Host::Client(number), &reason);
            let said = client.hear(patience).map_err(failed)?;
            all.push(serde_json::from_str(&said).map_err(|error| failed(error.to_string()))?);
        }
        let after = self.count(&clients);
        for (number, client) in (0..).zip(&mut clients) {
            client.farewell(START).map_err(|reason| failed(Host::Client(number), &reason))?;
        }
        Ok(sample(kind.pattern, &all, &before, &after))
    }

    fn node_memory_bytes(&self) -> Option<u64> {
        self.nodes.iter().filter_map(Talk::peak_memory_bytes).max()
    }
}

/// Memory that every node needs for the pipelines of all clients, and for one that is being taken
/// down.
fn ring_bytes(setting: &Setting) -> u64 {
    let chunk_bytes = u32::try_from(setting.block_bytes).unwrap_or(u32::MAX);
    let planners = [Planner::Encoder { node: 0 }, Planner::Chain, Planner::Static];
    let rings = planners.into_iter().filter_map(|planner| {
        let params = Params::for_array(setting.family, setting.nodes, chunk_bytes, 1, planner);
        let pipeline = Pipeline::new(params.ok()?).ok()?;
        (0..setting.nodes).map(|node| pipeline.ring_bytes(node)).max()
    });
    (rings.max().unwrap_or(0) + SLACK_BYTES) * (u64::from(setting.clients) + 1)
}

/// A lab, if links are to be shaped; this machine otherwise.
pub(super) fn site(link_bit_s: Option<u64>, clients: u16, nodes: u16) -> Result<Site, Failure> {
    let braid = std::env::current_exe().map_err(|error| {
        Failure::refused("bench", "cluster", system_error(&error), "start it by its path")
    })?;
    let braid = Tool::at("braid", braid);
    let Some(_) = link_bit_s else { return Ok(Site { braid, lab: None }) };
    let name = lab::name_of(std::process::id());
    Ok(Site { braid, lab: Some(Lab::up(&Blueprint { name, clients, nodes, link_bit_s })?) })
}

fn failed(host: Host, reason: &str) -> Failure {
    let next = "see braid bench cluster --help, and measure something smaller";
    Failure::refused("bench", format_args!("host {host}"), reason, next)
}

fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some((after? - before?).max(0.0))
}

/// What happened between two counts.
pub(super) fn sample(
    pattern: PatternName,
    clients: &[Done],
    before: &Counters,
    after: &Counters,
) -> Sample {
    let total: f64 = clients.iter().map(|done| done.total_bytes as f64).sum();
    let rate = |done: &Done| done.window_bytes as f64 / done.window_seconds.max(f64::MIN_POSITIVE);
    let (mut to_nodes, mut to_clients, mut by_nodes) = (0.0, 0.0, 0.0);
    let both = after.traffic.iter().flatten().zip(before.traffic.iter().flatten());
    for ((host, after), (_, before)) in both {
        let sent = (after.sent - before.sent) as f64;
        let received = (after.received - before.received) as f64;
        match host {
            Host::Client(_) => (to_nodes, to_clients) = (to_nodes + sent, to_clients + received),
            Host::Node(_) => by_nodes += sent,
        }
    }
    let counted = |bytes: f64| after.traffic.is_some().then_some(bytes / total);
    Sample {
        data_bytes_s: clients.iter().map(rate).sum(),
        client_bytes: counted(if pattern.reads() { to_clients } else { to_nodes }),
        // Whatever nodes send and clients do not receive goes to other nodes.
        node_bytes: counted(by_nodes - to_clients),
        client_cpu_s: difference(before.clients_cpu, after.clients_cpu).map(|cpu| cpu / total),
        nodes_cpu_s: difference(before.nodes_cpu, after.nodes_cpu).map(|cpu| cpu / total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_send_goes_to_clients_or_to_other_nodes() {
        let link = |host, sent, received| (host, Traffic { sent, received });
        let counters = |traffic: [(Host, Traffic); 3], cpu| Counters {
            traffic: Some(traffic.to_vec()),
            clients_cpu: Some(cpu),
            nodes_cpu: Some(2.0 * cpu),
        };
        let (client, one, two) = (Host::Client(0), Host::Node(0), Host::Node(1));
        let before = counters([link(client, 5, 1), link(one, 1, 3), link(two, 0, 2)], 1.0);
        let after =
            counters([link(client, 1005, 41), link(one, 801, 603), link(two, 40, 1202)], 3.0);
        let done = Done { window_bytes: 500, window_seconds: 2.0, total_bytes: 1000 };
        let write = sample(PatternName::Write, &[done], &before, &after);
        let expected = Sample {
            data_bytes_s: 250.0,
            client_bytes: Some(1.0),
            node_bytes: Some(0.8),
            client_cpu_s: Some(0.002),
            nodes_cpu_s: Some(0.004),
        };
        assert_eq!(write, expected);
        let read = sample(PatternName::Read, &[done], &before, &after);
        assert_eq!(read.client_bytes, Some(0.04));
        let unseen = Counters { traffic: None, ..after };
        assert_eq!(sample(PatternName::Write, &[done], &before, &unseen).client_bytes, None);
    }
}
