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
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::seen::within;
use super::sinks::Latest;
use crate::output::json::state_words;
use crate::output::shape;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<u64, AtomicU64>>;
type Counters = Family<Labels, Counter>;

/// Answers who asks for them.
pub(super) fn router(latest: Latest) -> Router {
    let answer = move || async move { answer(&latest) };
    let elsewhere = |method: Method| async move {
        if method == Method::GET || method == Method::HEAD {
            (StatusCode::NOT_FOUND, "metrics are at /metrics\n")
        } else {
            (StatusCode::METHOD_NOT_ALLOWED, "metrics are only read\n")
        }
    };
    Router::new().route("/metrics", get(answer).fallback(elsewhere)).fallback(elsewhere)
}

fn answer(latest: &Latest) -> Response {
    match latest.with(text) {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The text.
fn text(arrays: &[ControlStatus]) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("braid");
    let metrics = Metrics::register(&mut registry);
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    metrics.build_info.get_or_create(&version).set(1);
    for array in arrays {
        for (name, status) in within(&array.name, &array.array) {
            metrics.array(&name, status);
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
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
    errors: Counters,
    mismatch: Counters,
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        fn gauges(registry: &mut Registry, name: &str, help: &str) -> Gauges {
            let family = Gauges::default();
            registry.register(name, help, family.clone());
            family
        }
        fn bytes(registry: &mut Registry, name: &str, help: &str) -> Gauges {
            let family = Gauges::default();
            registry.register_with_unit(name, help, Unit::Bytes, family.clone());
            family
        }
        let errors = Counters::default();
        let help = "I/O errors of a member since its array was started";
        registry.register("member_errors", help, errors.clone());
        let mismatch = Counters::default();
        let help = "What the check or repair that runs, or the latest one, has found to differ";
        registry.register_with_unit("scrub_mismatch", help, Unit::Bytes, mismatch.clone());
        Self {
            errors,
            mismatch,
            build_info: gauges(registry, "build_info", "The version of braid monitor"),
            info: gauges(registry, "array_info", "What an array is"),
            state: gauges(registry, "array_state", "1 for each state that an array is in"),
            size: bytes(registry, "array_size", "Size of an array"),
            members: gauges(registry, "array_members", "How many members are in a state"),
            required: gauges(registry, "array_members_required", "Members of a whole array"),
            sync_running: gauges(registry, "sync_running", "1 for the work that goes on"),
            sync_done: bytes(registry, "sync_done", "What background work has done, per member"),
            sync_total: bytes(registry, "sync_total", "Of how much; 0 where nothing goes on"),
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
        self.sync_done.get_or_create(&labels()).set(status.sync.done_sectors * SECTOR_BYTES);
        self.sync_total.get_or_create(&labels()).set(status.sync.total_sectors * SECTOR_BYTES);
        if let Some(sectors) = status.mismatch_sectors {
            self.mismatch.get_or_create(&labels()).inc_by(sectors * SECTOR_BYTES);
        }
    }
}

/// As [`state_words`] has them.
const STATES: [&str; 9] = [
    "clean",
    "active",
    "read-only",
    "failed",
    "degraded",
    "resyncing",
    "recovering",
    "checking",
    "repairing",
];

/// By node_exporter's words.
const MEMBER_STATES: [(MemberState, &str); 5] = [
    (MemberState::InSync, "active"),
    (MemberState::Faulty, "failed"),
    (MemberState::Spare, "spare"),
    (MemberState::Rebuilding, "rebuilding"),
    (MemberState::Journal, "journal"),
];

const ACTIONS: [SyncAction; 4] =
    [SyncAction::Resync, SyncAction::Recovery, SyncAction::Check, SyncAction::Repair];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use braid_array::MemberId;
    use braid_array::status::MemberStatus;

    use super::*;
    use crate::cmd::monitor::seen::testing::served;

    fn array() -> ControlStatus {
        let member = |number: u16, state| MemberStatus {
            member: MemberId(number),
            device: format!("/dev/odd \"{number}\"\n"),
            role: None,
            number,
            state,
            replacement: false,
            want_replacement: false,
            needed: false,
            events: 0,
            errors: 3,
            unreliable: false,
            slow_ms: None,
            refused: None,
            recovery_offset_sectors: None,
            devflags: 0,
        };
        let members = vec![member(0, MemberState::InSync), member(1, MemberState::Faulty)];
        let child = Status { mismatch_sectors: Some(2), ..Status::blank() };
        let array = Status { members, array_sectors: 8, children: vec![child], ..Status::blank() };
        served("home", array)
    }

    /// The labels between braces, each `name="value"` with what has to be escaped in it.
    fn labels(text: &str) -> Option<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (name, quoted) = rest.split_once("=\"")?;
            let mut escaped = false;
            let end = quoted.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            })?;
            let is_new = labels.insert(name.to_owned(), quoted[..end].to_owned()).is_none();
            let after = &quoted[end + 1..];
            rest = after.strip_prefix(',').unwrap_or(after);
            if !is_new || (rest.len() == after.len() && !after.is_empty()) {
                return None;
            }
        }
        Some(labels)
    }

    /// The samples of an OpenMetrics text, which must be one.
    fn parse(text: &str) -> BTreeMap<(String, BTreeMap<String, String>), f64> {
        let mut samples = BTreeMap::new();
        let mut families: BTreeSet<String> = BTreeSet::new();
        let mut family = (String::new(), String::new());
        let lines = text.strip_suffix("# EOF\n").expect("an end").lines();
        for line in lines {
            if let Some(rest) = line.strip_prefix("# ") {
                let words: Vec<&str> = rest.splitn(3, ' ').collect();
                match words[..] {
                    ["HELP", name, _] => {
                        assert!(families.insert(name.to_owned()), "{line}");
                        family = (name.to_owned(), String::new());
                    }
                    ["TYPE", name, kind @ ("gauge" | "counter")] if name == family.0 => {
                        kind.clone_into(&mut family.1);
                    }
                    ["UNIT", name, unit] => assert!(name.ends_with(&format!("_{unit}")), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, rest) = series.split_once('{').expect("labels");
            let suffix = if family.1 == "counter" { "_total" } else { "" };
            assert_eq!(name, format!("{}{suffix}", family.0), "{line}");
            let labels = labels(rest.strip_suffix('}').expect("an end")).expect(line);
            let value = value.parse().expect(line);
            assert!(samples.insert((name.to_owned(), labels), value).is_none(), "{line}");
        }
        samples
    }

    #[test]
    fn the_text_is_open_metrics() {
        let samples = parse(&text(&[array()]).expect("a text"));
        let value = |name: &str, labels: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            samples.get(&(name.to_owned(), labels.iter().map(owned).collect())).copied()
        };
        let home = ("array", "home");
        assert_eq!(value("braid_array_size_bytes", &[home]), Some(4096.0));
        let active = value("braid_array_members", &[home, ("state", "active")]);
        let failed = value("braid_array_members", &[home, ("state", "failed")]);
        assert_eq!((active, failed), (Some(1.0), Some(1.0)));
        let odd = ("member", r#"/dev/odd \"1\"\n"#);
        assert_eq!(value("braid_member_errors_total", &[home, odd]), Some(3.0));
        let within = samples.keys().find(|(name, _)| name == "braid_scrub_mismatch_bytes_total");
        let within = within.expect("of the array within").clone();
        assert!(within.1["array"].starts_with("home/"), "{within:?}");
        assert_eq!(samples[&within], 1024.0);
        let states = samples.keys().filter(|(name, _)| name == "braid_array_state");
        assert_eq!(states.count(), 2 * STATES.len());
    }

    #[test]
    fn without_arrays_there_is_a_version() {
        let samples = parse(&text(&[]).expect("a text"));
        assert_eq!(samples.len(), 1);
    }
}
