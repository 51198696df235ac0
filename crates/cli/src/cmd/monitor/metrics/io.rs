//! Metrics of the I/O of arrays and their members, and of the nodes of members.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use braid_array::figures::{IoFigures, Latencies, Operations};
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_host::control::wire::ControlStatus;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use super::{Counters, Gauges, Labels, bytes, family, family_of};
use crate::cmd::monitor::seen::{node_of, within};

const NS_IN_S: f64 = 1e9;

/// Histogram of durations, counted elsewhere.
#[derive(Debug, Default)]
struct Durations(Mutex<Operations>);

impl Durations {
    fn set(&self, operations: &Operations) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone_from(operations);
    }
}

impl TypedMetric for Durations {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let of = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bound = |at| Latencies::bound_ns(at).map_or(f64::INFINITY, |ns| ns as f64 / NS_IN_S);
        let counts = of.latency_counts.counts().iter().enumerate();
        let buckets: Vec<(f64, u64)> = counts.map(|(at, count)| (bound(at), *count)).collect();
        let sum = of.total_ns as f64 / NS_IN_S;
        encoder.encode_histogram::<NoLabelSet>(sum, of.operations, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

type Histograms = Family<Labels, Durations>;

/// I/O metrics of an array, or of its members.
#[derive(Debug)]
struct Set {
    in_flight: Gauges,
    operations: Counters,
    read: Counters,
    written: Counters,
    errors: Counters,
    seconds: Histograms,
}

#[derive(Debug)]
pub(super) struct IoMetrics {
    requests: Set,
    members: Set,
    corrected: Counters,
    clients: Gauges,
    nodes: Gauges,
}

impl Set {
    /// Adds figures. `all`: also kinds of operations that have not occurred, besides reads and
    /// writes.
    fn fill(&self, labels: &Labels, io: &IoFigures, all: bool) {
        self.in_flight.get_or_create(labels).set(io.in_flight);
        self.read.get_or_create(labels).inc_by(io.read.bytes);
        self.written.get_or_create(labels).inc_by(io.write.bytes);
        for (kind, of) in io.kinds() {
            if of.operations == 0 && !all && !matches!(kind, "read" | "write") {
                continue;
            }
            let mut labels = labels.clone();
            labels.push(("op", kind.to_owned()));
            self.operations.get_or_create(&labels).inc_by(of.operations);
            self.errors.get_or_create(&labels).inc_by(of.errors);
            self.seconds.get_or_create(&labels).set(of);
        }
    }
}

impl IoMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let requests = Set {
            in_flight: family(registry, "requests_in_flight", "Requests that were not answered"),
            operations: family(registry, "requests", "Requests of an array's users"),
            read: bytes(registry, "array_read", "What users have read of an array"),
            written: bytes(registry, "array_written", "What users have written to an array"),
            errors: family(registry, "request_errors", "Requests that failed"),
            seconds: family_of(registry, "request", Unit::Seconds, "How long requests took"),
        };
        let members = Set {
            in_flight: family(registry, "member_operations_in_flight", "I/O under way on a member"),
            operations: family(registry, "member_operations", "I/O on a member"),
            read: bytes(registry, "member_read", "What was read of a member"),
            written: bytes(registry, "member_written", "What was written to a member"),
            errors: family(registry, "member_operation_errors", "I/O on a member that failed"),
            seconds: family_of(
                registry,
                "member_latency",
                Unit::Seconds,
                "How long I/O on a member took",
            ),
        };
        let corrected = "Reads of a member that went well once what was lost was written again";
        let clients = "Clients of exports, of those kinds that can tell";
        Self {
            requests,
            members,
            corrected: family(registry, "member_corrected_reads", corrected),
            clients: family(registry, "export_clients", clients),
            nodes: family(registry, "node_up", "1 for a node whose members or vote are there"),
        }
    }

    /// Adds the figures of a serving process.
    pub(super) fn fill(&self, served: &ControlStatus) {
        let array = vec![("array", served.name.clone())];
        if let Some(figures) = &served.figures {
            self.requests.fill(&array, &figures.requests, true);
            for (kind, count) in &figures.clients {
                let labels = [&array[..], &[("kind", kind.clone())]].concat();
                self.clients.get_or_create(&labels).set(*count);
            }
        }
        for (name, status) in within(&served.name, &served.array) {
            for member in &status.members {
                let labels = vec![("array", name.clone()), ("member", member.device.clone())];
                let io = served.figures.as_ref().and_then(|it| it.of(member.member));
                if let Some(io) = io {
                    self.members.fill(&labels, io, false);
                }
                let corrected = self.corrected.get_or_create(&labels).clone();
                corrected.inc_by(member.corrected_reads.into());
            }
            for (address, up) in nodes(status) {
                let labels = vec![("array", name.clone()), ("node", address.to_owned())];
                self.nodes.get_or_create(&labels).set(up.into());
            }
        }
    }
}

/// Returns the nodes of an array; true for a node whose members are all present.
fn nodes(status: &Status) -> BTreeMap<&str, bool> {
    let mut nodes = BTreeMap::new();
    let members = status.members.iter();
    // One that is refused could be talked to.
    let there = |one: &MemberStatus| one.state != MemberState::Faulty || one.refused.is_some();
    let members = members.map(|one| (&one.device[..], there(one)));
    let view = || status.view.iter();
    let absent = view().flat_map(|view| &view.absent).map(|one| (&one.device[..], false));
    for (device, up) in members.chain(absent) {
        if let Some(address) = node_of(device) {
            *nodes.entry(address).or_insert(true) &= up;
        }
    }
    for witness in view().flat_map(|view| &view.witnesses) {
        *nodes.entry(&witness.address[..]).or_insert(true) &= witness.reachable;
    }
    nodes
}
