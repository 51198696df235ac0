//! Common mistakes at the command, and the ways out.

mod table;

use std::path::PathBuf;

use crate::support::export::connect;
use crate::support::nodes::{Node, detail, in_memory, members};
use crate::support::{Lab, until};

use table::{MISTAKES, Mistake};

/// Makes what the table speaks of.
fn as_in_the_table(lab: &Lab) -> Vec<PathBuf> {
    let members = lab.members("m", 4, 8);
    let home = lab.members("h", 3, 8);
    let attic = lab.members("a", 2, 8);
    lab.ok("create home -l 1 -x 1 --assume-clean", &home);
    lab.ok("assemble home", &home);
    lab.ok("create attic -l 1 --assume-clean", &attic);
    let names: Vec<String> = attic.iter().map(|path| format!("{path:?}")).collect();
    let entry = format!("[array.attic]\nmembers = [{}]\n", names.join(", "));
    std::fs::write(lab.path("arrays.toml"), entry).unwrap();
    members
}

#[test]
fn a_mistake_is_told_with_the_way_out() {
    assert!(MISTAKES.len() > 100, "{} mistakes", MISTAKES.len());
    for mistake in MISTAKES {
        make(mistake);
    }
}

/// Types the line, and then the step that it leads to.
fn make((words, code, said, next, typed): &Mistake) {
    let lab = Lab::new();
    let members = as_in_the_table(&lab);
    let line = lab.refused(*code, words, &[], &members);
    assert!(line.contains(said), "braid {words}: {line}");
    let (_, step) = line.split_once("; ").expect("a next step");
    let Some(expected) = typed else {
        assert!(step.contains(next), "braid {words}: {line}");
        return;
    };
    assert!(step.trim_end().ends_with(next), "braid {words}: {line}");
    let command = &step[step.rfind("braid ").expect("a command") + "braid ".len()..];
    let output = lab.run(command.trim_end(), &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(*expected), "braid {words}: {line}{text}");
}

/// Checks that no word leads by its spelling alone to a command that changes an array.
#[test]
fn what_writes_is_not_guessed() {
    let lab = Lab::new();
    for command in [
        "add",
        "assemble",
        "create",
        "down",
        "export",
        "fail",
        "grow",
        "limit",
        "node",
        "re-add",
        "recover",
        "remove",
        "rename",
        "repair",
        "replace",
        "stop",
        "update",
        "upgrade",
        "volume",
        "zero-superblock",
    ] {
        for at in 0..command.len() {
            let mut typed = command.to_owned();
            typed.remove(at);
            if lab.run(&format!("{typed} --help"), &[]).status.success() {
                continue;
            }
            let line = lab.refused(2, &format!("{typed} x y"), &[], &[]);
            assert!(line.ends_with("; see braid --help\n"), "{typed}: {line}");
        }
    }
    for words in ["stop x --forc", "assemble x --ru", "create x --assume-clen", "node delet a:1 x"]
    {
        let line = lab.refused(2, words, &[], &[]);
        assert!(!line.contains("did you mean"), "{line}");
    }
}

/// Checks that `status` names the arrays of the file that do not run, and completions know them.
#[test]
fn what_does_not_run_is_shown_with_its_log() {
    let lab = Lab::new();
    as_in_the_table(&lab);
    let text = lab.ok_text("list", &[]);
    assert!(text.starts_with("home: raid1"), "{text}");
    assert!(text.ends_with("\n\nattic: not running (BRAID-111); braid up attic\n"), "{text}");
    assert_eq!(lab.ok_text("completions --names", &[]), "attic\nhome\n");

    assert_eq!(lab.ok_text("up attic", &[]), "attic: started\n");
    assert!(!lab.ok_text("status", &[]).contains("not running"));
    assert_eq!(lab.ok_text("stop --all", &[]), "attic: stopped\nhome: stopped\n");
    let log = lab.path("run/attic.log").display().to_string();
    let text = lab.ok_text("status", &[]);
    let line = format!("attic: not running (BRAID-111); braid up attic; log: {log}");
    assert_eq!(text, format!("no arrays are running\n{line}\n"));
    let json: serde_json::Value = serde_json::from_slice(&lab.ok("status --json", &[])).unwrap();
    assert_eq!(json["not_running"], serde_json::json!([{ "name": "attic", "log": log }]));
    assert_eq!(lab.ok_text("stop --all", &[]), "no arrays are running\n");
}

/// Checks that a word that is no near miss of a level gets no hint.
#[test]
fn a_hint_is_given_only_where_one_thing_was_meant() {
    let lab = Lab::new();
    let line = lab.refused(2, "create x -l raidz -n 3 m0 m1 m2", &[], &[]);
    assert!(!line.contains("did you mean"), "{line}");
}

#[test]
fn a_node_is_named_as_a_member_is() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 1);
    let address = &nodes[0].address;
    for words in [format!("nodes node://{address}"), format!("node status node://{address}/")] {
        let text = lab.ok_text(&words, &[]);
        assert!(text.starts_with(&format!("{address}: version")), "{text}");
    }
}

/// Checks that a second `create` of an array does not advise to remove the array of the first.
#[test]
fn an_array_over_nodes_is_not_created_twice() {
    let lab = Lab::new();
    lab.ok("key new cluster.key", &[]);
    let start = |_| Node::start(&lab, "127.0.0.1:0", "--memory --ring 64M --key cluster.key");
    let nodes: Vec<Node> = (0..2).map(start).collect();
    let all = members(&nodes, "/x");
    let create = |name: &str| format!("create {name} -l 1 -n 2 --size 4M --key cluster.key{all}");
    let assemble = lab.ok_text(&create("x"), &[]);
    let line = lab.refused(1, &create("x"), &[], &[]);
    assert!(line.contains("a member of the array x ("), "{line}");
    assert!(line.contains(assemble.trim_end()) && !line.contains("delete"), "{line}");
    let line = lab.refused(1, &create("y"), &[], &[]);
    assert!(line.contains("name another volume") && !line.contains("assemble"), "{line}");
    // What was advised works, with the key.
    lab.ok(assemble.trim_end().strip_prefix("braid ").unwrap(), &[]);
    lab.ok("stop x", &[]);

    let delete = format!("volume delete --key cluster.key {} x", nodes[0].address);
    let line = lab.refused(1, &delete, &[], &[]);
    assert!(line.contains("a member of the array x (") && line.contains("--array NAME"), "{line}");
    let line = lab.refused(1, &format!("{delete} --array y"), &[], &[]);
    assert!(line.contains("not of y"), "{line}");
    lab.ok(&format!("{delete} --array x"), &[]);
    let delete = format!("volume delete --key cluster.key {} x", nodes[1].address);
    lab.ok(&format!("{delete} --force"), &[]);
}

/// A limit alone is compared with the one that is in force.
#[test]
fn limits_of_background_work_go_together() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    lab.ok("assemble x", &members);
    lab.ok("sync x --max 1M", &[]);
    let line = lab.refused(2, "sync x --min 2M", &[], &[]);
    assert!(line.contains("the maximum in force, 1M; raise that, too: --max 2M"), "{line}");
    lab.ok("sync x --min 3M --max none", &[]);
    let line = lab.refused(2, "sync x --max 2M", &[], &[]);
    assert!(line.contains("the minimum in force, 3M; lower that, too: --min 2M"), "{line}");
    assert_eq!(lab.ok_text("limit x", &[]), "x: min 3M, max none\n");
    assert_eq!(lab.ok_text("sync x", &[]), "x: min 3M, max none\n", "as it was called");
}

#[test]
fn a_member_is_replaced_by_the_spare_that_is_named() {
    let lab = Lab::new();
    let members = lab.members("m", 6, 8);
    lab.ok("create x -l 1 -n 2 -x 2 --assume-clean", &members[..4]);
    lab.ok("assemble x", &members[..4]);
    let line = lab.refused(1, "replace x m0 --with m1", &[], &[]);
    assert!(line.contains("m1 is no spare of x; see which are: braid detail x"), "{line}");
    let line = lab.refused(1, "replace x m0 --with m5", &[], &[]);
    assert!(line.contains("m5 is no spare of x; add it first: braid add x "), "{line}");
    lab.ok("replace x m0 --with m3", &[]);
    lab.ok("status x --watch", &[]);
    let state = |index: usize| {
        let seen = detail(&lab, "x")["members"].clone();
        let device = members[index].display().to_string();
        let all = seen.as_array().expect("members").clone();
        let member = all.into_iter().find(|member| member["device"] == *device);
        member.expect("a member")["state"][0].clone()
    };
    until("a replaced member", || state(0) == "faulty");
    assert_eq!(
        (state(3), state(2), state(1)),
        ("in-sync".into(), "spare".into(), "in-sync".into())
    );
}

/// Checks that `assemble --explain` reports by its exit status whether an array can start.
#[test]
fn what_cannot_start_shows_in_the_exit_status_of_explain() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 8);
    lab.ok("create x -l 6 -n 4 --assume-clean missing", &members);
    assert_eq!(lab.run("assemble --explain", &members[..1]).status.code(), Some(1));
    let text = lab.ok_text("assemble --explain --run", &members);
    assert!(text.contains("degraded, 1 role without"), "{text}");
    lab.ok("assemble --run x", &members);
    assert_eq!(lab.run("assemble --explain", &members).status.code(), Some(0), "it runs");
}

/// An array that nothing can use says so, and how it is exported.
#[test]
fn an_array_without_an_export_says_so() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    let output = lab.run("assemble x", &members);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("no --export"), "{said}");
    assert!(said.contains("nbd:unix:PATH"), "{said}");
    lab.ok("stop x", &[]);
    let output = lab.run("assemble x --export nbd:unix:x.sock", &members);
    assert!(output.status.success() && output.stderr.is_empty());
}

/// Sizes and levels as people write them.
#[test]
fn sizes_and_levels_are_taken_as_people_write_them() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 16);
    for (level, count, name) in [
        ("RAID5", 3, "raid5"),
        ("raid-6", 4, "raid6"),
        ("1+0", 4, "raid10"),
        ("Mirror", 2, "raid1"),
    ] {
        let words = format!("create x -l {level} -n {count} --size 4096KB --dry-run");
        let text = lab.ok_text(&words, &members[..count]);
        assert!(text.starts_with(&format!("x: {name}")), "{text}");
    }
    let text = lab.ok_text("create x -l 1 -n 2 --size 4.5MB --dry-run", &members[..2]);
    assert!(text.contains("(4497408 bytes)"), "{text}");
    let line = lab.refused(2, "create x -l 1 -n 2 --size 4Mb", &members[..2], &members);
    assert!(line.contains("not a size"), "{line}");
}

/// The last redundancy is not given up unsaid, and the array not without force.
#[test]
fn what_a_failure_costs_is_said() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    lab.ok("assemble x", &members);
    let output = lab.run("fail x m0", &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("no redundancy is left"), "{said}");
    assert!(said.contains("m1 as well"), "{said}");
    let line = lab.refused(1, "fail x m1", &[], &members[1..]);
    assert!(line.contains("the array would fail without") && line.contains("--force"), "{line}");
    lab.ok("fail x m1 --force", &[]);
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(2));
    lab.ok("stop x", &[]);
    // Its superblocks still tell the last state in which it could run.
    lab.ok("assemble x m1 --run", &[]);
}

#[test]
fn all_that_failed_are_removed() {
    let lab = Lab::new();
    let members = lab.members("m", 5, 8);
    lab.ok("create x -l 1 -n 4 -x 1 --assume-clean", &members);
    lab.ok("assemble x", &members);
    lab.ok("sync x --pause", &[]);
    assert!(lab.ok("remove x failed", &[]).is_empty());
    lab.ok("fail x m4", &[]);
    lab.ok("fail x m0", &[]);
    lab.ok("fail x m1", &[]);
    // One of the three is gone.
    std::fs::remove_file(&members[1]).unwrap();
    let text = lab.ok_text("remove x detached", &[]);
    assert!(text.lines().count() == 1 && text.contains("m1"), "{text}");
    let text = lab.ok_text("remove x failed", &[]);
    assert!(text.contains("m0\n") && text.contains("m4\n") && text.lines().count() == 2, "{text}");
    assert_eq!(detail(&lab, "x")["members"].as_array().unwrap().len(), 4, "two are missing");
}

#[test]
fn all_arrays_are_stopped() {
    let lab = Lab::new();
    lab.ok("stop --all", &[]);
    let members = lab.members("m", 4, 8);
    for (name, pair) in [("a", &members[..2]), ("b", &members[2..])] {
        lab.ok(&format!("create {name} -l 1 -n 2 --assume-clean"), pair);
        lab.ok(&format!("assemble {name} --export nbd:unix:{name}.sock"), pair);
    }
    // One is in use: the other goes.
    let stream = connect(&lab.path("a.sock"), "a", size_bytes(&lab, "a"));
    let output = lab.run("stop --all", &[]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b"b: stopped\n"[..]));
    assert!(line.starts_with("braid: stop a: ") && line.lines().count() == 1, "{line}");
    assert_eq!(lab.run("status b", &[]).status.code(), Some(1));
    drop(stream);
    lab.ok("stop --all", &[]);
    assert_eq!(lab.ok_text("status", &[]), "no arrays are running\n");
    lab.refused(2, "stop a --all", &[], &[]);
    lab.refused(2, "stop", &[], &[]);
}

fn size_bytes(lab: &Lab, name: &str) -> usize {
    detail(lab, name)["size_bytes"].as_u64().expect("a size") as usize
}
