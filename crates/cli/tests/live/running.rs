//! The life of a running array, as its user sees it.

use std::path::PathBuf;

use crate::support::nodes::server;
use crate::support::{Lab, fingerprint, skip};
use serde_json::Value;

fn status(lab: &Lab, name: &str) -> Value {
    serde_json::from_slice(&lab.ok(&format!("status {name} --json"), &[])).unwrap()
}

#[test]
fn an_array_lives_loses_a_member_and_gets_another() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 16);
    let start = lab.ok_text("create home --level 5 --raid-devices 3 --chunk 64K", &members[..3]);
    assert!(start.starts_with("braid assemble home "), "{start}");
    lab.ok(start.trim_start_matches("braid ").trim_end(), &[]);
    lab.ok("status home --watch", &[]);
    assert_eq!(status(&lab, "home")["state"], serde_json::json!(["clean"]));
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(0));
    lab.refused(1, "assemble", &members[..3], &[]);
    let content = lab.ok("cat home", &[]);

    lab.ok("fail home", &members[1..2]);
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(1));
    let detail = lab.ok_text("detail home", &[]);
    assert!(detail.contains("clean, degraded") || detail.contains("active, degraded"), "{detail}");
    lab.ok("remove home", &members[1..2]);
    lab.ok("sync home --pause", &[]);
    let added = lab.ok_text("add home", &members[3..]);
    let said = format!("home: added {}: ", members[3].display());
    assert!(added == format!("{said}spare\n") || added == format!("{said}rebuilding\n"), "{added}");
    assert!(lab.ok_text("status home", &[]).contains("    0  in-sync     "));
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(1), "not rebuilt yet");
    lab.ok("sync home --resume", &[]);
    lab.ok("status home --watch", &[]);
    let checked = lab.ok_text("check home --wait", &[]);
    assert_eq!(checked, "home: check complete, no mismatches\n");
    assert!(lab.ok_text("status --mdstat", &[]).contains("[3/3] [UUU]"));
    assert!(lab.ok_text("detail --scan", &[]).starts_with("ARRAY /dev/md/home metadata=1.2 "));

    lab.ok("stop home", &[]);
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(4));
    let kept = [members[0].clone(), members[2].clone(), members[3].clone()];
    assert!(lab.ok("cat", &kept) == content);
    let explained = lab.ok_text("assemble --explain", &members);
    assert!(explained.contains("out") && explained.contains("stale"), "{explained}");
}

#[test]
fn a_check_is_stopped_and_a_recovery_is_not() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members[..2]);
    lab.ok("assemble home", &members[..2]);
    let said = lab.ok_text("check home --stop", &[]);
    assert_eq!(said, "home: neither check nor repair was running\n");
    lab.ok("limit home --max 1", &[]);
    lab.ok("check home", &[]);
    assert_eq!(lab.ok_text("scrub home --stop", &[]), "home: check stopped\n");
    for scrub in ["check", "repair"] {
        let follow = "to follow it: braid status home --watch";
        let said = lab.ok_text(&format!("{scrub} home"), &[]);
        assert_eq!(said, format!("home: {scrub} started; {follow}\n"));
        assert_eq!(status(&lab, "home")["sync"]["action"], scrub);
        let text = lab.ok("check home --stop --json", &[]);
        let stopped: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(stopped["sync"]["action"], "idle");
        assert_eq!(stopped["mismatches"], Value::Null, "it did not look at everything");
    }
    lab.ok("fail home", &members[..1]);
    lab.ok("add home", &members[2..]);
    let line = lab.refused(1, "check home --stop", &[], &[]);
    assert!(line.contains("recovery is running"), "{line}");
    assert_eq!(status(&lab, "home")["sync"]["action"], "recovery");
    lab.refused(2, "check home --stop --wait", &[], &[]);
}

#[test]
fn a_degraded_array_within_an_array_shows() {
    let lab = Lab::new();
    let members = lab.nested("0 --chunk 64K");
    lab.ok("assemble top", &members);
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(0));
    lab.ok("fail top", &members[..1]);
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(1));
    assert_eq!(status(&lab, "top")["children"][0]["members"][0]["state"][0], "missing");
    assert_eq!(status(&lab, "top")["state"][1], "degraded");
    assert!(lab.ok_text("status top", &[]).contains("left: raid1"));
    assert!(lab.ok_text("detail top", &[]).contains("faulty"));
    let checked = lab.ok_text("check top --wait", &[]);
    assert!(checked.contains("sectors have nothing left to be compared with"), "{checked}");
    assert!(status(&lab, "top")["uncompared_bytes"].as_u64() > Some(0));
    lab.ok("fail top", &members[2..3]);
    let refused = lab.refused(1, "check top --wait", &[], &[]);
    assert!(refused.contains("nothing to compare with"), "{refused}");
}

/// Checks that after a forced failure the data in doubt cannot be read before the resync has ended.
#[test]
fn a_member_is_not_failed_within_a_resync_without_force() {
    let lab = Lab::new();
    // So large that a busy machine pauses the resync before its end.
    let members = lab.members("m", 4, 1280);
    lab.ok("create home --level 6 --raid-devices 4 --bitmap none", &members);
    lab.ok("assemble home", &members);
    lab.ok("sync home --pause", &[]);
    assert_eq!(status(&lab, "home")["sync"]["action"], "resync");
    let refused = lab.refused(1, "fail home", &members[..1], &[]);
    assert!(refused.starts_with("braid: fail home "), "{refused}");
    assert!(refused.contains("a resync has yet to make parity fit"), "{refused}");
    assert!(refused.contains("m0") && refused.contains("--force"), "{refused}");
    lab.ok("fail home --force", &members[..1]);
    let read = |lab: &Lab| lab.run("cat home --offset 2540M --length 4M", &[]).status.success();
    assert!(!read(&lab), "it was made up");
    lab.ok("sync home --resume", &[]);
    crate::support::until("resynced", || status(&lab, "home")["sync"]["action"] == "idle");
    assert!(read(&lab));
    lab.ok("stop home", &[]);
    lab.ok("assemble home", &members[1..]);
    assert!(read(&lab));
}

#[test]
fn looking_changes_nothing() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 8);
    lab.ok("create x --level 6 --raid-devices 4 --chunk 64K missing", &members);
    let before: Vec<u64> = members.iter().map(|path| fingerprint(path)).collect();
    for words in ["assemble --explain", "examine", "examine --json", "examine --scan", "cat"] {
        lab.ok(words, &members);
    }
    lab.ok("assemble x --readonly", &members);
    assert_eq!(status(&lab, "x")["state"][0], "read-only");
    lab.ok("cat x", &[]);
    lab.ok("stop x", &[]);
    let after: Vec<u64> = members.iter().map(|path| fingerprint(path)).collect();
    assert_eq!(before, after);
}

/// Returns the output of a program; `None` where it is not installed.
fn printed(program: &str, words: &[&str], path: &PathBuf) -> Option<String> {
    let output = std::process::Command::new(program).args(words).arg(path).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn mdadm_says_the_same_of_our_members() {
    let mdadm = ["mdadm", "/sbin/mdadm"]
        .into_iter()
        .find(|program| std::process::Command::new(program).arg("--version").output().is_ok());
    let Some(mdadm) = mdadm else {
        return skip("mdadm_says_the_same_of_our_members", "mdadm is not installed");
    };
    let shapes = [
        "--level 5 --raid-devices 4 --bitmap internal",
        "--level 6 --raid-devices 4 --chunk 64K --size 4M",
        "--level 1 --raid-devices 3 --spare-devices 1",
        "--level 10 --raid-devices 4 --layout f2",
        "--level 0 --raid-devices 4 --chunk 20K",
        "--level linear --raid-devices 4",
    ];
    for shape in shapes {
        let lab = Lab::new();
        let members = lab.members("m", 4, 16);
        lab.ok(&format!("create x {shape}"), &members);
        for member in &members {
            for words in [&["--examine"][..], &["--examine", "--export"]] {
                let theirs = printed(mdadm, words, member).unwrap();
                let ours = words.join(" ").replace("--examine", "examine");
                let ours = lab.ok_text(&ours, std::slice::from_ref(member));
                assert_eq!(ours, theirs, "{shape}");
            }
        }
    }
}

#[test]
fn status_names_the_process_that_serves() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create x --level 1 --raid-devices 2 --assume-clean", &members);
    let words: String = members.iter().map(|member| format!(" {}", member.display())).collect();
    let mut serving = server(&lab, &words);
    for command in ["status x --json", "detail x --json"] {
        let shown: Value = serde_json::from_slice(&lab.ok(command, &[])).unwrap();
        assert_eq!(shown["pid"], serving.id(), "{command}");
    }
    lab.ok("stop x", &[]);
    assert!(serving.wait().expect("an end").success());
}

#[test]
fn a_process_in_the_background_has_the_name_of_the_program() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create x --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble x", &members);
    let shown: Value = serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap();
    let name = std::fs::read_to_string(format!("/proc/{}/comm", shown["pid"])).unwrap();
    assert_eq!(name, "braid\n");
}
