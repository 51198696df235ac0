//! Choice among several arrays for assembling and explaining: the array with the typed name.

use std::path::PathBuf;

use crate::support::Lab;
use crate::support::export::{ask, connect, noise};
use serde_json::Value;

/// Two arrays with some members each, called `ov` and `other`.
fn two(lab: &Lab) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let ours = lab.members("m", 2, 8);
    let theirs = lab.members("n", 3, 8);
    lab.ok("create ov -l 1 -n 2 --assume-clean", &ours);
    lab.ok("create other -l 5 -n 3 --assume-clean", &theirs);
    (ours, theirs)
}

fn uuid(lab: &Lab, member: &PathBuf) -> String {
    let examined = lab.ok_text("examine --export", std::slice::from_ref(member));
    let uuid = examined.lines().find_map(|line| line.strip_prefix("MD_UUID="));
    uuid.expect("a UUID").to_owned()
}

fn name_of(lab: &Lab, name: &str) -> Value {
    let status: Value =
        serde_json::from_slice(&lab.ok(&format!("status {name} --json"), &[])).unwrap();
    status["name"].clone()
}

#[test]
fn a_name_selects_its_array_among_devices() {
    let lab = Lab::new();
    let (ours, theirs) = two(&lab);
    for (all, name, out) in [
        ([&ours[..], &theirs].concat(), "other", &ours[0]),
        ([&theirs[..], &ours].concat(), "ov", &theirs[0]),
    ] {
        let output = lab.run(&format!("assemble {name}"), &all);
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{warned}");
        let said = format!("{} is left out: belongs to another array", out.display());
        assert!(warned.contains(&said), "{warned}");
        assert_eq!(lab.run(&format!("detail {name} --test"), &[]).status.code(), Some(0));
        let read = lab.run(&format!("cat {name} --length 4096"), &[]);
        lab.ok(&format!("stop {name}"), &[]);
        let output = lab.run(&format!("cat {name} --length 4096"), &all);
        assert!(output.status.success() && output.stdout == read.stdout);
    }
}

#[test]
fn an_array_has_several_names_and_runs_under_one() {
    let lab = Lab::new();
    let (ours, _) = two(&lab);
    let uuid = uuid(&lab, &ours[0]);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = uuid.replace(':', "");
    for name in [format!("{host}:ov"), uuid, plain] {
        lab.ok(&format!("assemble {name}"), &ours);
        assert_eq!(name_of(&lab, "ov"), "ov");
        lab.ok("stop ov", &[]);
    }
}

#[test]
fn another_name_is_refused_unless_asked_for() {
    let lab = Lab::new();
    let (ours, theirs) = two(&lab);
    let line = lab.refused(1, "assemble ov", &theirs, &theirs);
    assert!(
        line.contains("the members are those of other (") && line.contains("--rename"),
        "{line}"
    );
    assert!(lab.refused(1, "cat ov", &theirs, &theirs).contains("are those of other ("));
    let all = [&ours[..], &theirs].concat();
    let line = lab.refused(1, "assemble third", &all, &all);
    assert!(line.contains("those of ov (") && line.contains("other ("), "{line}");
    lab.refused(2, "assemble --rename", &ours, &ours);
    lab.refused(2, "assemble --rename third", &[], &ours);

    lab.ok("assemble --rename third", &ours);
    assert_eq!(name_of(&lab, "third"), "third");
    lab.ok("stop third", &[]);
    // The superblocks keep the name.
    lab.ok("assemble ov", &ours);

    // Two of one name are told apart by their UUIDs.
    let same = lab.members("s", 2, 8);
    lab.ok("create other -l 1 -n 2 --assume-clean", &same);
    let both = [&theirs[..], &same].concat();
    let line = lab.refused(1, "assemble other", &both, &both);
    assert!(line.contains("several arrays have this name: other ("), "{line}");
    lab.ok(&format!("assemble {}", uuid(&lab, &same[0])), &both);
    assert_eq!(lab.ok_text("detail other", &[]).matches("active sync").count(), 2);
}

#[test]
fn every_array_and_every_odd_file_is_explained() {
    let lab = Lab::new();
    let (ours, theirs) = two(&lab);
    let odd = ["empty", "five", "directory", "dangling", "blank"].map(|name| lab.path(name));
    std::fs::write(&odd[0], []).unwrap();
    std::fs::write(&odd[1], b"12345").unwrap();
    std::fs::create_dir(&odd[2]).unwrap();
    std::os::unix::fs::symlink(lab.path("nowhere"), &odd[3]).unwrap();
    std::fs::write(&odd[4], vec![0; 1 << 20]).unwrap();
    let reasons = [
        "is empty",
        "has 5 bytes, not even a sector",
        "is a directory",
        "no such file or device",
        "no md superblock; it is nothing but zeroes",
    ];
    let command = |members: &[PathBuf]| {
        let words: Vec<String> = members.iter().map(|path| path.display().to_string()).collect();
        format!("next: braid assemble --readonly {}\n", words.join(" "))
    };

    let content = noise(1 << 20);
    for (name, members) in [("ov", &ours), ("other", &theirs)] {
        lab.ok(&format!("assemble {name} --export nbd:unix:{name}.sock"), members);
        let size = lab.ok(&format!("cat {name}"), &[]).len();
        let mut stream = connect(&lab.path(&format!("{name}.sock")), name, size);
        ask(&mut stream, 1, 0, &content).unwrap();
        drop(stream);
        lab.ok(&format!("stop {name}"), &[]);
    }
    let all = [&odd[..2], &ours, &odd[2..], &theirs].concat();
    let text = lab.ok_text("assemble --explain", &all);
    assert_eq!(lab.type_all(&text, &content), 5, "{text}");
    for array in [&ours[..], &theirs] {
        assert!(
            text.contains(&format!("can start: clean and complete\n{}", command(array))),
            "{text}"
        );
    }
    let one = [&odd[..], &ours].concat();
    let of_one = lab.ok_text("assemble --explain", &one);
    assert!(of_one.contains(&command(&ours)), "{of_one}");
    assert_eq!(lab.type_all(&of_one, &content), 2, "{of_one}");
    for (path, reason) in odd.iter().zip(reasons) {
        let line = format!("  out  {}: {reason}\n", path.display());
        assert!(text.contains(&line) && of_one.contains(&line), "{line}{text}{of_one}");
    }

    // A name selects here as well.
    let text = lab.ok_text("assemble --explain other", &[&ours[..], &theirs].concat());
    let called = command(&theirs).replace("--readonly ", "--readonly other ");
    assert!(text.contains(&called), "{text}");
    assert_eq!(text.matches("next: ").count(), 1, "{text}");
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");

    // Where there is no array at all, it could not be explained.
    let output = lab.run("assemble --explain", &odd);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("in no array:\n") && text.contains("directory: is a directory"),
        "{text}"
    );
}

#[test]
fn a_running_array_is_not_said_to_start() {
    let lab = Lab::new();
    let (ours, _) = two(&lab);
    lab.ok("assemble ov", &ours);
    let text = lab.ok_text("assemble --explain", &ours);
    assert!(text.contains("\nruns as ov, process "), "{text}");
    assert!(!text.contains("can start") && text.ends_with("next: braid status ov\n"), "{text}");
    lab.ok("status ov", &[]);
}
