//! SIGKILL in the middle of writes. Whatever was acknowledged is there, for Braid and for a real md
//! kernel alike, and a resync leaves no mismatch.

use crate::braid_to_md::{available, create, members};
use crate::handoff::{Left, to_md_and_back};
use crate::served::Served;
use crate::support::{self, Run, skip, until, wait};
use braid_judges::{ANYTHING, Content};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const MEMBER_BYTES: u64 = 12 << 20;
const WRITERS: u64 = 3;
const NEW_SEED: u64 = 9;
/// Kill when each writer has had this many answers.
const ACKNOWLEDGED: usize = 50;

/// A libnbd client that writes at random within its region, one request at a time, and notes each
/// before it starts (S) and after it was acknowledged (A).
const WRITER: &str = "
import random
base, length, seed, data_path, log_path = {arguments}
random.seed(seed)
data = open(data_path, 'rb').read()
log = open(log_path, 'w', buffering=1)
while True:
    size = random.choice([512, 4096, 4096, 16384, 65536, 200704])
    at = random.randrange(0, length - size, 512)
    log.write(f'S {base + at} {size}\\n')
    h.pwrite(data[at:at + size], base + at)
    log.write(f'A {base + at} {size}\\n')
";

#[test]
fn acknowledged_writes_survive_a_kill() {
    let test = "acknowledged_writes_survive_a_kill";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let shapes: &[(&str, &str, usize, &str)] = &[
        ("1", "", 2, "none"),
        ("1", "", 3, "internal"),
        ("4", "", 3, "internal"),
        ("5", "left-symmetric", 3, "none"),
        ("5", "left-asymmetric", 4, "internal"),
        ("5", "left-symmetric", 4, "ppl"),
        ("5", "right-asymmetric", 3, "journal"),
        ("6", "left-symmetric", 5, "none"),
        ("6", "ddf-N-continue", 5, "internal"),
        ("6", "left-symmetric", 4, "journal"),
        ("5", "left-symmetric", 4, "back"),
        ("6", "right-symmetric", 5, "back"),
        ("10", "n2", 4, "none"),
        ("10", "f2", 3, "internal"),
        ("10", "o2", 3, "none"),
    ];
    let mut left = Vec::new();
    let mut findings = Vec::new();
    for (number, (level, layout, devices, policy)) in support::drawn(shapes.iter().enumerate()) {
        let name = format!("kill-{level}-{layout}-{policy}");
        let mut arguments = match *policy {
            "ppl" => vec!["--consistency-policy", "ppl"],
            "journal" | "back" => Vec::new(),
            bitmap => vec!["--bitmap", bitmap],
        };
        if !layout.is_empty() {
            arguments.extend(["--layout", layout]);
        }
        if *level != "1" {
            arguments.extend(["--chunk", "64K"]);
        }
        let killed = support::attempt(|| {
            let journals = usize::from(["journal", "back"].contains(policy));
            let members = members(&name, *devices + journals, MEMBER_BYTES);
            let (roles, journal) = members.split_at(*devices);
            let journal = journal.first().and_then(|journal| journal.to_str());
            let all = journal.into_iter().flat_map(|journal| ["--write-journal", journal]);
            let all: Vec<&str> = arguments.iter().copied().chain(all).collect();
            create(&name, level, roles, &all);
            kill_while_writing(&name, members, *policy == "back", number as u64)
        });
        match killed.and_then(|array| Ok((support::attempt(|| recover(&array))?, array))) {
            Ok((recovered, array)) => left.extend([array, recovered]),
            Err(finding) => findings.push(format!("{name}: {finding}")),
        }
    }
    if let Err(finding) = support::attempt(|| to_md_and_back(test, left)) {
        findings.push(finding);
    }
    support::report(&findings);
}

fn kill_while_writing(name: &str, members: Vec<PathBuf>, back: bool, number: u64) -> Left {
    let served = Served::in_foreground(name, &members, &[]);
    if back {
        let mut mode = served.braid("sync");
        Run::of(mode.args(["--journal-mode", "write-back"])).expect_success("writing back");
    }
    // A new RAID 5 is built by rebuilding its last member. Until that is done there is no
    // redundancy, and md refuses the array after a crash as Braid does.
    until("a member that is rebuilt", || !served.is("degraded"));
    let size_bytes = served.size_bytes();
    let mut content = Content::of(2000 + number);
    served.fill(&content);
    let directory = members[0].parent().expect("a directory").to_path_buf();
    let region = size_bytes / WRITERS / 4096 * 4096;
    let mut writers: Vec<(Child, PathBuf)> = (0..WRITERS)
        .map(|writer| start_writer(&served, &directory, writer, region, number))
        .collect();
    until("acknowledged writes", || {
        let notes = |log: &PathBuf| fs::read_to_string(log).unwrap_or_default();
        writers.iter().all(|(_, log)| notes(log).matches('A').count() >= ACKNOWLEDGED)
    });
    served.kill();
    for (writer, log) in &mut writers {
        wait(writer, Duration::from_secs(20)).expect("a writer ends with its server");
        content = replay(content, log);
    }
    Left { name: name.into(), members, content, size_bytes }
}

fn start_writer(
    served: &Served,
    directory: &Path,
    writer: u64,
    region: u64,
    number: u64,
) -> (Child, PathBuf) {
    let data = directory.join(format!("data-{writer}"));
    let log = directory.join(format!("log-{writer}"));
    let base = writer * region;
    let mut bytes = Vec::new();
    Content::of(NEW_SEED).write(&mut bytes, base, region).expect("memory");
    fs::write(&data, bytes).expect("a file");
    let seed = number * WRITERS + writer;
    let arguments =
        format!("({base}, {region}, {seed}, '{}', '{}')", data.display(), log.display());
    let mut command = served.nbdsh_command(&WRITER.replace("{arguments}", &arguments));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    (command.spawn().expect("nbdsh starts"), log)
}

/// What the writer's notes say the array must hold now.
fn replay(mut content: Content, log: &Path) -> Content {
    let notes = support::read(log);
    let mut open = None;
    for note in notes.lines() {
        let words: Vec<&str> = note.split(' ').collect();
        let [kind, offset, length] = words[..] else { continue };
        let range = (offset.parse().expect("a number"), length.parse().expect("a number"));
        open = if kind == "S" { Some(range) } else { None };
        if kind == "A" {
            content = content.then(NEW_SEED, range.0, range.1);
        }
    }
    match open {
        Some((offset, length)) => content.then(ANYTHING, offset, length),
        None => content,
    }
}

/// Braid assembles a copy, resyncs, finds no mismatch and the content.
fn recover(array: &Left) -> Left {
    // A name has room for 32 bytes.
    let name = array.name.replacen("kill", "a", 1);
    let directory = support::directory(&name);
    let copy = |member: &PathBuf| {
        let to = directory.join(member.file_name().expect("a name"));
        fs::copy(member, &to).expect("a copy");
        to
    };
    let members: Vec<PathBuf> = array.members.iter().map(copy).collect();
    let served = Served::start(&name, &members, &[]);
    served.wait_until_whole();
    served.expect(&array.content, "after a kill and a resync");
    assert_eq!(served.check(), 0, "mismatches after a kill and a resync");
    served.stop();
    Left { name, members, ..array.clone() }
}
