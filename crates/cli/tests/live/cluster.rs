//! Arrays over nodes, with real node processes on loopback: made, served, degraded, refused.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::support::export::{fill, noise};
use crate::support::nodes::{
    Node, detail, in_memory, in_stores, kill_while_writing, members, server,
};
use crate::support::{Lab, fingerprint, until};
use serde_json::json;

#[test]
fn an_array_lives_over_nodes() {
    let lab = Lab::new();
    let mut nodes = in_memory(&lab, 5);
    let all = members(&nodes, "");
    let said = lab.ok_text(&format!("create x -l 6 -p xor2d -n 5 --size 4M{all}"), &[]);
    let named = members(&nodes, "/x");
    assert_eq!(said, format!("braid assemble x{named}\n"));
    let examined = lab.ok_text(&format!("examine {}", &named[1..]), &[]);
    assert!(examined.contains("raid6") && examined.contains("Layout : xor2d"), "{examined}");
    let explained = lab.ok_text(&format!("assemble --explain x{all}"), &[]);
    assert!(explained.contains("can start: clean and complete"), "{explained}");

    let socket = lab.path("x.sock");
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let seen = detail(&lab, "x");
    assert_eq!((&seen["level"], &seen["layout"]), (&json!("raid6"), &json!("xor2d")));
    assert_eq!(seen["members"][4]["device"], named.split(' ').next_back().unwrap());
    let content = noise(12 << 20);
    assert_eq!(seen["size_bytes"], content.len());
    fill(&socket, "x", &content);
    assert!(lab.ok("cat x", &[]) == content);
    let mdstat = lab.ok_text("status --mdstat", &[]);
    assert!(mdstat.contains("level 6, 64k chunk, algorithm xor2d [5/5] [UUUUU]"), "{mdstat}");
    lab.ok("stop x", &[]);

    // Any two may be missing: it is read and written without them.
    let lost = nodes.split_off(3);
    let left = &nodes;
    lost.into_iter().for_each(Node::kill);
    let serve = "--schedule encoder --export nbd:unix:x.sock";
    let output = lab.run(&format!("assemble x{all} {serve}"), &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && warned.contains("2 members are missing"), "{warned}");
    assert!(warned.contains("is missing: it refuses the connection"), "{warned}");
    assert!(lab.ok("cat x", &[]) == content);
    let seen = detail(&lab, "x");
    assert_eq!(seen["state"], json!(["clean", "degraded"]));
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(1));
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&socket, "x", &content);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
    // It is durable there.
    lab.ok(&format!("assemble x{all}"), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
    let explained = lab.told(&format!("assemble --explain x{all}"), &[]);
    assert_eq!(lab.type_all(&explained, &content), 1, "{explained}");
    let line = lab.refused(1, &format!("assemble x{}", members(&left[..2], "")), &[], &[]);
    assert!(line.contains("it needs 3 of 5"), "{line}");
}

#[test]
fn members_of_mds_levels_are_mds_members() {
    let lab = Lab::new();
    for (level, nodes) in [("0", 2), ("1", 2), ("4", 3), ("5", 4), ("6", 5), ("10", 4)] {
        let start = |number| {
            let store = lab.path(&format!("l{level}s{number}"));
            std::fs::create_dir(&store).unwrap();
            let storage = format!("--store {} --ring 64M", store.display());
            (Node::start(&lab, "127.0.0.1:0", &storage), store.join("a"))
        };
        let (nodes, files): (Vec<Node>, Vec<PathBuf>) = (0..nodes).map(start).unzip();
        let all = members(&nodes, "");
        let count = nodes.len();
        lab.ok(&format!("create a --level {level} -n {count} --size 2M{all}"), &[]);
        lab.ok(&format!("assemble a{all} --export nbd:unix:a{level}.sock"), &[]);
        let size = detail(&lab, "a")["size_bytes"].as_u64().unwrap();
        let content = noise(usize::try_from(size).unwrap());
        fill(&lab.path(&format!("a{level}.sock")), "a", &content);
        lab.ok("stop a", &[]);
        nodes.into_iter().for_each(Node::stop);
        // Brought together, the volumes are an array of this machine.
        assert!(lab.ok("cat", &files) == content, "level {level}");
        lab.ok("assemble --rename b", &files);
        assert_eq!(detail(&lab, "b")["state"], json!(["clean"]), "level {level}");
        if level != "0" {
            lab.ok("check b --wait", &[]);
            assert_eq!(detail(&lab, "b")["mismatches"], 0, "level {level}");
        }
        lab.ok("stop b", &[]);
    }
}

#[test]
fn what_cannot_be_changes_nothing_on_any_node() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 6 -p xor2d -n 4 --size 1M{all}"), &[]);
    let port = nodes[0].address.rsplit_once(':').unwrap().1;
    let same = format!("create y -l 1 -n 2 --size 1M node://localhost:{port}/y{}", &all[..]);
    let same: Vec<&str> = same.split(' ').take(10).collect();
    let foreign = members(&nodes[..3], "/x") + &members(&nodes[3..], "/z");
    lab.ok(&format!("create z -l 0 -n 1 --force --size 1M{}", members(&nodes[3..], "")), &[]);
    let files = || {
        let of = |store: &PathBuf| {
            let mut paths: Vec<PathBuf> =
                std::fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths.into_iter().map(|path| (fingerprint(&path), path)).collect::<Vec<_>>()
        };
        stores.iter().map(of).collect::<Vec<_>>()
    };
    let before = files();
    let mixed = format!("{}{}", members(&nodes[..3], "/new"), members(&nodes[3..], "/x"));
    let table = [
        (1, format!("create x -l 6 -p xor2d -n 4 --size 1M{all}"), "has a volume of this name"),
        (1, format!("create y -l 6 -p xor2d -n 4 --size 1M{mixed}"), "has a volume of this name"),
        (
            1,
            format!("create y -l 6 -n 4 --bitmap none --size 8000T{all}"),
            "no volume was left behind",
        ),
        (2, same.join(" "), "lost together"),
        (1, format!("assemble nosuch{all}"), "no volume of this name"),
        (1, format!("assemble{foreign}"), "another array"),
        (1, format!("assemble y{}", members(&nodes, "/x")), "the members are those of x ("),
    ];
    for (code, words, said) in table {
        let line = lab.refused(code, &words, &[], &[]);
        assert!(line.contains(said), "braid {words}: {line}");
        assert_eq!(files(), before, "braid {words} changed something");
    }

    // A running array has its volumes to itself.
    lab.ok(&format!("assemble x{all}"), &[]);
    let renamed = format!("assemble --rename y{}", members(&nodes, "/x"));
    for words in [renamed, format!("assemble x{all}")] {
        let line = lab.refused(1, &words, &[], &[]);
        assert!(line.contains("in use by another client"), "{line}");
    }
    assert!(lab.ok_text(&format!("examine{}", members(&nodes, "/x")), &[]).contains("xor2d"));
    lab.ok("stop x", &[]);

    // The members of an array that runs over nodes alone are no local array.
    nodes.into_iter().for_each(Node::stop);
    let local: Vec<PathBuf> = stores.iter().map(|store| store.join("x")).collect();
    for words in ["assemble x", "cat"] {
        let line = lab.refused(1, words, &local, &local);
        assert!(line.contains("layout xor2d, which runs over nodes alone"), "{line}");
    }
}

#[test]
fn the_name_tells_which_array_over_nodes_is_meant() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let ours = members(&nodes[..2], "");
    let theirs = members(&nodes[2..], "");
    lab.ok(&format!("create x -l 1 -n 2 --size 1M{ours}"), &[]);
    lab.ok(&format!("create y -l 1 -n 2 --size 1M{theirs}"), &[]);
    let all = members(&nodes[2..], "/y") + &members(&nodes[..2], "/x");
    let explained = lab.ok_text(&format!("assemble --explain x{all}"), &[]);
    assert!(explained.contains("can start: clean and complete"), "{explained}");
    // Even while the other one runs.
    lab.ok(&format!("assemble y{theirs}"), &[]);
    let output = lab.run(&format!("assemble x{all}"), &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{warned}");
    let left_out =
        format!("{} is left out: belongs to another array", &members(&nodes[2..3], "/y")[1..]);
    assert!(warned.contains(&left_out), "{warned}");
    assert_eq!(detail(&lab, "x")["state"], json!(["clean"]));
    lab.ok("stop x", &[]);
    lab.ok(&format!("assemble --rename z{}", members(&nodes[..2], "/x")), &[]);
    assert_eq!(detail(&lab, "z")["state"], json!(["clean"]));
}

/// Returns the volumes in a node's store, without its lock and notes.
fn volumes(store: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let besides = |path: &Path| {
        path.ends_with(".lock")
            || path.file_name() == Some(".id".as_ref())
            || path.extension() == Some("vote".as_ref())
    };
    entries.filter(|path| !besides(path)).collect()
}

#[test]
fn nodes_with_a_key_serve_who_has_it() {
    let lab = Lab::new();
    let key = |name: &str| lab.path(name).display().to_string();
    let own = key("own.key");
    let other = key("other.key");
    lab.ok(&format!("key new {own}"), &[]);
    lab.ok(&format!("key new {other}"), &[]);
    let line = lab.refused(1, &format!("key new {own}"), &[], &[]);
    assert!(line.contains("there is a file already"), "{line}");
    let start = |number: usize| {
        let encrypt = if number == 1 { "--encrypt" } else { "" };
        let store = key(&format!("n{number}"));
        let storage = format!("--store {store} --ring 64M --key {own} {encrypt}");
        Node::start(&lab, "127.0.0.1:0", &storage)
    };
    let nodes: Vec<Node> = (0..3).map(start).collect();
    let all = members(&nodes, "");
    let create = format!("create x -l 5 -n 3 --size 1M{all}");
    let line = lab.refused(1, &create, &[], &[]);
    assert!(line.contains("wants the cluster key; give its file with --key"), "{line}");
    let line = lab.refused(1, &format!("{create} --key {other}"), &[], &[]);
    assert!(line.contains("has another cluster key"), "{line}");
    let next = lab.ok_text(&format!("{create} --key {own}"), &[]);
    assert!(next.starts_with(&format!("braid assemble --key {own} x ")), "{next}");
    lab.ok(next.trim_start_matches("braid ").trim_end(), &[]);
    let told = detail(&lab, "x");
    assert_eq!(told["state"], json!(["clean"]));
    let of = |field: &str| told["protection"][field].clone();
    assert_eq!([of("fabric"), of("authenticated")], [json!("tcp"), json!(true)]);
    assert_eq!([of("nodes"), of("nodes_with_encrypted_slices")], [json!(3), json!(1)]);
    let text = lab.ok_text("detail x", &[]);
    assert!(text.contains("Encrypted Slices : of 1 of 3 nodes\n"), "{text}");
    assert_eq!(lab.ok("cat x", &[]).len(), 2 << 20);
    lab.ok("stop x", &[]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&own, mode).unwrap();
    let line = lab.refused(1, &format!("assemble --key {own} x{all}"), &[], &[]);
    assert!(line.trim_end().ends_with(&format!("`chmod 600 {own}`")), "{line}");
}

#[test]
fn a_node_under_two_addresses_is_one_node() {
    let lab = Lab::new();
    let mut nodes = in_memory(&lab, 2);
    let store = lab.path("everywhere");
    let storage = format!("--store {} --ring 64M --no-key", store.display());
    let everywhere = Node::start(&lab, "0.0.0.0:0", &storage);
    let port = everywhere.address.rsplit_once(':').expect("a port").1.to_owned();
    let twice = format!(" node://127.0.0.1:{port}/x node://127.0.0.2:{port}/y");
    let all = members(&nodes, "/x") + &twice;
    let line = lab.refused(1, &format!("create x -l 5 -n 4 --size 1M{all}"), &[], &[]);
    assert!(line.contains("127.0.0.2") && line.contains("lost together"), "{line}");
    assert!(line.contains("no volume was left behind"), "{line}");
    assert!(volumes(&store).is_empty());

    // Made elsewhere and brought together on one node.
    nodes.push(everywhere);
    lab.ok(&format!("create x -l 5 -n 3 --size 1M{}", members(&nodes, "")), &[]);
    std::fs::copy(store.join("x"), store.join("y")).unwrap();
    let line = lab.refused(1, &format!("assemble{all}"), &[], &[]);
    assert!(line.contains("127.0.0.2") && line.contains("on the same node"), "{line}");
    let explained = lab.ok_text(&format!("assemble --explain{all}"), &[]);
    assert!(explained.contains("/y: is on the same node as node://127.0.0.1"), "{explained}");
}

#[test]
fn a_node_with_too_little_room_says_how_much_it_takes() {
    let lab = Lab::new();
    let mut nodes = in_memory(&lab, 2);
    nodes.push(Node::start(&lab, "127.0.0.1:0", "--memory --ring 64K"));
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 3 --size 1M{all}"), &[]);
    let line = lab.refused(1, &format!("assemble x{all}"), &[], &[]);
    assert!(line.contains(&members(&nodes[2..], "/x")), "{line}");
    assert!(line.contains("larger --ring"), "{line}");
}

#[test]
fn what_was_made_goes_again_when_another_node_cannot() {
    let lab = Lab::new();
    let mut nodes = in_memory(&lab, 2);
    let full = lab.path("full");
    std::fs::create_dir(&full).unwrap();
    let storage = format!("--store {} --ring 64M", full.display());
    nodes.push(Node::start(&lab, "127.0.0.1:0", &storage));
    let all = members(&nodes, "");
    // Memory takes any size until it is used; the file system of the last node does not.
    let line =
        lab.refused(1, &format!("create x -l 5 -n 3 --bitmap none --size 4000T{all}"), &[], &[]);
    assert!(line.contains(&members(&nodes[2..], "/x")), "{line}");
    assert!(line.contains("do not fit") && line.contains("no volume was left behind"), "{line}");
    assert!(volumes(&full).is_empty());
    lab.ok(&format!("create x -l 5 -n 3 --size 1M{all}"), &[]);
}

#[test]
fn an_array_that_stopped_uncleanly_is_resynced_when_it_is_complete() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M -k bitmap{all}"), &[]);
    let mut server = server(&lab, &all);
    let content = noise(12 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    kill_while_writing(&lab, &mut server, &content);
    // What only was in their memory is lost.
    let start_again = |(node, store): (Node, &PathBuf)| node.start_again(&lab, store);
    let nodes: Vec<Node> = nodes.into_iter().zip(&stores).map(start_again).collect();
    let refused = lab.run(&format!("assemble x{}", members(&nodes[..3], "")), &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("parity") && said.contains("--force"), "{said}");
    let explained = lab.ok_text(&format!("assemble --explain x{all}"), &[]);
    assert!(explained.contains("resync"), "{explained}");
    lab.ok(&format!("assemble x{all}"), &[]);
    lab.ok("status x --watch", &[]);
    lab.ok("stop x", &[]);
    let explained = lab.ok_text(&format!("assemble --explain x{all}"), &[]);
    assert!(explained.contains("can start: clean and complete"), "{explained}");
}

#[test]
fn an_array_whose_client_died_while_a_node_was_lost_goes_on_without_force() {
    let lab = Lab::new();
    let (mut nodes, _stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M{all}"), &[]);
    let mut server = server(&lab, &all);
    let content = noise(12 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    nodes.pop().expect("four nodes").kill();
    kill_while_writing(&lab, &mut server, &content);
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    assert!(!lab.ok_text("status x", &[]).contains("resync"));
    lab.ok("stop x", &[]);
}

#[test]
fn a_node_in_the_background_leaves_its_process_id() {
    let lab = Lab::new();
    let address = lab.ok_text("node --listen 127.0.0.1:0 --memory --ring 16M", &[]);
    let address = address.trim_end();
    let pid_file = lab.path("run").join(format!("node-{address}.pid"));
    let pid = std::fs::read_to_string(&pid_file).expect("a process id");
    let line = lab.refused(1, &format!("node --listen {address} --memory"), &[], &[]);
    assert!(line.contains("cannot listen"), "{line}");
    lab.ok(&format!("create x -l 0 -n 1 --force --size 1M node://{address}"), &[]);
    let kill = std::process::Command::new("kill").arg(pid.trim_end()).status().expect("kill runs");
    assert!(kill.success());
    until("the end of the node", || !pid_file.exists());
    assert!(File::open(lab.path("run").join(format!("node-{address}.log"))).is_ok());
}

#[test]
fn wrong_words_for_a_node_are_refused() {
    let lab = Lab::new();
    lab.members("file", 1, 1);
    let table = [
        (2, "node --memory", "required"),
        (2, "node --listen 127.0.0.1:0", "required"),
        (2, "node --listen 127.0.0.1:0 --memory --store x", "cannot be used with"),
        (2, "node --listen 127.0.0.1 --memory", "port"),
        (2, "node --listen 127.0.0.1:0 --memory --fabric pigeon", "pigeon"),
        (2, "node --listen 127.0.0.1:0 --memory --ring 4K", "--ring 64K"),
        (1, "node --listen 192.0.2.1:7000 --memory --no-key", "cannot listen"),
        (1, "node --listen 0.0.0.0:0 --memory", "loopback addresses only; make a key"),
        (1, "node --listen 127.0.0.1:0 --memory --key absent", "braid key new absent"),
        (1, "node --listen 127.0.0.1:0 --memory --encrypt", "sealed with a cluster key"),
        (1, "node --listen 127.0.0.1:0 --memory --encrypt --fabric ofi", "pass the processor by"),
        (1, "node --listen 127.0.0.1:0 --store file0", "file0"),
    ];
    for (code, words, said) in table {
        let line = lab.refused(code, words, &[], &[]);
        assert!(line.contains(said), "braid {words}: {line}");
    }
}

/// Runs the command at the end of the output as it is.
fn follow(lab: &Lab, said: &str) {
    let line = said.lines().rev().find(|line| line.contains("braid ")).expect("a command");
    let at = line.rfind("braid ").expect("found above") + "braid ".len();
    let output = lab.run(&line[at..], &[]);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_flipped_byte_on_a_node_is_named_and_mended() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 6 --layout xor2d -n 4 --size 4M --chunk 64K{all}"), &[]);
    let socket = lab.path("x.nbd");
    let assemble = || {
        let export = socket.display();
        lab.ok(&format!("assemble x{all} --export nbd:unix:{export}"), &[]);
    };
    let content: Vec<u8> = (0..8 << 20).map(|i: u32| (i / 777 % 251) as u8).collect();
    assemble();
    fill(&socket, "x", &content);
    assert_eq!(lab.ok_text("check x --wait", &[]), "x: check complete, no mismatches\n");
    lab.ok("stop x", &[]);

    let superblock = lab.ok_text(&format!("examine{}", members(&nodes[2..3], "/x")), &[]);
    let (_, offset) = superblock.split_once("Data Offset : ").expect("an offset");
    let offset: u64 = offset.split(' ').next().expect("a word").parse().expect("a number");
    // Each node has two rows of a stripe; this is in the second of stripe 3.
    let place = offset * 512 + (3 * 2 + 1) * (64 << 10) + 9000;
    let mut bytes = std::fs::read(stores[2].join("x")).unwrap();
    bytes[place as usize] ^= 0x40;
    std::fs::write(stores[2].join("x"), bytes).unwrap();

    assemble();
    let found = lab.run("check x --wait", &[]);
    assert_eq!(found.status.code(), Some(1), "it differs");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.starts_with("x: check complete, 8 sectors differ; braid repair x"), "{found}");
    let node = format!("node://{}/x", nodes[2].address);
    assert!(found.contains(&node) && found.contains("stripe 3"), "{found}");
    let mended = lab.ok_text("repair x --wait", &[]);
    assert!(mended.starts_with("x: repair complete, 8 sectors rewritten\n"), "{mended}");
    assert_eq!(lab.ok_text("check x --wait", &[]), "x: check complete, no mismatches\n");
    assert_eq!(lab.ok("cat x", &[]), content, "what was written");
    lab.ok("stop x", &[]);
}

#[test]
fn what_is_advised_over_nodes_works() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    let create = "create x -l 5 -n 3 --size 16M --assume-clean";
    let made = lab.ok_text(&format!("{create}{}", members(&nodes, "")), &[]);
    follow(&lab, &made);
    lab.ok("sync x --max 1M", &[]);
    assert_eq!(lab.ok_text("sync x", &[]), "x: min 10M, max 1M\n");
    lab.ok("stop x", &[]);
    for left in [3, 2] {
        let words = format!("assemble --explain{}", members(&nodes[..left], "/x"));
        follow(&lab, &lab.ok_text(&words, &[]));
        assert_eq!(detail(&lab, "x")["raid_devices"], 3, "{left} nodes");
        lab.ok("stop x", &[]);
    }
    let words = format!("assemble x{}", members(&nodes[..1], ""));
    let output = lab.run(&words, &[]);
    assert_eq!(output.status.code(), Some(1));
    follow(&lab, &String::from_utf8_lossy(&output.stderr));
}
