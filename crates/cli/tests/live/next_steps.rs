//! Every next step that is a command works in the state that printed it.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::Lab;
use crate::support::terminal::terminal;

/// Returns the command at the end of the output: after `next: `, after the last `; ` or after `: `.
fn command_in(said: &str) -> Option<String> {
    let line = said.lines().rev().find(|line| line.contains("braid"))?;
    let line = line.strip_prefix("braid: ").unwrap_or(line);
    line.rfind("braid ").map(|at| line[at..].to_owned())
}

/// Runs the printed command, which must succeed.
fn follow(lab: &Lab, said: &str) -> Output {
    let command = command_in(said).unwrap_or_else(|| panic!("no command in: {said}"));
    let words = command.strip_prefix("braid ").expect("begins with it").to_owned();
    let output = lab.run(&words, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}led to\n{command}\n{stderr}");
    output
}

/// Returns the output of a command that is refused or explains.
fn said(lab: &Lab, words: &str, members: &[PathBuf]) -> String {
    let output = lab.run(words, members);
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8(text).expect("text")
}

fn created(lab: &Lab, options: &str, count: usize) -> Vec<PathBuf> {
    let members = lab.members("m", count, 16);
    lab.ok(&format!("create x {options}"), &members);
    members
}

fn wipe(member: &Path) {
    let file = OpenOptions::new().write(true).open(member).unwrap();
    file.write_all_at(&[0; 4096], 4096).unwrap();
}

/// A state of members and files, for typing the command printed about it.
struct Case {
    what: &'static str,
    make: fn(&Lab) -> Vec<PathBuf>,
}

const CASES: &[Case] = &[
    Case { what: "complete", make: |lab| created(lab, "-l 5 -n 3 --assume-clean", 3) },
    Case {
        what: "a superblock zeroed",
        make: |lab| {
            let members = created(lab, "-l 5 -n 3 --assume-clean", 3);
            wipe(&members[1]);
            members
        },
    },
    Case {
        what: "a member away",
        make: |lab| {
            let mut members = created(lab, "-l 5 -n 3 --assume-clean", 3);
            members.remove(1);
            members
        },
    },
    Case {
        what: "a member away and not clean",
        make: |lab| {
            let mut members = created(lab, "-l 6 -n 4", 4);
            members.remove(1);
            members
        },
    },
    Case {
        what: "a superblock zeroed, not clean",
        make: |lab| {
            let members = created(lab, "-l 6 -n 4", 4);
            wipe(&members[2]);
            members
        },
    },
    Case {
        what: "a member of another array, one away",
        make: |lab| {
            let mut members = created(lab, "-l 6 -n 4 --assume-clean", 4);
            let other = lab.members("o", 2, 16);
            lab.ok("create y -l 1 -n 2 --assume-clean", &other);
            members.truncate(3);
            members.push(other[0].clone());
            members
        },
    },
    Case {
        what: "a stale member that is needed",
        make: |lab| {
            let members = created(lab, "-l 5 -n 3 --assume-clean", 3);
            lab.ok("assemble x", &members);
            lab.ok("fail x", &members[..1]);
            lab.ok("stop x", &[]);
            members[..2].to_vec()
        },
    },
];

#[test]
fn what_assemble_and_cat_advise_works() {
    for Case { what, make } in CASES {
        for words in [
            "assemble",
            "assemble x",
            "assemble --readonly",
            "assemble --rename z",
            "assemble --explain",
            "assemble --explain x",
            "assemble --explain --readonly",
            "cat --length 4096",
        ] {
            let lab = Lab::new();
            let members = make(&lab);
            let output = lab.run(words, &members);
            let started = output.status.success() && !words.contains("explain");
            if started {
                continue;
            }
            let text = said(&lab, words, &members);
            let steps: Vec<&str> = text.lines().filter(|line| line.starts_with("next: ")).collect();
            // One for each array that is explained.
            let followed = match &steps[..] {
                [] => vec![follow(&lab, &text)],
                steps => steps.iter().map(|step| follow(&lab, step)).collect(),
            };
            let output = &followed[0];
            if words.starts_with("cat") {
                assert!(!output.stdout.is_empty(), "{what}: {text}");
                continue;
            }
            let name = if words.contains("rename") { "z" } else { "x" };
            // It runs, and did what was asked for: `--readonly` stays that.
            let status = lab.run(&format!("status {name} --json"), &[]);
            assert!(status.status.success(), "{what}: {words}: {text}");
            let status = String::from_utf8(status.stdout).unwrap();
            let read_only = status.contains("read-only");
            // What explains has one read first, since these members are images.
            let expected = words.contains("readonly") || words.contains("explain");
            assert_eq!(read_only, expected, "{what}: {words}: {text}");
        }
    }
}

#[test]
fn what_is_advised_for_a_running_array_works() {
    let lab = Lab::new();
    let members = created(&lab, "-l 1 -n 2 --assume-clean", 2);
    let spare = lab.members("s", 2, 16);
    lab.ok("assemble x", &members);
    for (words, paths) in [
        ("assemble --explain", &members[..]),
        ("fail x", &spare[..1]),
        ("remove x", &spare[..1]),
        ("replace x", &spare[..1]),
        ("re-add x", &spare[..1]),
        ("status y", &[]),
        ("detail y", &[]),
        ("stop y", &[]),
        ("check y", &[]),
    ] {
        let text = said(&lab, words, paths);
        follow(&lab, &text);
    }
    // `re-add` of a stranger led to `add`.
    assert!(lab.ok_text("detail x", &[]).contains(&spare[0].display().to_string()));

    for words in ["assemble x", "assemble --rename z", "create z -l 1 -n 2 --force"] {
        let lab = Lab::new();
        let members = created(&lab, "-l 1 -n 2 --assume-clean", 2);
        lab.ok("assemble x", &members);
        let text = said(&lab, words, &members);
        follow(&lab, &text);
        lab.ok(words, &members);
    }
}

#[test]
fn what_create_prints_starts_the_array() {
    let lab = Lab::new();
    for (name, options) in [("a", "-l 5 -n 3"), ("its", "-l 1"), ("b", "-l 10 missing")] {
        let members = lab.members(&format!("{name}'s-"), 3, 16);
        let mut command = lab.braid();
        command.args(["create", name]).args(options.split(' ')).args(&members);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_braid")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", text.trim_end()]).env("PATH", path).env("BRAID_RUN_DIR", lab.path("run"));
        assert!(shell.output().unwrap().status.success(), "{text}");
        lab.ok(&format!("status {name}"), &[]);
    }
}

/// A person sees that the command is the next one; a program reads it alone.
#[test]
fn a_terminal_is_told_that_a_command_comes_next() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    let (mut screen, terminal) = terminal();
    let mut command = lab.braid();
    command.args(["create", "x", "-l", "1", "--assume-clean"]).args(&members);
    let status = command.stdout(terminal).status().unwrap();
    // Its end of the terminal goes with it.
    drop(command);
    let mut bytes = [0; 4096];
    let length = screen.read(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(status.success() && text.starts_with("next: braid assemble x "), "{text}");
}

#[test]
fn what_is_advised_for_members_in_a_bad_state_works() {
    let lab = Lab::new();
    let members = created(&lab, "-l 1 -n 3 --assume-clean", 3);
    lab.ok("assemble x", &members);
    lab.ok("fail x", &members[2..]);
    let text = said(&lab, "fail x", &members[2..]);
    follow(&lab, &text);
    let left = lab.ok_text("detail x", &[]);
    assert!(!left.contains(&members[2].display().to_string()), "it is removed: {text}");

    lab.ok("sync x --max 0", &[]);
    lab.ok("add x", &members[2..]);
    let text = said(&lab, "check x", &[]);
    assert!(text.contains("recovery is running"), "{text}");
    lab.ok("sync x --max none", &[]);
    follow(&lab, &text);
    let told = lab.ok_text("status x", &[]);
    assert!(told.contains("[UUU]"), "it was watched to the end: {told}");
}

#[test]
fn what_is_advised_in_an_array_that_has_failed_works() {
    let lab = Lab::new();
    let members = created(&lab, "-l 5 -n 3 --assume-clean", 3);
    for words in ["remove x", "add x", "re-add x"] {
        lab.ok("assemble x", &members);
        lab.run("fail x", &members[..1]);
        lab.ok("fail x --force", &members[1..2]);
        assert!(lab.ok_text("status x", &[]).contains("FAILED"));
        let text = said(&lab, words, &members[..1]);
        assert!(text.contains("bring the members back and assemble it again"), "{text}");
        follow(&lab, &text);
    }
    lab.ok("assemble x", &members);
    lab.ok("remove x failed", &[]);
}

/// Both halves of a mirror went on alone, equally far: one can be looked at.
#[test]
fn what_is_advised_for_split_halves_works() {
    let lab = Lab::new();
    let members = created(&lab, "-l 1 -n 2 --assume-clean", 2);
    for half in &members {
        lab.ok("assemble x --run", std::slice::from_ref(half));
        lab.ok("stop x", &[]);
    }
    let text = said(&lab, "assemble", &members);
    assert!(text.contains("two halves of a split array"), "{text}");
    follow(&lab, &text);
    let status = lab.ok_text("status x --json", &[]);
    assert!(status.contains("read-only"), "{status}");
}
