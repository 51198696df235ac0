use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use braid_array::MemberId;
use braid_array::figures::{Figures, IoFigures, MemberFigures, Operations};
use braid_array::status::{
    IntegrityStatus, JournalMode, JournalStatus, MemberIntegrity, MemberStatus,
};
use braid_cluster::ids::Epoch;
use braid_cluster::wire::SessionInfo;
use braid_host::control::wire::LastScrub;
use braid_host::remote::NodeSurvey;

use super::*;
use crate::cmd::monitor::nodes::NodeFound;
use crate::cmd::monitor::seen::testing::served;

fn array() -> ControlStatus {
    let member = |number, state| MemberStatus {
        errors: 3,
        corrected_reads: 2,
        ..MemberStatus::new(MemberId(number), format!("/dev/odd \"{number}\"\n"), state)
    };
    let members = vec![member(0, MemberState::InSync), member(1, MemberState::Faulty)];
    let child = Status { mismatch_sectors: Some(2), ..Status::blank() };
    let array = Status { members, array_sectors: 8, children: vec![child], ..Status::blank() };
    let last_scrub = LastScrub {
        action: SyncAction::Check,
        ended_unix_s: 1_800_000_000,
        mismatch_sectors: 2,
        complete: true,
    };
    ControlStatus { last_scrub: Some(last_scrub), ..served("home", array) }
}

/// Returns the status of an array that has a value for every metric.
fn full() -> ControlStatus {
    let ControlStatus { mut array, last_scrub, .. } = array();
    array.members[0].device = "node://10.0.0.1:7000/home".into();
    array.sync.finish_s = Some(7);
    array.journal_bytes = 4096;
    array.integrity = Some(IntegrityStatus {
        members: vec![MemberIntegrity {
            member: MemberId(1),
            blocks: 3,
            known_blocks: Some(2),
            is_verified: true,
            mismatches: 7,
            healed: 6,
        }],
    });
    array.journal = Some(JournalStatus {
        member: MemberId(1),
        size_sectors: 8,
        used_sectors: None,
        mode: JournalMode::default(),
        dirty_bytes: 0,
    });
    let io = IoFigures::default();
    let figures = Figures {
        requests: io.clone(),
        members: vec![MemberFigures { member: MemberId(1), io }],
        clients: BTreeMap::from([("nbd".to_owned(), 2)]),
    };
    let pid = std::process::id();
    ControlStatus { figures: Some(figures), pid, last_scrub, ..served("home", array) }
}

/// A node, of which there is something to say by every metric.
fn node() -> NodeSeen {
    let survey = NodeSurvey {
        version: "1.2.3".to_owned(),
        total_bytes: 100,
        free_bytes: 60,
        promised_bytes: 10,
        ring_bytes: 50,
        ring_used_bytes: 20,
        clients: 2,
        witness: false,
        volumes: Vec::new(),
        votes: Vec::new(),
    };
    let session = |number, connected, ring_bytes| SessionInfo {
        number,
        age_ms: 65_999,
        connected,
        volume: true,
        grant: Some(([1; 16], Epoch(number))),
        ring_bytes,
    };
    let asks = SessionInfo { volume: false, grant: None, ..session(9, true, 0) };
    let sessions = vec![session(3, true, 0), session(4, true, 20), session(5, false, 8), asks];
    let found = Some(NodeFound { survey, sessions });
    NodeSeen { name: "n1".to_owned(), address: "localhost:7000".to_owned(), found }
}

#[test]
fn a_node_tells_of_its_clients_and_one_that_is_silent_is_not_ready() {
    let away = NodeSeen { address: "localhost:7001".to_owned(), found: None, ..node() };
    let samples = parse(&text(&[], &[node(), away]).expect("a text"));
    let find = |name: &str, label: &str, value: &str| {
        let of =
            |labels: &BTreeMap<String, String>| labels.get(label).is_some_and(|it| it == value);
        let mut found = samples.iter().filter(|((other, labels), _)| other == name && of(labels));
        (found.next().map(|(_, value)| *value), found.count())
    };
    let one = |value: f64| (Some(value), 0);
    assert_eq!(find("braid_node_ready", "node", "localhost:7000"), one(1.0));
    assert_eq!(find("braid_node_ready", "node", "localhost:7001"), one(0.0));
    assert_eq!(find("braid_node_ring_used_bytes", "node", "localhost:7001"), (None, 0));
    assert_eq!(find("braid_node_info", "name", "n1"), one(1.0));
    for (has, count) in
        [("pipeline", 1.0), ("grant", 1.0), ("volume", 0.0), ("nothing", 1.0), ("leftovers", 1.0)]
    {
        assert_eq!(find("braid_node_sessions", "has", has), one(count), "{has}");
    }
    let uuid = "01010101:01010101:01010101:01010101";
    assert_eq!(find("braid_node_grant_epoch", "uuid", uuid), one(4.0), "the newest that is there");
    assert_eq!(find("braid_node_grant_age_seconds", "uuid", uuid), one(65.0));
    assert_eq!(find("braid_node_lease_bytes", "uuid", uuid), one(20.0));
}

/// Parses the labels between braces, each `name="value"` with escapes.
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
                ["TYPE", name, kind @ ("gauge" | "counter" | "histogram")] if name == family.0 => {
                    kind.clone_into(&mut family.1);
                }
                ["UNIT", name, unit] => assert!(name.ends_with(&format!("_{unit}")), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, rest) = series.split_once('{').expect("labels");
        let suffixes = match &family.1[..] {
            "counter" => &["_total"][..],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let suffix = name.strip_prefix(&family.0).expect(line);
        assert!(suffixes.contains(&suffix), "{line}");
        let labels = labels(rest.strip_suffix('}').expect("an end")).expect(line);
        let value = value.parse().expect(line);
        assert!(samples.insert((name.to_owned(), labels), value).is_none(), "{line}");
    }
    samples
}

#[test]
fn the_text_is_open_metrics() {
    let samples = parse(&text(&[array()], &[]).expect("a text"));
    let value = |name: &str, labels: &[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        samples.get(&(name.to_owned(), labels.iter().map(owned).collect())).copied()
    };
    let home = ("array", "home");
    assert_eq!(value("braid_array_size_bytes", &[home]), Some(4096.0));
    assert_eq!(value("braid_last_scrub_timestamp_seconds", &[home]), Some(1.8e9));
    let active = value("braid_array_members", &[home, ("state", "active")]);
    let failed = value("braid_array_members", &[home, ("state", "failed")]);
    assert_eq!((active, failed), (Some(1.0), Some(1.0)));
    let odd = ("member", r#"/dev/odd \"1\"\n"#);
    assert_eq!(value("braid_member_errors_total", &[home, odd]), Some(3.0));
    for name in ["braid_last_scrub_mismatch_bytes", "braid_scrub_mismatch_bytes_total"] {
        let within = samples.keys().find(|(other, _)| name == other);
        let within = within.expect("of the array within").clone();
        assert!(within.1["array"].starts_with("home/"), "{within:?}");
        assert_eq!(samples[&within], 1024.0);
    }
    let states = samples.keys().filter(|(name, _)| name == "braid_array_state");
    assert_eq!(states.count(), 2 * STATES.len());
}

/// The metrics that a file of the repository names.
fn named(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(path).expect(file);
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.filter(|word| word.starts_with("braid_")).map(str::to_owned).collect()
}

#[test]
fn metrics_that_rules_and_the_dashboard_name_are_exported_and_all_are_documented() {
    let samples = parse(&text(&[full()], &[node()]).expect("a text"));
    let exported: BTreeSet<String> = samples.into_keys().map(|(name, _)| name).collect();
    // Of a histogram the family is documented.
    let family = |name: &String| {
        let of = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        of.unwrap_or(name).to_owned()
    };
    let documented: BTreeSet<String> = exported.iter().map(family).collect();
    for file in ["contrib/alerts.yml", "contrib/alerts.test.yml", "contrib/grafana.json"] {
        let named = named(file);
        assert!(named.len() >= 5, "{file}: {named:?}");
        let unknown: Vec<&String> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file} names what is not exported: {unknown:?}");
    }
    assert_eq!(named("docs/metrics.md"), documented, "the table of docs/metrics.md");
}

#[test]
fn background_work_and_the_journal_are_told() {
    let samples = parse(&text(&[full()], &[]).expect("a text"));
    let value = |name: &str| {
        let mut found = samples.iter().filter(|((other, _), _)| other == name);
        found.find(|((_, labels), _)| labels["array"] == "home").map(|(_, value)| *value)
    };
    assert_eq!(value("braid_sync_left_seconds"), Some(7.0));
    assert_eq!(value("braid_journal_size_bytes"), Some(4096.0));
    assert_eq!(value("braid_journal_used_bytes"), Some(4096.0));
    assert!(value("braid_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
}

#[test]
fn io_is_counted_and_its_latency_a_histogram() {
    let write = Operations {
        operations: 4,
        bytes: 2048,
        errors: 1,
        total_ns: 3_000_000,
        latency_counts: vec![1, 0, 2, 1].into(),
    };
    let io = IoFigures { in_flight: 5, write, ..IoFigures::default() };
    let figures = Figures {
        requests: io.clone(),
        members: vec![MemberFigures { member: MemberId(1), io }],
        clients: BTreeMap::from([("nbd".to_owned(), 2)]),
    };
    let samples =
        parse(&text(&[ControlStatus { figures: Some(figures), ..array() }], &[]).unwrap());
    let find = |name: &str, labels: &[(&str, &str)]| {
        let of = |key: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| key.get(*label).is_some_and(|it| it == value))
        };
        let found = samples.iter().filter(|((other, key), _)| other == name && of(key));
        found.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let odd = ("member", r#"/dev/odd \"1\"\n"#);
    assert_eq!(find("braid_array_written_bytes_total", &[]), [2048.0]);
    assert_eq!(find("braid_member_written_bytes_total", &[odd]), [2048.0]);
    assert_eq!(find("braid_requests_total", &[("op", "write")]), [4.0]);
    assert_eq!(find("braid_requests_total", &[]).len(), 5, "of each kind");
    assert_eq!(find("braid_request_errors_total", &[("op", "write")]), [1.0]);
    assert_eq!(find("braid_request_seconds_sum", &[("op", "write")]), [0.003]);
    let bucket = |le: f64| {
        let at = |labels: &BTreeMap<String, String>| {
            labels["op"] == "write" && labels["le"].parse() == Ok(le)
        };
        let name = "braid_request_seconds_bucket";
        let mut all = samples.iter().filter(|((other, _), _)| other == name);
        all.find(|((_, labels), _)| at(labels)).map(|(_, count)| *count)
    };
    let bounds = [64e-6, 128e-6, 256e-6, 512e-6, 33.554_432, f64::INFINITY];
    assert_eq!(bounds.map(bucket), [1.0, 1.0, 3.0, 4.0, 4.0, 4.0].map(Some));
    assert_eq!(find("braid_member_latency_seconds_count", &[odd, ("op", "write")]), [4.0]);
    assert_eq!(find("braid_member_operations_in_flight", &[odd]), [5.0]);
    assert_eq!(find("braid_member_corrected_reads_total", &[odd]), [2.0]);
    assert_eq!(find("braid_export_clients", &[("kind", "nbd")]), [2.0]);
}

#[test]
fn nodes_are_up_while_all_on_them_is_there() {
    let mut array = array();
    array.array.members[0].device = "node://a:1/x".to_owned();
    array.array.members[1].device = "node://b:1/y".to_owned();
    let up = |array: &ControlStatus, node: &str| {
        let samples = parse(&text(std::slice::from_ref(array), &[]).unwrap());
        let mut nodes = samples.into_iter().filter(|((name, _), _)| name == "braid_node_up");
        nodes.find(|((_, labels), _)| labels["node"] == node).map(|(_, value)| value)
    };
    assert_eq!((up(&array, "a:1"), up(&array, "b:1")), (Some(1.0), Some(0.0)));
    array.array.members[1].refused = Some(braid_array::Refusal::new("older", "wait"));
    assert_eq!((up(&array, "b:1"), up(&array, "c:1")), (Some(1.0), None));
}

#[test]
fn without_arrays_there_is_a_version() {
    let samples = parse(&text(&[], &[]).expect("a text"));
    assert_eq!(samples.len(), 1);
}
