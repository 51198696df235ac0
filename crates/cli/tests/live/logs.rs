//! Arrays on disks with a log against the write hole: messages about it, and adding one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::export::{ask, connect, fill, noise};
use crate::support::nodes::{detail, kill_while_writing, server};
use crate::support::{Lab, fingerprint};

const CREATE: &str = "create x --level 5 --raid-devices 3 --chunk 64K --assume-clean --size 8M";

fn words(members: &[PathBuf]) -> String {
    members.iter().map(|member| format!(" {}", member.display())).collect()
}

fn json_of(lab: &Lab, command: &str, members: &[PathBuf]) -> Value {
    serde_json::from_slice(&lab.ok(command, members)).expect("JSON")
}

/// Kills the process of an array in the middle of writes. Returns the content.
fn killed(lab: &Lab, options: &str, devices: &[PathBuf]) -> Vec<u8> {
    lab.ok(&format!("{CREATE} {options}"), &devices[..3]);
    let mut server = server(lab, &words(devices));
    let content = noise(16 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    kill_while_writing(lab, &mut server, &content);
    content
}

/// Starts it again: all is as it was.
fn comes_right(lab: &Lab, devices: &[PathBuf], content: &[u8]) {
    lab.ok("assemble x", devices);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(lab, "x")["mismatches"], 0);
    lab.ok("stop x", &[]);
}

fn change_byte(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

#[test]
fn partial_parity_logs_are_listed_and_explained_and_replayed() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    let content = killed(&lab, "--consistency-policy ppl", &members);
    let examined = json_of(&lab, "examine --json", &members);
    assert_eq!(examined[0]["consistency_policy"], "ppl");
    assert_eq!(examined[0]["ppl"]["size_sectors"], 2048);

    let logs = json_of(&lab, "examine --log --json", &members);
    assert_eq!(logs.as_array().unwrap().len(), 3);
    // The first block of the array is on the first member, its parity on the last.
    let units = logs[2]["units"].as_array().unwrap();
    let counts: Vec<&Value> = units.iter().filter(|unit| unit["standing"] == "counts").collect();
    let [last] = counts[..] else { panic!("{units:?}") };
    let entry = &last["entries"][0];
    let expected = json!({
        "array_sector": 0,
        "data_bytes": 4096,
        "partial_parity_bytes": 4096,
        "parity_role": 2,
        "checksum_ok": true,
        "rows": { "member_sector": 0, "sectors": 8, "data_roles": [0] },
        "impossible": null,
    });
    assert_eq!(entry, &expected);
    let replaced = units.iter().take_while(|unit| unit["standing"] == "replaced");
    let generations: Vec<u64> =
        replaced.chain([last]).map(|unit| unit["generation"].as_u64().unwrap()).collect();
    assert!(generations.windows(2).all(|pair| pair[0] < pair[1]), "{generations:?}");
    assert!(logs[2]["end"]["reason"].is_string(), "{}", logs[2]["end"]);

    // A bit of the partial parity that counts.
    let broken = lab.path("broken");
    std::fs::copy(&members[2], &broken).unwrap();
    let start = logs[2]["start_sector"].as_u64().unwrap();
    let unit = start + last["sector"].as_u64().unwrap();
    change_byte(&broken, unit * 512 + 4096);
    let text = lab.ok_text("examine --log", std::slice::from_ref(&broken));
    assert!(text.contains("checksum WRONG") && text.contains(", counts\n"), "{text}");

    let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    let explained = json_of(&lab, "assemble --explain --json", &members);
    let replay = &explained["arrays"][0]["replay"];
    assert_eq!(replay["kind"], "ppl");
    assert!(replay["devices"].to_string().contains("m2"), "{replay}");
    let text = lab.ok_text("assemble --explain", &members);
    assert!(text.contains("before it serves: "), "{text}");
    assert!(text.contains("; nothing is written by --explain\n"), "{text}");
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after);
    comes_right(&lab, &members, &content);
    let explained = json_of(&lab, "assemble --explain --json", &members);
    assert_eq!(explained["arrays"][0]["replay"], Value::Null);
}

#[test]
fn a_journal_is_shown_listed_explained_and_replayed() {
    let lab = Lab::new();
    let devices = lab.members("m", 4, 16);
    let journal = devices[3].clone();
    let content = killed(&lab, &format!("--write-journal {}", journal.display()), &devices);

    let log = json_of(&lab, "examine --log --json", std::slice::from_ref(&journal));
    let blocks = log[0]["blocks"].as_array().unwrap();
    let counting = blocks.iter().filter(|block| block["counts"] == true).count();
    assert!(counting > 0, "{log}");
    assert_eq!(blocks[0]["sector"], log[0]["tail_sector"]);
    let sequence = |block: &Value| block["sequence"].as_u64().unwrap();
    assert!(blocks.windows(2).all(|pair| sequence(&pair[0]) + 1 == sequence(&pair[1])), "{log}");
    let payloads = || blocks.iter().flat_map(|block| block["payloads"].as_array().unwrap());
    let expected = json!({
        "kind": "data", "array_sector": 0, "sectors": 8, "pages_ok": true, "damaged_pages": [],
    });
    assert!(payloads().any(|payload| *payload == expected), "{log}");
    assert!(payloads().any(|payload| payload["kind"] == "parity"), "{log}");

    let explained = json_of(&lab, "assemble --explain --json", &devices);
    let replay = &explained["arrays"][0]["replay"];
    assert_eq!((&replay["kind"], &replay["blocks"]), (&json!("journal"), &json!(counting)));

    // Without it, or with one that is damaged or of another time, there is a reason and a way on.
    let explain = |devices: &[PathBuf]| lab.told("assemble --explain", devices);
    let text = explain(&devices);
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
    let text = explain(&devices[..3]);
    assert!(text.contains("cannot start: the journal of the array is not there"), "{text}");
    assert!(text.contains("next: bring the journal back"), "{text}");
    let broken = lab.path("broken");
    std::fs::copy(&journal, &broken).unwrap();
    let start = log[0]["start_sector"].as_u64().unwrap();
    let tail = start + log[0]["tail_sector"].as_u64().unwrap();
    change_byte(&broken, tail * 512 + 100);
    let with_broken = [&devices[..3], std::slice::from_ref(&broken)].concat();
    let text = explain(&with_broken);
    assert!(text.contains("its checksum is wrong") && text.contains("next: "), "{text}");
    let text = lab.ok_text("examine --log", std::slice::from_ref(&broken));
    assert!(text.ends_with(": its checksum is wrong\n"), "{text}");
    change_byte(&broken, tail * 512 + 100);
    // The first page behind the first block that has any.
    let with_pages = blocks.iter().find(|block| block["payloads"] != json!([])).unwrap();
    let page = start + with_pages["sector"].as_u64().unwrap() + 8;
    change_byte(&broken, page * 512);
    let text = lab.ok_text("examine --log", std::slice::from_ref(&broken));
    assert!(text.contains(", does not count\n") && text.contains("DAMAGED pages 0"), "{text}");
    assert!(text.ends_with(": it has a page that is damaged\n"), "{text}");

    let old = lab.path("old");
    std::fs::copy(&journal, &old).unwrap();
    comes_right(&lab, &devices, &content);
    let text = explain(&[&devices[..3], &[old]].concat());
    assert!(text.contains("cannot start: the journal ") && text.contains("next: "), "{text}");
}

#[test]
fn a_running_array_tells_of_its_journal() {
    let lab = Lab::new();
    let devices = lab.members("m", 4, 16);
    lab.ok(&format!("{CREATE} --write-journal {}", devices[3].display()), &devices[..3]);
    lab.ok("assemble x --export nbd:unix:x.sock", &devices);
    let mut export = connect(&lab.path("x.sock"), "x", 16 << 20);
    ask(&mut export, 1, 0, &noise(4096)).unwrap();
    for command in ["status x --json", "detail x --json"] {
        let status = json_of(&lab, command, &[]);
        assert_eq!(status["policy"], "journal", "{command}");
        assert_eq!(status["consistency_policy"], "journal", "{command}");
        let journal = &status["journal"];
        assert!(journal["device"].as_str().unwrap().ends_with("m3"), "{journal}");
        assert_eq!(journal["mode"], "write-through");
        let used = journal["used_bytes"].as_u64().unwrap();
        let size = journal["size_bytes"].as_u64().unwrap();
        assert!(used >= 4096 && used < size && size.is_multiple_of(4096), "{journal}");
    }
    let text = lab.ok_text("detail x", &[]);
    assert!(text.contains("Consistency Policy : journal\n"), "{text}");
    assert!(text.contains("        -      journal   "), "{text}");
    assert!(lab.ok_text("status x --mdstat", &[]).contains(" m3[3](J) "));
    let text = lab.ok_text("status x", &[]);
    assert!(text.contains("policy journal: ") && text.contains("write-through\n"), "{text}");
    drop(export);
    lab.ok("stop x", &[]);
    lab.ok("assemble x --readonly", &devices);
    let status = json_of(&lab, "status x --json", &[]);
    assert_eq!(status["journal"]["used_bytes"], Value::Null);
    lab.ok("stop x", &[]);
}

#[test]
fn a_member_without_a_log_is_refused() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok(CREATE, &members);
    let line = lab.refused(1, "examine --log", &members[..1], &members);
    assert!(line.contains("keeps no log"), "{line}");
    assert!(lab.refused(2, "examine --log node://h:1/v", &[], &[]).contains("files and devices"));
}

#[test]
fn a_stopped_array_is_given_another_policy() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok(CREATE, &members);
    let mut content = noise(16 << 20);
    let mut policy = "resync";
    for (round, next) in ["ppl", "resync", "bitmap", "resync", "ppl"].into_iter().enumerate() {
        let update = format!("update x --consistency-policy {next}");
        let started = lab.ok_text(&update, &members);
        assert!(started.starts_with("braid assemble x /"), "{started}");
        assert_eq!(lab.ok_text(&update, &members), format!("x: has policy {next} already\n"));
        policy = next;
        let examined = json_of(&lab, "examine --json", &members);
        let all = examined.as_array().unwrap();
        assert!(all.iter().all(|member| member["policy"] == policy), "{examined}");
        lab.ok("assemble x --export nbd:unix:x.sock", &members);
        assert_eq!(detail(&lab, "x")["policy"], policy);
        if round > 0 {
            assert!(lab.ok("cat x", &[]) == content, "{policy}");
        }
        content[0] ^= 1;
        fill(&lab.path("x.sock"), "x", &content);
        assert!(lab.refused(1, &update, &members, &[]).contains("in use by"));
        lab.ok("stop x", &[]);
    }
    assert_eq!(policy, "ppl");
    // What it was given closes the hole.
    let mut server = server(&lab, &words(&members));
    kill_while_writing(&lab, &mut server, &content);
    comes_right(&lab, &members, &content);
}

#[test]
fn what_no_stopped_array_can_have_is_refused_before_anything_is_written() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok(&format!("{CREATE} --bitmap internal"), &members);
    let refused = |words: &str, paths: &[PathBuf]| lab.refused(1, words, paths, &members);
    let line = refused("update x --consistency-policy ppl", &members);
    assert!(line.contains("a bitmap") && line.contains("take that away first"), "{line}");
    let line = refused("update y --consistency-policy resync", &members);
    assert!(line.contains("the members are those of array"), "{line}");
    let line = refused("update x --consistency-policy resync", &members[..2]);
    assert!(line.contains("1 of its members are not named"), "{line}");
    let line = refused("update x --consistency-policy journal", &members);
    assert!(line.contains("a bitmap"), "{line}");
    lab.ok("update x --consistency-policy resync", &members);
    let line = refused("update x --consistency-policy journal", &members);
    assert!(line.contains("--write-journal DEVICE"), "{line}");
    let mixed = "update x --consistency-policy resync node://h:1/v";
    let line = lab.refused(2, mixed, &members, &members);
    assert!(line.contains("all of its members on nodes or none"), "{line}");
    let odd = "update x --consistency-policy ppl --write-journal j0";
    assert!(lab.refused(2, odd, &members, &members).contains("contradict"));
}

#[test]
fn a_stopped_array_is_given_a_journal_and_rid_of_it() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 16);
    let journal = lab.members("j", 1, 16);
    lab.ok("create x -l 6 -n 4 --assume-clean", &members);
    let mut content = noise(28 << 20);
    let given =
        format!("update x --consistency-policy journal --write-journal {}", words(&journal));
    let all: Vec<PathBuf> = members.iter().chain(&journal).cloned().collect();
    for round in 0..2 {
        let started = lab.ok_text(&given, &members);
        assert!(started.trim_end().ends_with("j0"), "{started}");
        let mut server = server(&lab, &words(&all));
        assert_eq!(detail(&lab, "x")["policy"], "journal");
        content[round] ^= 1;
        fill(&lab.path("x.sock"), "x", &content);
        kill_while_writing(&lab, &mut server, &content);
        // What it holds is nowhere else.
        let line = lab.refused(1, "update x --consistency-policy resync", &all, &all);
        assert!(line.contains("not in its place yet"), "{line}");
        lab.ok("assemble x", &all);
        assert!(lab.ok("cat x", &[]) == content);
        lab.ok("stop x", &[]);
        let line = lab.refused(1, "update x --consistency-policy resync", &members, &members);
        assert!(line.contains("journal"), "{line}");
        let started = lab.ok_text("update x --consistency-policy resync", &all);
        assert!(!started.contains("j0"), "{started}");
        lab.ok("assemble x", &members);
        assert_eq!(detail(&lab, "x")["policy"], "resync");
        lab.ok("check x --wait", &[]);
        assert_eq!(detail(&lab, "x")["mismatches"], 0);
        assert!(lab.ok("cat x", &[]) == content);
        lab.ok("stop x", &[]);
    }
    lab.ok(&format!("{CREATE} --force"), &members[..3]);
    let line = lab.refused(1, &given.replace("j0", "m3"), &members[..3], &members);
    assert!(line.contains("holds"), "{line}");
}
