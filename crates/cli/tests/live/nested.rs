//! Arrays whose members are arrays, among other arrays: detection and next steps.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::export::{ask, connect, noise};
use crate::support::{Lab, until};

/// Returns the next step of `assemble --explain` for the array `top`.
fn next(lab: &Lab, members: &[PathBuf]) -> String {
    let text = lab.told("assemble --explain", members);
    let top = text.lines().skip_while(|line| !line.contains(":top ("));
    let next = top.filter_map(|line| line.strip_prefix("next: ")).next();
    next.unwrap_or_else(|| panic!("no next step: {text}")).to_owned()
}

fn command(flag: &str, members: &[PathBuf]) -> String {
    let words: Vec<String> = members.iter().map(|path| path.display().to_string()).collect();
    format!("braid assemble {flag}{}", words.join(" "))
}

#[test]
fn what_does_not_belong_to_an_array_of_arrays_is_left_out() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let others = lab.members("o", 3, 16);
    lab.ok("create other --level 5 --raid-devices 3 --assume-clean", &others);
    let blank = lab.members("blank", 1, 16);
    let with = |more: &[PathBuf]| [&members[..], more].concat();
    let all = command("", &members);
    let reading = command("--readonly ", &members);

    assert_eq!(next(&lab, &members), reading);
    for images in [with(&blank), [&blank[..], &members].concat()] {
        assert_eq!(next(&lab, &images), reading, "a blank image");
        let line = lab.refused(1, "assemble", &images, &images);
        assert!(line.ends_with(&format!("blank0: no md superblock; {all}\n")), "{line}");
    }
    assert_eq!(next(&lab, &with(&others)), reading, "an array that is no member");
    let line = lab.refused(1, "assemble", &with(&others), &members);
    assert!(line.contains("other") && line.ends_with(&format!("; {all}\n")), "{line}");
    assert_eq!(next(&lab, &with(&others[..1])), reading, "a part of another array");
    assert_eq!(next(&lab, &[&others[..1], &members].concat()), reading);

    // Called by its name it is found among them, and so is an array that it is made of.
    let by_name = command("--readonly top ", &members);
    let text = lab.ok_text("assemble --explain top", &with(&others));
    assert!(text.contains(&format!("next: {by_name}\n")), "{text}");
    let text = lab.ok_text("assemble --explain right", &with(&others));
    let right = command("--readonly right ", &members[2..]);
    assert!(text.contains(&format!("next: {right}\n")), "{text}");
    lab.ok("assemble top", &with(&others));
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(0));
    assert_eq!(next(&lab, &with(&others)), "braid status top");
    let content = lab.ok("cat top", &[]);
    lab.ok("stop top", &[]);
    assert!(lab.ok("cat top", &with(&others)) == content);
}

#[test]
fn a_failed_member_leaves_no_redundancy_in_the_array_that_it_is_in() {
    let lab = Lab::new();
    let members = lab.nested("0");
    lab.ok("assemble top", &members);
    let said = |member: &PathBuf| {
        let output = lab.run("fail top", std::slice::from_ref(member));
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for (failed, left, name) in [(0, 1, "left"), (3, 2, "right")] {
        let said = said(&members[failed]);
        let left = members[left].display();
        let within = format!(": it fails if it loses {left} as well");
        let is_told = said.contains("no redundancy is left in ") && said.contains(&within);
        assert!(is_told && said.contains(&format!(":{name} (")), "{said}");
        // A stripe of arrays needs both of them at any time, which is nothing new.
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    lab.ok("stop top", &[]);
}

#[test]
fn an_array_of_arrays_is_found_by_its_name_in_one_of_them() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let half = &members[..2];
    let content = noise(1 << 20);
    lab.ok("assemble top --export nbd:unix:top.sock", &members);
    let size: Value = serde_json::from_slice(&lab.ok("status top --json", &[])).unwrap();
    let size = size["size_bytes"].as_u64().unwrap() as usize;
    let mut stream = connect(&lab.path("top.sock"), "top", size);
    ask(&mut stream, 1, 0, &content).unwrap();
    drop(stream);
    lab.ok("stop top", &[]);
    let text = lab.told("assemble --explain top", half);
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
    let run = command("--readonly --run top ", half);
    assert!(text.contains(&format!("start without them: {run}\n")), "{text}");
    lab.ok("assemble --run top", half);
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(1));
    lab.ok("stop top", &[]);
    lab.ok("assemble left", half);
    assert_eq!(lab.run("detail left --test", &[]).status.code(), Some(0));
}

#[test]
fn an_array_of_arrays_with_less_than_it_had_is_started_by_its_devices() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let without = "find the missing members, or start without them: ";
    let one_of_each = [members[0].clone(), members[2].clone()];
    for some in [&members[..3], &one_of_each] {
        assert_eq!(next(&lab, some), format!("{without}{}", command("--readonly --run ", some)));
        let line = lab.refused(1, "assemble", some, some);
        assert!(line.contains("right") && line.contains("cannot be started"), "{line}");
    }
    lab.ok("assemble --run", &one_of_each);
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(1));
}

/// A mirror `top` of `left` and `right`, which are striped over two members each, served with
/// content; the members, and two more.
fn striped(lab: &Lab) -> (Vec<PathBuf>, Vec<u8>) {
    let members = lab.members("m", 6, 16);
    let mut halves = Vec::new();
    for (name, pair) in [("left", &members[..2]), ("right", &members[2..4])] {
        let on = lab.path(&format!("mnt-{name}"));
        std::fs::create_dir(&on).unwrap();
        lab.ok(&format!("create {name} -l 0 -n 2 --chunk 64K"), pair);
        lab.ok(&format!("assemble {name} --export fuse:{}", on.display()), pair);
        halves.push(on.join(name));
    }
    lab.ok("create top -l 1 -n 2 --assume-clean", &halves);
    lab.ok("stop left", &[]);
    lab.ok("stop right", &[]);
    let on = lab.path("mnt");
    std::fs::create_dir(&on).unwrap();
    lab.ok(&format!("assemble top --export fuse:{}", on.display()), &members[..4]);
    let top = std::fs::File::options().write(true).open(on.join("top")).unwrap();
    let content: Vec<u8> = (0..top.metadata().unwrap().len()).map(|i| (i % 253) as u8).collect();
    top.write_all_at(&content, 0).unwrap();
    top.sync_all().unwrap();
    (members, content)
}

fn healthy(lab: &Lab) -> bool {
    lab.run("detail top --test", &[]).status.code() == Some(0)
}

#[test]
fn an_array_within_is_called_by_its_name() {
    let lab = Lab::new();
    let (_, content) = striped(&lab);
    lab.ok("fail top left", &[]);
    let status = lab.ok_text("status top", &[]);
    let faulty = |line: &str| line.contains("faulty") && line.contains(":left (");
    assert!(status.lines().any(faulty), "{status}");
    let line = lab.refused(1, "fail top left", &[], &[]);
    assert!(line.contains("is faulty already; braid remove top 'array "), "{line}");
    let title = line.split('\'').nth(1).unwrap().to_owned();
    let removed = lab.braid().args(["remove", "top", &title]).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    lab.ok("add top left", &[]);
    until("recovery", || healthy(&lab));
    let line = lab.refused(1, "add top left", &[], &[]);
    assert!(line.contains("is a member already"), "{line}");
    lab.ok("fail top right", &[]);
    assert!(lab.ok("cat top", &[]) == content);
}

#[test]
fn an_array_within_that_has_no_redundancy_is_rebuilt_on_a_new_member() {
    let lab = Lab::new();
    let (members, content) = striped(&lab);
    let one = |at: usize| std::slice::from_ref(&members[at]);
    for words in ["fail top", "remove top", "add top/left"] {
        let line = lab.refused(1, words, one(if words.starts_with("add") { 4 } else { 0 }), &[]);
        let said = "left cannot do without it, and the array goes on without left; \
                    fail that as a whole first: braid fail top left\n";
        assert!(line.ends_with(said), "{words}: {line}");
    }
    lab.ok("fail top left", &[]);
    let line = lab.refused(1, "fail top", one(2), &[]);
    assert!(line.contains("the array would lose data without right; make the other"), "{line}");
    lab.ok("fail top", one(0));
    lab.ok("remove top", one(0));
    let line = lab.refused(1, "add top/middle", one(4), &members[4..]);
    assert!(line.contains("top has no array middle in it"), "{line}");
    lab.ok("add top/left", one(4));
    until("recovery", || healthy(&lab));
    lab.ok("stop top", &[]);

    // The one before is told from the one that followed it.
    let all = &members[..5];
    let text = lab.ok_text("assemble --explain top", all);
    let out = format!("out  {}", members[0].display());
    assert!(text.lines().any(|line| line.trim_start().starts_with(&out)), "{text}");
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
    let whole: Vec<PathBuf> = [4, 1, 2, 3].map(|at| members[at].clone()).to_vec();
    lab.ok("assemble top", &whole);
    assert!(healthy(&lab));
    lab.ok("fail top right", &[]);
    assert!(lab.ok("cat top", &[]) == content);
}

/// Where several lack members, the one that is meant is named.
#[test]
fn a_new_member_goes_where_it_is_told_to() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let new = lab.members("new", 1, 16);
    lab.ok("assemble top", &members);
    for member in [&members[0], &members[2]] {
        lab.ok("fail top", std::slice::from_ref(member));
        lab.ok("remove top", std::slice::from_ref(member));
    }
    lab.ok("add top/right", &new);
    // One that was a member goes back to where it was.
    lab.ok("add top --force", &members[2..3]);
    let text = lab.ok_text("status top", &[]);
    let (left, right) = text.split_once("  right: ").unwrap();
    assert!(right.contains("new0") && right.contains("m2"), "{text}");
    assert!(!left.contains("new0") && !left.contains("m2"), "{text}");
}

/// Checks that an inner array comes back after the outer array continued without it: the inner
/// array is complete, but lacks later writes.
#[test]
fn an_array_within_that_was_not_there_is_taken_back() {
    for command in ["add", "re-add"] {
        let lab = Lab::new();
        let (members, mut content) = striped(&lab);
        lab.ok("stop top", &[]);
        let on = lab.path("mnt");
        let export = format!("--export fuse:{}", on.display());
        lab.ok(&format!("assemble --run top {export}"), &members[2..4]);
        let top = std::fs::File::options().write(true).open(on.join("top")).unwrap();
        content[4096..12288].fill(0x77);
        top.write_all_at(&content[4096..12288], 4096).unwrap();
        top.sync_all().unwrap();
        drop(top);
        let line = lab.refused(1, &format!("{command} top left"), &[], &[]);
        assert!(line.contains("top has no array left in it; stop it, and assemble it"), "{line}");
        lab.ok("stop top", &[]);

        let output = lab.run("assemble top", &members[..4]);
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{warning}");
        assert!(warning.contains(":left (") && warning.contains("is left out: stale"), "{warning}");
        assert!(warning.contains("; braid add top left rebuilds it\n"), "{warning}");
        assert!(!healthy(&lab));
        lab.ok(&format!("{command} top left"), &[]);
        until("recovery", || healthy(&lab));
        lab.ok("fail top right", &[]);
        assert!(lab.ok("cat top", &[]) == content, "{command}");
        lab.ok("remove top right", &[]);
        lab.ok("add top right", &[]);
        until("recovery", || healthy(&lab));
        lab.ok("stop top", &[]);
        lab.ok("assemble top", &members[..4]);
        assert!(healthy(&lab));
        assert!(lab.ok("cat top", &[]) == content, "{command}");
    }
}

/// Checks the steps of docs/nested.md: the arrays are served one by one, and the new one gets all
/// content.
#[test]
fn an_array_within_that_lost_a_member_while_stopped_is_made_anew() {
    let lab = Lab::new();
    let (members, content) = striped(&lab);
    lab.ok("stop top", &[]);
    let line = lab.refused(1, "assemble top", &members[1..4], &members);
    assert!(
        line.ends_with(&format!(
            "; find the missing members, or start without them: {}\n",
            command("--run top ", &members[2..4])
        )),
        "{line}"
    );
    let left = [members[4].clone(), members[1].clone()];
    lab.ok("create left -l 0 -n 2 --chunk 64K --force", &left);
    let mut halves = Vec::new();
    for (name, pair) in [("left", &left[..]), ("right", &members[2..4])] {
        let on = lab.path(&format!("mnt-{name}"));
        lab.ok(&format!("assemble {name} --export fuse:{}", on.display()), pair);
        halves.push(on.join(name));
    }
    lab.ok("assemble --run top", &halves[1..]);
    lab.ok("add top", &halves[..1]);
    until("recovery", || healthy(&lab));
    for name in ["top", "left", "right"] {
        lab.ok(&format!("stop {name}"), &[]);
    }
    let whole = [&left[..], &members[2..4]].concat();
    lab.ok("assemble top", &whole);
    assert!(healthy(&lab));
    lab.ok("fail top right", &[]);
    assert!(lab.ok("cat top", &[]) == content);
}
