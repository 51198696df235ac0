//! Metrics of all arrays, as OpenMetrics text over HTTP. Shapes as node_exporter's of `md`.

use std::fmt;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use braid_array::SECTOR_BYTES;
use braid_array::events::SyncAction;
use braid_array::status::{MemberState, Status};
use braid_host::control::wire::ControlStatus;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};
use tokio::task::spawn_blocking;

use self::io::IoMetrics;
use self::nodes::NodeMetrics;
use self::sums::SumMetrics;
use super::nodes::{NodeSeen, Nodes};
use super::seen::within;
use super::sinks::Latest;
use crate::output::json::state_words;
use crate::output::shape;

mod io;
mod nodes;
mod sums;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<u64, AtomicU64>>;
type Counters = Family<Labels, Counter>;

/// Returns the router that serves the metrics.
pub(super) fn router(latest: Latest, nodes: Nodes) -> Router {
    let answer = move || async move {
        let answer = spawn_blocking(move || answer(&latest, &nodes.ask()));
        answer.await.unwrap_or_else(|error| failed(&error))
    };
    let elsewhere = |method: Method| async move {
        if method == Method::GET || method == Method::HEAD {
            (StatusCode::NOT_FOUND, "metrics are at /metrics\n")
        } else {
            (StatusCode::METHOD_NOT_ALLOWED, "metrics are only read\n")
        }
    };
    Router::new().route("/metrics", get(answer).fallback(elsewhere)).fallback(elsewhere)
}

fn answer(latest: &Latest, nodes: &[NodeSeen]) -> Response {
    match latest.with(|arrays| text(arrays, nodes)) {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &impl fmt::Display) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

/// The text.
fn text(arrays: &[ControlStatus], nodes: &[NodeSeen]) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("braid");
    let metrics = Metrics::register(&mut registry);
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    metrics.build_info.get_or_create(&version).set(1);
    let io = IoMetrics::register(&mut registry);
    for array in arrays {
        io.fill(array);
        metrics.process(array);
        for (name, status) in within(&array.name, &array.array) {
            metrics.array(&name, status);
        }
    }
    let of_nodes = NodeMetrics::register(&mut registry);
    nodes.iter().for_each(|node| of_nodes.fill(node));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Metrics of one name.
fn family<M>(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, M>
where
    M: Metric + TypedMetric + Default,
{
    let family = Family::default();
    registry.register(name, help, Family::clone(&family));
    family
}

/// Registers a family of metrics with a unit.
fn family_of<M>(registry: &mut Registry, name: &str, unit: Unit, help: &str) -> Family<Labels, M>
where
    M: Metric + TypedMetric + Default,
{
    let family = Family::default();
    registry.register_with_unit(name, help, unit, Family::clone(&family));
    family
}

fn bytes<M>(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, M>
where
    M: Metric + TypedMetric + Default,
{
    family_of(registry, name, Unit::Bytes, help)
}

#[derive(Debug)]
struct Metrics {
    build_info: Gauges,
    info: Gauges,
    state: Gauges,
    size: Gauges,
    members: Gauges,
    required: Gauges,
    sync_running: Gauges,
    sync_done: Gauges,
    sync_total: Gauges,
    sync_speed: Gauges,
    sync_left: Gauges,
    journal_size: Gauges,
    journal_used: Gauges,
    memory: Gauges,
    errors: Counters,
    mismatch: Gauges,
    last_scrub: Gauges,
    /// Falls when a check begins, so it is no counter: deprecated.
    mismatch_counter: Counters,
    sums: SumMetrics,
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        let speed = Unit::Other("bytes_per_second".to_owned());
        let errors = "I/O errors of a member since its array was started";
        let mismatch = "What the running check or repair, or the latest one, found to differ";
        let last_scrub = "When the latest check or repair ended, in Unix time";
        let deprecated = "Deprecated, use braid_last_scrub_mismatch_bytes: it falls";
        Self {
            errors: family(registry, "member_errors", errors),
            mismatch: bytes(registry, "last_scrub_mismatch", mismatch),
            last_scrub: family_of(registry, "last_scrub_timestamp", Unit::Seconds, last_scrub),
            mismatch_counter: bytes(registry, "scrub_mismatch", deprecated),
            sums: SumMetrics::register(registry),
            build_info: family(registry, "build_info", "The version of braid monitor"),
            info: family(registry, "array_info", "What an array is"),
            state: family(registry, "array_state", "1 for each state that an array is in"),
            size: bytes(registry, "array_size", "Size of an array"),
            members: family(registry, "array_members", "How many members are in a state"),
            required: family(registry, "array_members_required", "Members of a whole array"),
            sync_running: family(registry, "sync_running", "1 for the work that goes on"),
            sync_done: bytes(registry, "sync_done", "What background work has done, per member"),
            sync_total: bytes(registry, "sync_total", "Of how much; 0 where nothing goes on"),
            sync_speed: family_of(registry, "sync_speed", speed, "Of background work, per member"),
            sync_left: family_of(
                registry,
                "sync_left",
                Unit::Seconds,
                "How long it takes at that speed",
            ),
            journal_size: bytes(registry, "journal_size", "Size of the journal"),
            journal_used: bytes(registry, "journal_used", "What of it still counts; of each node"),
            memory: bytes(registry, "resident_memory", "Memory of the process of an array"),
        }
    }

    /// Adds figures of the process that serves an array.
    fn process(&self, array: &ControlStatus) {
        let labels = vec![("array", array.name.clone())];
        if let Some(last) = array.last_scrub {
            self.last_scrub.get_or_create(&labels).set(last.ended_unix_s);
        }
        if let Some(bytes) = resident_bytes(array.pid) {
            self.memory.get_or_create(&labels).set(bytes);
        }
    }

    fn array(&self, name: &str, status: &Status) {
        let labels = || vec![("array", name.to_owned())];
        let with = |label, value: &str| {
            let mut labels = labels();
            labels.push((label, value.to_owned()));
            labels
        };
        let superblock = &status.superblock;
        let mut info = with("uuid", &superblock.uuid_text());
        info.push(("level", shape::level_name(superblock.level)));
        info.push(("layout", shape::layout_option(superblock).unwrap_or_default()));
        self.info.get_or_create(&info).set(1);
        self.size.get_or_create(&labels()).set(status.array_sectors * SECTOR_BYTES);
        let words = state_words(status);
        for state in STATES {
            let is_so = words.contains(&state);
            self.state.get_or_create(&with("state", state)).set(is_so.into());
        }
        for (state, word) in MEMBER_STATES {
            let count = status.members.iter().filter(|member| member.state == state).count();
            self.members.get_or_create(&with("state", word)).set(count as u64);
        }
        self.required.get_or_create(&labels()).set(superblock.raid_disks.into());
        for member in &status.members {
            let errors = self.errors.get_or_create(&with("member", &member.device)).clone();
            errors.inc_by(member.errors);
        }
        for action in ACTIONS {
            let running = status.sync.action == action;
            self.sync_running.get_or_create(&with("kind", action.name())).set(running.into());
        }
        if let Some(sectors) = status.mismatch_sectors {
            let bytes = sectors * SECTOR_BYTES;
            self.mismatch.get_or_create(&labels()).set(bytes);
            self.mismatch_counter.get_or_create(&labels()).inc_by(bytes);
        }
        self.work(&labels(), status);
        self.sums.fill(name, status);
    }

    /// Background work and the journal.
    fn work(&self, labels: &Labels, status: &Status) {
        let sync = &status.sync;
        self.sync_done.get_or_create(labels).set(sync.done_sectors * SECTOR_BYTES);
        self.sync_total.get_or_create(labels).set(sync.total_sectors * SECTOR_BYTES);
        self.sync_speed.get_or_create(labels).set(sync.bytes_per_s);
        if let Some(seconds) = sync.finish_s {
            self.sync_left.get_or_create(labels).set(seconds);
        }
        if let Some(journal) = &status.journal {
            self.journal_size.get_or_create(labels).set(journal.size_sectors * SECTOR_BYTES);
        }
        let on_disk = status.journal.as_ref().and_then(|journal| journal.used_sectors);
        let on_nodes = (status.journal_bytes > 0).then_some(status.journal_bytes);
        if let Some(bytes) = on_disk.map(|sectors| sectors * SECTOR_BYTES).or(on_nodes) {
            self.journal_used.get_or_create(labels).set(bytes);
        }
    }
}

/// The memory that a process has, as `/proc/PID/status` tells (`VmRSS`, in KiB).
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// States of arrays, in the words of [`state_words`].
const STATES: [&str; 10] = [
    "clean",
    "active",
    "read-only",
    "failed",
    "degraded",
    "resyncing",
    "recovering",
    "checking",
    "repairing",
    "reshaping",
];

/// By node_exporter's words.
const MEMBER_STATES: [(MemberState, &str); 5] = [
    (MemberState::InSync, "active"),
    (MemberState::Faulty, "failed"),
    (MemberState::Spare, "spare"),
    (MemberState::Rebuilding, "rebuilding"),
    (MemberState::Journal, "journal"),
];

const ACTIONS: [SyncAction; 5] = [
    SyncAction::Resync,
    SyncAction::Recovery,
    SyncAction::Check,
    SyncAction::Repair,
    SyncAction::Reshape,
];

#[cfg(test)]
mod tests;
