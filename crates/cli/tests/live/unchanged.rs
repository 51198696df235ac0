//! Commands that only read change no byte of any member, whatever is on it: stopped arrays, unclean
//! arrays, arrays with logs to be replayed, members without superblocks, and parts of disks.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::export::{ask, connect, noise};
use crate::support::filled::filled;
use crate::support::{Lab, fingerprint, until};

/// Commands on members, and on the array `x` that is assembled from them read-only.
const OF_MEMBERS: &[&str] = &[
    "assemble --explain",
    "examine",
    "examine --json",
    "examine --log",
    "cat",
    "cat --force --length 64K",
    "cat --list",
    "cat --list --json",
    "cat --part p1",
    "recover",
    "recover --json",
    "assemble --readonly x",
    "assemble --readonly --force --run x",
    "assemble --readonly --geometry level=5,chunk=64K,offset=1M x",
];
const OF_THE_ARRAY: &[&str] = &[
    "status x",
    "detail x",
    "cat x",
    "cat --list x",
    "check x --wait",
    "layout x",
    "upgrade x",
    "sync x --pause",
    "stop x",
];

/// Asks all of it, and compares after each command.
fn ask_all(lab: &Lab, what: &str, members: &[PathBuf]) {
    let prints = || members.iter().map(|member| fingerprint(member)).collect::<Vec<_>>();
    let before = prints();
    let mut served = 0;
    for words in OF_MEMBERS {
        let done = lab.run(words, members);
        assert!(before == prints(), "{what}: braid {words} changed a member");
        if !(done.status.success() && words.starts_with("assemble --readonly")) {
            continue;
        }
        served += 1;
        for words in OF_THE_ARRAY {
            lab.run(words, &[]);
            assert!(before == prints(), "{what}: braid {words} changed a member");
        }
    }
    assert!(served > 0, "{what}: no command served it");
}

/// Makes an array whose process is killed in the middle of writes; with a journal if one is named.
fn cut(lab: &Lab, shape: &str, count: usize, journal: &[PathBuf]) -> Vec<PathBuf> {
    let members = lab.members("m", count, 16);
    lab.ok(&format!("create x {shape} --raid-devices {count} --assume-clean"), &members);
    let all = [&members, journal].concat();
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &all);
    let status: Value = serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap();
    let mut export = connect(&socket, "x", status["size_bytes"].as_u64().unwrap() as usize);
    let news = noise(20 << 10);
    (0..40).for_each(|n| ask(&mut export, 1, n * (72 << 10), &news).unwrap());
    let pid = Pid::from_raw(status["pid"].as_i64().unwrap() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    until("its end", || !lab.run("status x", &[]).status.success());
    all
}

#[test]
fn reading_changes_nothing_of_what_was_stopped_or_was_not() {
    for (shape, count) in [
        ("-l 5 --chunk 64K --bitmap internal", 3),
        ("-l 5 --chunk 64K --consistency-policy ppl", 3),
        ("-l 6 --chunk 16K --bitmap none", 4),
        ("-l 10 --chunk 16K", 4),
        ("-l 1", 2),
    ] {
        let lab = Lab::new();
        let (members, _) = filled(&lab, shape, count);
        ask_all(&lab, shape, &members);
        ask_all(&lab, &format!("{shape}, degraded"), &members[1..]);
        let lab = Lab::new();
        let members = cut(&lab, shape, count, &[]);
        ask_all(&lab, &format!("{shape}, cut"), &members);
    }
}

#[test]
fn reading_changes_nothing_of_journals_stale_members_and_lost_superblocks() {
    let lab = Lab::new();
    let journal = lab.members("journal", 1, 8);
    let shape = format!("-l 5 --chunk 64K --write-journal {}", journal[0].display());
    let members = cut(&lab, &shape, 3, &journal);
    ask_all(&lab, "a journal", &members);

    let lab = Lab::new();
    let (members, content) = filled(&lab, "-l 5 --chunk 64K", 3);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    lab.ok("fail x", &members[..1]);
    let mut export = connect(&socket, "x", content.len());
    ask(&mut export, 1, 0, &[3; 8192]).unwrap();
    drop(export);
    lab.ok("stop x", &[]);
    ask_all(&lab, "a stale member", &members);
    for member in &members {
        let file = OpenOptions::new().write(true).open(member).unwrap();
        file.write_all_at(&[0; 8192], 0).unwrap();
    }
    ask_all(&lab, "no superblocks", &members);
}
