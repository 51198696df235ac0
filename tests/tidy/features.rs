//! Features: packages are built with the same ones for tests and without, so that they are built
//! once, and the program that a test starts is the one that was built before.

use std::collections::BTreeSet;
use std::process::Command;

use super::{report, root};

/// Lists packages with the features that this choice of dependencies has them built with.
fn packages(edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root()).args(["tree", "--offline", "--workspace", "--prefix", "none"]);
    let output = tree.args(["-f", "{p} {f}", "-e", edges]).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn dev_dependencies_add_no_feature() {
    let with = packages("normal,build,dev");
    let added: Vec<String> = packages("normal,build")
        .difference(&with)
        .map(|package| format!("{package}: has other features in tests"))
        .collect();
    report(&added);
}
