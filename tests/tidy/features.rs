//! Features: packages are built with the same ones for tests and without, so that they are built
//! once, and the program that a test starts is the one that was built before.

use std::collections::BTreeSet;
use std::process::Command;

use super::{report, root};

/// Lists packages with the features that this choice of packages and dependencies has them built
/// with.
fn packages(chosen: &[&str], edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root()).args(["tree", "--offline", "--prefix", "none"]).args(chosen);
    let output = tree.args(["-f", "{p} {f}", "-e", edges]).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn dev_dependencies_add_no_feature() {
    let with = packages(&["--workspace"], "normal,build,dev");
    let added: Vec<String> = packages(&["--workspace"], "normal,build")
        .difference(&with)
        .map(|package| format!("{package}: has other features in tests"))
        .collect();
    report(&added);
}

/// Checks that `make test` need not build again what `make demo` has built of other people's code.
#[test]
fn programs_built_alone_have_the_features_of_the_workspace() {
    let all = packages(&["--workspace"], "normal,build");
    let other: Vec<String> = packages(&["-p", "braid-cli", "-p", "braid-bench"], "normal,build")
        .difference(&all)
        .map(|package| format!("{package}: has other features than in the workspace"))
        .collect();
    report(&other);
}
