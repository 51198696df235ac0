//! Commands printed by a rescue, typed as they are: each reads the right content.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::halfway::begin_a_reshape;
use crate::maps::lose;
use crate::support::Lab;
use crate::support::export::{ask, connect, noise};
use crate::support::filled::{data_offset, fill_and_stop, filled};

/// Returns the output of a command: stdout, or stderr if that is empty.
fn said(lab: &Lab, words: &str, members: &[PathBuf]) -> String {
    let output = lab.run(words, members);
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8(text).expect("text")
}

#[test]
fn maps_are_in_the_commands_that_follow() {
    let lab = Lab::new();
    let (members, content) = filled(&lab, "--level 5 --chunk 64K", 3);
    let first = lose(&members[0], &[(6 << 20, 3 << 20)]);
    let second = lose(&members[1], &[(10 << 20, 6 << 20)]);
    let maps = format!("{first} {second}");
    let text = lab.ok_text(&format!("assemble --explain {maps}"), &members);
    assert_eq!(lab.type_all(&text, &content), 1, "{text}");
    let blank = lab.members("blank", 1, 16);
    let text = said(&lab, &format!("cat {maps}"), &[&members[..], &blank].concat());
    assert_eq!(lab.type_all(&text, &content), 1, "{text}");
    let text = lab.ok_text(&format!("assemble --explain --overlay changes {maps}"), &members);
    assert_eq!(lab.type_all(&text, &content), 1, "{text}");
}

#[test]
fn overlays_are_in_the_commands_that_follow() {
    let lab = Lab::new();
    let (members, mut content) = filled(&lab, "--level 5 --chunk 64K", 3);
    let socket = lab.path("nbd");
    let export = format!("--export nbd:unix:{}", socket.display());
    lab.ok(&format!("assemble x --overlay changes {export}"), &members);
    let mut stream = connect(&socket, "x", content.len());
    content[4096..8192].fill(7);
    ask(&mut stream, 1, 4096, &content[4096..8192]).unwrap();
    drop(stream);
    lab.ok("stop x", &[]);
    let text = lab.ok_text("assemble --explain --overlay changes", &members);
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
    lab.ok("assemble x --readonly --overlay changes", &members);
    lab.ok("upgrade x", &[]);
    assert!(lab.ok("cat x", &[]) == content, "by the next program");
}

/// Moves the first rows of an array to another layout, as md does where the data begin elsewhere
/// in the new map, and stops before the superblocks tell of it.
fn move_rows(lab: &Lab, members: &[PathBuf], content: &[u8], rows: u64) {
    const SHIFT: u64 = 1000 * 512;
    const CHUNK: u64 = 64 << 10;
    let other = Lab::new();
    let by_the_new_map = other.members("n", 3, 16);
    let shape = "--level 5 --chunk 64K --layout right-asymmetric";
    fill_and_stop(&other, shape, &by_the_new_map);
    let socket = other.path("nbd");
    other.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &by_the_new_map);
    let mut stream = connect(&socket, "x", content.len());
    let len = (rows * 2 * CHUNK) as usize;
    for (number, part) in content[..len].chunks(1 << 17).enumerate() {
        ask(&mut stream, 1, (number as u64) << 17, part).unwrap();
    }
    drop(stream);
    other.ok("stop x", &[]);
    let data = data_offset(lab, &members[0]);
    for (old, new) in members.iter().zip(&by_the_new_map) {
        let mut bytes = vec![0; (rows * CHUNK) as usize];
        let from = data_offset(&other, new);
        File::open(new).unwrap().read_exact_at(&mut bytes, from).unwrap();
        let to = File::options().write(true).open(old).unwrap();
        to.write_all_at(&bytes, data - SHIFT).unwrap();
        begin_a_reshape(old);
    }
}

#[test]
fn md_is_not_advised_where_it_would_lose_what_has_been_moved() {
    let lab = Lab::new();
    let (members, mut content) = filled(&lab, "--level 5 --chunk 64K", 3);
    move_rows(&lab, &members, &content, 16);
    let size = lab.ok("cat", &members).len();
    content.truncate(size);
    for words in ["assemble --explain", "assemble", "assemble --explain --readonly"] {
        let text = said(&lab, words, &members);
        assert!(text.contains("md would go on from the wrong place"), "{words}: {text}");
        assert!(!text.contains("have md go on"), "{words}: {text}");
        assert_eq!(lab.type_all(&text, &content), 1, "{words}: {text}");
    }
    // Where nothing has been moved, md is the way on.
    let lab = Lab::new();
    let (members, _) = filled(&lab, "--level 5 --chunk 64K", 3);
    members.iter().for_each(|member| begin_a_reshape(member));
    let text = said(&lab, "assemble --explain", &members);
    assert!(text.contains("have md go on with it"), "{text}");
}

fn copy(from: &Path, to: PathBuf) -> PathBuf {
    fs::copy(from, &to).expect("a copy");
    to
}

/// Checks copies of members without redundancy, whose event count stays the same over writes.
#[test]
fn copies_that_nothing_tells_apart_are_not_chosen_from() {
    let lab = Lab::new();
    let (members, _) = filled(&lab, "--level 0 --chunk 64K", 2);
    let [a, b] = &members[..] else { panic!("two") };
    let a2 = copy(a, lab.path("a2"));
    let b2 = copy(b, lab.path("b2"));
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    let size = lab.ok("cat x", &[]).len();
    let mut stream = connect(&socket, "x", size);
    let news = noise(1 << 20).iter().map(|byte| !byte).collect::<Vec<_>>();
    ask(&mut stream, 1, 0, &news).unwrap();
    drop(stream);
    lab.ok("stop x", &[]);
    let content = lab.ok("cat", &members);
    for all in [[a, &b2, &a2, b], [&a2, b, a, &b2]] {
        let all = all.map(Clone::clone);
        for words in ["assemble --explain", "assemble", "cat"] {
            let text = said(&lab, words, &all);
            assert!(text.contains("do not tell which of the two goes with"), "{words}: {text}");
            assert_eq!(lab.type_all(&text, &content), 0, "{words}: {text}");
        }
    }
    // With redundancy the event count tells, and a copy that is the same is as good.
    let lab = Lab::new();
    let (mut members, content) = filled(&lab, "--level 1", 2);
    members.push(copy(&members[0], lab.path("same")));
    let text = said(&lab, "assemble --explain", &members);
    assert!(text.contains("the same member as"), "{text}");
    assert_eq!(lab.type_all(&text, &content), 2, "{text}");
}

#[test]
fn what_cat_leaves_out_is_said() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    for half in [&members[..2], &members[2..]] {
        lab.ok("assemble top --run", half);
        lab.ok("stop top", &[]);
    }
    lab.ok("assemble top --run", &members[2..]);
    lab.ok("stop top", &[]);
    lab.ok("assemble right --run", &members[2..3]);
    lab.ok("stop right", &[]);
    let output = lab.run("cat", &members);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let left_out = |line: &str, who: &str, why: &str| {
        line.contains(who) && line.contains("is left out: ") && line.contains(why)
    };
    assert!(text.lines().any(|line| left_out(line, ":left (", "split")), "{text}");
    assert!(text.lines().any(|line| left_out(line, "m3", "stale")), "{text}");
}
