//! `bench cluster` with real processes: over loopback for everybody, and as root on shaped links,
//! where the bytes on every link are what the schedule says.

use std::process::Command;

use crate::support::{Lab, skip};
use serde_json::Value;

fn results(lab: &Lab, words: &str) -> Vec<Value> {
    let store = lab.path("store");
    std::fs::create_dir_all(&store).expect("a directory");
    let json = lab.ok(&format!("bench cluster --json {words} --store"), &[store]);
    let json: Value = serde_json::from_slice(&json).expect("one JSON object");
    assert_eq!(json["schema"], 1);
    json["results"].as_array().expect("a list").clone()
}

fn number(entry: &Value, field: &str) -> f64 {
    entry[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {entry}"))
}

#[test]
fn loopback_measures_and_says_that_links_are_not_counted() {
    let lab = Lab::new();
    let words = "--level 4 --nodes 3 --block 64K --schedules client,encoder --clients 2 \
        --seconds 0.3 --runs 1 --storage disk --reads --degraded-reads --small-writes";
    let report = lab.path("report");
    let found = results(&lab, &format!("{words} --report {}", report.display()));
    let kinds: Vec<(&str, &str)> = found
        .iter()
        .map(|e| (e["pattern"].as_str().expect("text"), e["schedule"].as_str().expect("text")))
        .collect();
    // Without two of its nodes the array cannot be read.
    let others = ["read", "read-1-lost", "write-4k"].map(|pattern| (pattern, "encoder"));
    assert_eq!(kinds, [&[("write", "client"), ("write", "encoder")], &others[..]].concat());
    for entry in &found {
        assert!(number(&entry["data_bytes_s"], "median") > 0.0, "{entry}");
        assert!(number(&entry["cpu_s_per_gib"], "nodes") > 0.0, "{entry}");
        assert!(entry["client_bytes_per_data_byte"].is_null() && entry["link_bit_s"].is_null());
        assert_eq!((&entry["level"], &entry["storage"]), (&"raid4".into(), &"disk".into()));
    }
    for file in ["results.json", "report.md", "raw/journal.jsonl"] {
        assert!(report.join(file).exists(), "{file}");
    }
    let left = std::fs::read_dir(lab.path("store")).expect("a directory").count();
    assert_eq!(left, 0, "something stays in the store");
}

#[test]
fn links_carry_what_the_schedule_says() {
    let root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    if !root || Command::new("ip").arg("-V").output().is_err() {
        return skip("links_carry_what_the_schedule_says", "it needs root and iproute2");
    }
    let lab = Lab::new();
    let words = "--level 6 --nodes 4 --block 64K --schedules client,encoder --link 100M \
        --seconds 1 --runs 1 --degraded-reads";
    let found = results(&lab, words);
    let [client, encoder, one_lost, two_lost] = &found[..] else { panic!("not four results") };
    // Two data blocks of four: the client sends 4/2 blocks, or 1 while nodes exchange R(n-1) = 6
    // for 4. What comes on top are headers.
    let near = |entry: &Value, field: &str, expected: f64| {
        let found = number(entry, field);
        assert!((expected - 0.01..expected + 0.05).contains(&found), "{field} {found}: {entry}");
    };
    near(client, "client_bytes_per_data_byte", 2.0);
    near(client, "node_bytes_per_data_byte", 0.0);
    near(encoder, "client_bytes_per_data_byte", 1.0);
    near(encoder, "node_bytes_per_data_byte", 1.5);
    // What is left of a stripe is as much as its data.
    near(one_lost, "client_bytes_per_data_byte", 1.0);
    near(two_lost, "client_bytes_per_data_byte", 1.0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let lab = Lab::new();
    for (words, expected) in [
        ("--level 6 --nodes 3", "nodes"),
        ("--level 7 --nodes 5", "level"),
        ("--level 4 --nodes 3 --layout xor2d", "no layout xor2d"),
        ("--level 4 --nodes 3 --schedules static", "no schedule static"),
        ("--level 6 --nodes 5 --block 1000", "out of range"),
        ("--level 6 --nodes 5 --clients 0", "0 is not in 1..=64"),
        ("--level 6 --nodes 5 --runs 0", "0 is not in 1..=99"),
        ("--level 6 --nodes 5 --seconds 0", "--seconds is out of range"),
        ("--level 6 --nodes 5 --link 10", "not a rate"),
        ("--level 6 --nodes 5 --against gluster", "--link"),
        ("--level 6 --nodes 5 --fabric smoke", "smoke"),
    ] {
        let line = lab.refused(2, &format!("bench cluster {words}"), &[], &[]);
        assert!(line.contains(expected), "{words}: {line}");
    }
    let line = lab.refused(2, "bench clustr", &[], &[]);
    assert!(line.contains("did you mean cluster? see braid bench --help"), "{line}");
    assert!(lab.ok_text("bench --help", &[]).contains("Usage: braid bench <COMMAND>"));
    assert!(lab.ok_text("bench cluster --help", &[]).contains("--schedules"));
}
