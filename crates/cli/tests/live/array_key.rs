//! A key that opens one array, on nodes that keep another one, too.

use std::path::PathBuf;
use std::process::Child;

use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, detail, members};
use crate::support::{Lab, until};
use serde_json::json;

/// Three nodes with a cluster key, and on them an array `x` and one `y`, each with its key.
struct Cluster {
    lab: Lab,
    nodes: Vec<Node>,
    stores: Vec<PathBuf>,
}

impl Cluster {
    fn new() -> Self {
        let lab = Lab::new();
        let key = lab.path("cluster.key").display().to_string();
        lab.ok(&format!("key new {key}"), &[]);
        let stores: Vec<PathBuf> = (0..3).map(|number| lab.path(&format!("n{number}"))).collect();
        let start = |store: &PathBuf| {
            let storage = format!("--store {} --ring 64M --key {key}", store.display());
            Node::start(&lab, "127.0.0.1:0", &storage)
        };
        let nodes = stores.iter().map(start).collect();
        let cluster = Self { lab, nodes, stores };
        for name in ["x", "y"] {
            let all = cluster.members("");
            let words = format!("create {name} -l 5 -n 3 --size 2M --key {key}{all}");
            cluster.lab.ok(&words, &[]);
            let node = members(&cluster.nodes[..1], &format!("/{name}"));
            let examined = cluster.lab.ok_text(&format!("examine --key {key}{node} --json"), &[]);
            let examined: serde_json::Value = serde_json::from_str(&examined).expect("JSON");
            let uuid = examined[0]["array_uuid"].as_str().expect("a UUID");
            let file = cluster.key(name);
            cluster.lab.ok(&format!("key derive --array {uuid} --key {key} {file}"), &[]);
        }
        cluster
    }

    fn members(&self, volume: &str) -> String {
        members(&self.nodes, volume)
    }

    fn key(&self, name: &str) -> String {
        self.lab.path(&format!("{name}.key")).display().to_string()
    }

    #[track_caller]
    fn refused(&self, words: &str, said: &str) {
        let line = self.lab.refused(1, words, &[], &[]);
        assert!(line.contains(said), "braid {words}: {line}");
    }
}

const LIMITED: &str = "this key is limited to array ";

#[test]
fn a_key_of_one_array_opens_that_and_no_other() {
    let cluster = Cluster::new();
    let lab = &cluster.lab;
    let own = cluster.key("x");
    let whole = cluster.key("cluster");
    let all = cluster.members("");
    let serve = format!("assemble --key {own} x{all} --export nbd:unix:x.sock");
    lab.ok(&serve, &[]);
    let told = detail(lab, "x");
    assert_eq!(told["state"], json!(["clean"]));
    let of = |field: &str| told["protection"][field].clone();
    assert_eq!([of("authenticated"), of("limited_to_array")], [json!(true), json!(true)]);
    let text = lab.ok_text("detail x", &[]);
    assert!(text.contains("Authenticated : by a key limited to this array\n"), "{text}");
    let content = noise(4 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(lab, "x")["mismatches"], 0);
    // What takes a node that has no volume of the array takes the cluster key.
    let new = Node::start(lab, "127.0.0.1:0", &format!("--memory --ring 64M --key {whole}"));
    lab.ok(&format!("fail x node://{}/x", cluster.nodes[2].address), &[]);
    lab.ok(&format!("remove x node://{}/x", cluster.nodes[2].address), &[]);
    cluster.refused(&format!("add x node://{}", new.address), LIMITED);
    lab.ok(&format!("re-add x node://{}/x", cluster.nodes[2].address), &[]);
    until("a recovery", || detail(lab, "x")["state"] == json!(["clean"]));
    lab.ok("stop x", &[]);
    let named = cluster.members("/x");
    assert!(lab.ok(&format!("cat{named} --key {own}"), &[]) == content);
    assert!(lab.ok_text(&format!("examine{named} --key {own}"), &[]).contains("raid5"));

    // Of the other array there is nothing to be had.
    let node = &cluster.nodes[0].address;
    let theirs = cluster.members("/y");
    let absent = "there is no volume y of array ";
    cluster.refused(&format!("assemble{theirs} --key {own}"), absent);
    cluster.refused(&format!("assemble y{all} --key {own}"), absent);
    cluster.refused(&format!("cat{theirs} --key {own}"), absent);
    cluster.refused(&format!("examine{theirs} --key {own}"), absent);
    cluster.refused(&format!("node delete {node} y --key {own}"), absent);
    cluster.refused(&format!("node delete {node} x --array x --key {own}"), LIMITED);
    cluster.refused(&format!("node stop {node} --key {own}"), LIMITED);
    cluster.refused(&format!("create z -l 5 -n 3 --size 1M{all} --key {own}"), LIMITED);
    let output = lab.run(&format!("node status {node} --key {own}"), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains(LIMITED) && text.lines().count() == 1, "{text}");
    for store in &cluster.stores {
        assert!(store.join("x").exists() && store.join("y").exists() && !store.join("z").exists());
    }
    // Whose it is has it all the while.
    lab.ok(&format!("assemble y{all} --key {}", cluster.key("y")), &[]);
    assert_eq!(detail(lab, "y")["state"], json!(["clean"]));
    cluster.refused(&format!("assemble{theirs} --take-over --key {own}"), absent);
    assert_eq!(detail(lab, "y")["state"], json!(["clean"]));
    lab.ok("stop y", &[]);
}

fn server(cluster: &Cluster) -> Child {
    let all = cluster.members("");
    let words = format!("assemble x{all} --foreground --key {}", cluster.key("x"));
    let server = cluster.lab.braid().args(words.split_whitespace()).spawn().expect("a server");
    until("a running array", || {
        cluster.lab.run("status x", &[]).status.success()
            && detail(&cluster.lab, "x")["protection"]["nodes"] == 3
    });
    server
}

#[test]
fn an_array_is_taken_over_with_its_own_key() {
    let mut cluster = Cluster::new();
    let mut first = server(&cluster);
    first.kill().and_then(|()| first.wait()).expect("an end");
    // Without a node, and then with a client that still lives.
    cluster.nodes.pop().expect("three").kill();
    let all = cluster.members("");
    let own = cluster.key("x");
    cluster.lab.run("stop x", &[]);
    let output = cluster.lab.run(&format!("assemble x{all} --run --key {own}"), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let other = Lab::new();
    other.ok(&format!("assemble x{all} --run --take-over --key {own}"), &[]);
    assert_eq!(detail(&other, "x")["state"], json!(["clean", "degraded"]));
    other.ok("stop x", &[]);
}

#[test]
fn a_key_of_one_array_makes_no_node_and_no_other_key() {
    let lab = Lab::new();
    let [whole, own, more] = ["whole", "own", "more"].map(|name| lab.path(name));
    let whole = whole.display();
    let own = own.display();
    let more = more.display();
    lab.ok(&format!("key new {whole}"), &[]);
    let uuid = "00112233:44556677:8899aabb:ccddeeff";
    lab.ok(&format!("key derive --array {uuid} --key {whole} {own}"), &[]);
    let text = std::fs::read_to_string(lab.path("own")).expect("a key");
    assert!(text.starts_with(&format!("braid-array-key-1 {uuid} ")), "{text}");
    let mode = std::fs::metadata(lab.path("own"))
        .map(|file| std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777);
    assert_eq!(mode.expect("a file"), 0o600);
    let line = lab.refused(1, &format!("key derive --array {uuid} --key {own} {more}"), &[], &[]);
    assert!(line.contains(&format!("{LIMITED}{uuid}; use the cluster key")), "{line}");
    let line = lab.refused(2, &format!("key derive --array x --key {whole} {more}"), &[], &[]);
    assert!(line.contains("is no UUID"), "{line}");
    let store = lab.path("store");
    let words = format!("node --listen 127.0.0.1:0 --store {} --key {own}", store.display());
    let line = lab.refused(1, &words, &[], &[]);
    assert!(line.contains(&format!("{LIMITED}{uuid}; use the cluster key")), "{line}");
    assert!(!store.exists() && !lab.path("more").exists());
}
