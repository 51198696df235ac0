//! The alert rules of `contrib`, as Prometheus' own promtool judges them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Run, directory, skip};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// What it says of a file of `contrib`; `None` where it cannot be had.
fn promtool(test: &str, words: &[&str], rules: &Path) -> Option<Run> {
    let mut command = Command::new(file("tests/prometheus/promtool.sh"));
    let run = Run::of(command.args(words).arg(rules));
    if run.status.code() == Some(125) {
        skip(test, run.stderr.trim_end());
        return None;
    }
    Some(run)
}

#[test]
fn alert_rules_are_rules_and_fire_when_they_should() {
    let test = "alert_rules_are_rules_and_fire_when_they_should";
    let Some(checked) = promtool(test, &["check", "rules"], &file("contrib/alerts.yml")) else {
        return;
    };
    let said = checked.expect_success("promtool check rules").stdout;
    let rules = std::fs::read_to_string(file("contrib/alerts.yml")).expect("the rules");
    let count = rules.matches("- alert: ").count();
    assert!(said.contains(&format!("SUCCESS: {count} rules found")), "{said}");

    let tests = file("contrib/alerts.test.yml");
    if let Some(tested) = promtool(test, &["test", "rules"], &tests) {
        let said = tested.expect_success("promtool test rules").stdout;
        assert!(said.contains("SUCCESS"), "{said}");
    }
    // A rule without a test could be of any kind.
    let tests = std::fs::read_to_string(tests).expect("the tests");
    for rule in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let fires = format!("alertname: {rule}\n        exp_alerts:");
        assert!(tests.contains(&fires), "no test in which {rule} fires");
        assert!(tests.contains(&format!("alertname: {rule}}}")), "none in which {rule} is quiet");
    }
}

/// Every query of the dashboard is one that Prometheus takes.
#[test]
fn queries_of_the_dashboard_are_queries() {
    let test = "queries_of_the_dashboard_are_queries";
    let text = std::fs::read_to_string(file("contrib/grafana.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    assert!(queries.len() >= panels.len() / 2, "{} queries", queries.len());
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(number, query)| {
            // What Grafana puts in the place of its variables.
            let query = query.replace("$__rate_interval", "1m");
            serde_json::json!({"record": format!("query{number}"), "expr": query})
        })
        .collect();
    let group = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let path = directory("dashboard").join("queries.yml");
    // JSON is YAML, too.
    std::fs::write(&path, group.to_string()).expect("a file");
    if let Some(checked) = promtool(test, &["check", "rules"], &path) {
        let said = checked.expect_success("promtool check rules").stdout;
        assert!(said.contains(&format!("SUCCESS: {} rules found", queries.len())), "{said}");
    }
}
