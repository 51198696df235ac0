//! Data that Braid moves in place and saves to a file first: killed in the middle of a window, md
//! restores that from the file and moves the rest.

use crate::backups::{self, header};
use crate::braid_to_md::{available, create, members, old_by_md};
use crate::handoff::Left;
use crate::served::Served;
use crate::support::{self, Run, guest, skip, until};
use braid_judges::Content;
use std::fs;
use std::path::{Path, PathBuf};

const MEMBER_BYTES: u64 = 24 << 20;

/// name | metadata | level and members | options of grow | devices that are added. The name of one
/// that is killed in its first window ends with a 0.
const TABLE: &str = "\
spill-chunk  | 1.0  | 5 3 | --chunk 128K             | 0
spill-less   | 1.0  | 6 4 | --chunk 32K              | 0
spill-layout | 1.0  | 5 4 | --layout right-symmetric | 0
spill-chunk0 | 1.0  | 4 3 | --chunk 128K             | 0
spill-more0  | 1.0  | 5 3 | --raid-devices 4         | 1
spill-old    | 0.90 | 5 3 | --chunk 128K             | 0
spill-old0   | 0.90 | 5 3 | --raid-devices 4         | 1";

/// One that was killed.
struct Killed {
    name: String,
    members: Vec<PathBuf>,
    content: Content,
    size_bytes: u64,
}

/// Waits until a window is saved that begins there or later. Returns whether the first one is over.
fn wait_until_saved(spill: &Path, first: u64) -> bool {
    let mut found = header(spill);
    until("a window that is saved", || {
        (0..5000).any(|_| {
            found = header(spill);
            let (mtime, start, length) = found;
            length > 0 && start >= first || first == 0 && mtime > 0
        })
    });
    found.2 == 0
}

fn killed((row, seed): (&str, u64)) -> Killed {
    let tries = std::iter::repeat_with(|| killed_once(row, seed));
    tries.take(20).flatten().next().expect("one that is killed in the middle of a window")
}

/// Begins, and is killed in a window; `None` where that was just over, and none follows.
fn killed_once(row: &str, seed: u64) -> Option<Killed> {
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    let [name, metadata, made, change, added] = columns[..] else { panic!("bad line: {row}") };
    let (level, count) = made.split_once(' ').expect("two words");
    let [count, added]: [usize; 2] = [count, added].map(|number| number.parse().expect("a number"));
    let all = members(name, count + added, MEMBER_BYTES);
    if metadata == "0.90" {
        let words = format!("--level={level} --chunk=64 --size=22528 --bitmap=none");
        let script = old_by_md(&all[..count], &words);
        guest::run(&format!("old-{name}"), &script).expect_success("md makes it");
    } else {
        let arguments = ["--chunk", "64K", "--metadata", metadata, "--size", "22M"];
        create(name, level, &all[..count], &[&arguments[..], &["--assume-clean"]].concat());
    }
    let mut served = Served::in_foreground(name, &all[..count], &[]);
    let content = Content::of(seed);
    let size_bytes = served.size_bytes();
    served.fill(&content);
    let spill = all[0].with_file_name("backup");
    let slowly = |served: &Served| {
        Run::of(served.braid("limit").args(["--max", "2M"])).expect_success("limit");
    };
    slowly(&served);
    let mut grow = served.braid("grow");
    grow.args(change.split(' ')).arg("--spill").arg(&spill);
    all[count..].iter().for_each(|device| _ = grow.arg("--add").arg(device));
    Run::of(&mut grow).expect_success("grow");
    let first = if name.ends_with('0') { 0 } else { 8192 };
    loop {
        let is_over = wait_until_saved(&spill, first);
        served.kill();
        if header(&spill).2 > 0 {
            return Some(Killed { name: name.to_owned(), members: all, content, size_bytes });
        }
        if is_over || first == 0 {
            return None;
        }
        // It was just over.
        let file = spill.display().to_string();
        served = Served::in_foreground(name, &all, &["--backup-file", &file]);
        slowly(&served);
    }
}

#[test]
fn md_ends_what_braid_moved_in_place() {
    let test = "md_ends_what_braid_moved_in_place";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let rows = support::drawn(TABLE.lines().zip(6000..));
    let arrays: Vec<Killed> = rows.into_iter().map(killed).collect();
    let mut script = backups::guest_functions();
    for Killed { name, members, content, size_bytes } in &arrays {
        let directory = members[0].parent().expect("a directory");
        fs::write(directory.join("limit"), (size_bytes >> 10).to_string()).expect("a file");
        script += &format!("go_on {name} {content} {}\n", directory.display());
    }
    guest::run("spilled", &script).expect_success("md goes on");
    let mut findings = Vec::new();
    for Killed { name, members, content, size_bytes } in arrays {
        let said = |file| support::read(&members[0].with_file_name(file));
        let answer = said("answer.txt");
        println!("{name}: {answer}");
        if !answer.contains("restoring critical section") {
            findings.push(format!("{name}: nothing was restored: {answer}"));
        }
        if said("verdict.txt") != "right\n" {
            findings.push(format!("{name}: {}: {answer}", said("verdict.txt")));
            continue;
        }
        let left = Left { name, members: members.clone(), content, size_bytes };
        findings.extend(support::attempt(|| left.expect_by_cat("md has ended it")).err());
    }
    support::report(&findings);
}
