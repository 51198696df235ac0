//! `docs/json.md` names the fields that commands print, all of them and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::support::nodes::Node;
use crate::support::{Lab, until};

/// The fields of each section of the page.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut sections = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let names = rows.map(|row| row.split(" | ").next().unwrap());
        let names = names.flat_map(|names| names.split('`').skip(1).step_by(2));
        sections.insert(heading.to_owned(), names.map(str::to_owned).collect());
    }
    sections
}

/// Collects the fields of a value, as the page names them. Inner arrays have the fields of the
/// array.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) => {
            for (name, value) in fields_of {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                found.insert(path.clone());
                let elsewhere = ["children", "clients", "disk", "io", "replay", "bitmap", "ppl"];
                let deeper = path.ends_with("].contents");
                if !deeper && (!elsewhere.contains(&name.as_str()) || path == "bitmap") {
                    fields(value, &path, found);
                }
            }
        }
        Value::Array(values) => {
            values.iter().for_each(|value| fields(value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

fn parent(field: &str) -> Option<&str> {
    field.rsplit_once('.').map(|(parent, _)| parent.trim_end_matches("[]"))
}

/// Returns the output about arrays of several kinds, one with a mismatch, by section.
fn printed(lab: &Lab) -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let mut printed: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    let mut add = |section, text| printed.entry(section).or_default().push(text);

    let members = lab.members("m", 3, 20);
    lab.ok("create home -l 5 -n 3 --bitmap internal --assume-clean", &members);
    let member = std::fs::File::options().write(true).open(&members[1]).unwrap();
    member.write_all_at(b"wrong", 10 << 20).unwrap();
    lab.ok("assemble home", &members);
    add("status, detail, check, repair", lab.run("check home --wait --json", &[]).stdout);
    add("limit", lab.ok("limit home --json", &[]));
    add("export", lab.ok("export home add --json nbd:unix:home.nbd", &[]));
    add("export", lab.ok("export home remove --json nbd:unix:home.nbd", &[]));
    add("upgrade", lab.ok("upgrade home --check --json", &[]));
    std::fs::write(lab.path("arrays.toml"), "[array.home]\nwait = -1\n[node.n]\n").unwrap();
    add("config check", lab.run("config check --json", &[]).stdout);
    std::fs::write(lab.path("arrays.toml"), "[array.home]\n[array.attic]\n").unwrap();
    add("up", lab.ok("up home --json", &[]));

    lab.members("d", 1, 20);
    let words = "grow home --level 6 --layout preserve --dry-run --json --add d0";
    add("grow", lab.ok(words, &[]));
    let wide = lab.members("w", 2, 20);
    lab.ok("create wide -l 1 -n 2 --size 8M --assume-clean", &wide);
    lab.ok("assemble wide --export nbd:unix:wide.nbd", &wide);
    add("grow", lab.ok("grow wide --size max --json", &[]));

    let long = lab.members("l", 4, 20);
    lab.ok("create long -l 5 -n 3 --chunk 64K --assume-clean", &long[..3]);
    lab.ok("assemble long", &long[..3]);
    lab.ok("limit long --pause", &[]);
    lab.ok("grow long --raid-devices 4 --add l3", &[]);
    add("status, detail, check, repair", lab.ok("status long --json", &[]));

    add("cat --list", lab.ok("cat home --list --json", &[]));

    let journaled = lab.members("j", 4, 20);
    let words = format!("create other -l 5 -n 3 --assume-clean --write-journal {}", "j3");
    lab.ok(&words, &journaled[..3]);
    add("assemble --explain", lab.ok("assemble --explain --json", &journaled));
    add("recover", lab.ok("recover --json", &journaled[..3]));
    lab.ok("assemble other", &journaled);
    add("status, detail, check, repair", lab.ok("status other --json", &[]));
    add("examine", lab.ok("examine --json", &members));

    let store = |n: u16| format!("--store {}", lab.path(&format!("n{n}")).display());
    let nodes: Vec<Node> = (0..3).map(|n| Node::start(lab, "127.0.0.1:0", &store(n))).collect();
    let volumes: Vec<_> = nodes.iter().map(|node| format!("node://{}", node.address)).collect();
    let witness = Node::start(lab, "127.0.0.1:0", "--witness --store w");
    let words = format!("create data -l 5 -n 3 --size 8M {}", volumes.join(" "));
    lab.ok(&format!("{words} --witness {}", witness.address), &[]);
    lab.ok(&format!("assemble data {}", volumes.join(" ")), &[]);
    let detail = || lab.ok("detail data --json", &[]);
    until("the witness is connected", || {
        detail().windows(16).any(|it| it == b"\"reachable\": tru")
    });
    add("status, detail, check, repair", detail());
    lab.ok("stop data", &[]);
    let address = &nodes[0].address;
    lab.ok(&format!("node delete {address} data --array data"), &[]);
    let words = format!("node status --json {address} {}", nodes[1].address);
    add("node status", lab.ok(&words, &[]));

    let words = "layout -l 6 -n 5 -p xor2d --schedule encoder --json";
    add("layout", lab.ok(words, &[]));
    nodes.into_iter().for_each(Node::kill);
    witness.kill();
    printed
}

#[test]
fn the_page_of_json_has_every_field_that_is_printed() {
    let lab = Lab::new();
    let documented = documented();
    let mut findings = Vec::new();
    for (section, texts) in printed(&lab) {
        let mut found = BTreeSet::new();
        for text in texts {
            let value: Value = serde_json::from_slice(&text).unwrap();
            fields(&value, "", &mut found);
        }
        let named = &documented[section];
        findings.extend(found.difference(named).map(|field| format!("{section}: no {field}")));
        // Of what was not printed this time nothing can be said.
        let seen = |field: &&String| {
            parent(field)
                .is_none_or(|parent| found.iter().any(|it| self::parent(it) == Some(parent)))
        };
        let gone = named.difference(&found).filter(seen);
        findings.extend(gone.map(|field| format!("{section}: {field} is not printed")));
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
