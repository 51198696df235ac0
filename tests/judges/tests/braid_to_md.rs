//! What Braid writes, Linux md reads: every level and layout, filled over NBD, with a member failed
//! under it and recovered, goes to a real md kernel, which finds the content and no mismatch.

use crate::handoff::{Left, to_md_and_back};
use crate::served::Served;
use crate::support::{self, Run, braid, guest, program, skip};
use braid_judges::Content;
use std::path::{Path, PathBuf};
use std::process::Command;

const MEMBER_BYTES: u64 = 10 << 20;

/// level, layout, number of members, chunk
type Shape = (&'static str, &'static str, usize, &'static str);

const STRIPED: &[Shape] = &[
    ("linear", "", 2, ""),
    ("linear", "", 3, ""),
    ("0", "", 2, "64K"),
    ("0", "", 3, "4K"),
    ("1", "", 2, ""),
    ("1", "", 3, ""),
    ("4", "", 3, "64K"),
    ("5", "left-symmetric", 3, "64K"),
    ("5", "left-asymmetric", 4, "64K"),
    ("5", "right-symmetric", 4, "16K"),
    ("5", "right-asymmetric", 3, "128K"),
    ("5", "parity-first", 4, "64K"),
    ("5", "parity-last", 4, "4K"),
    ("5", "", 3, "512K"),
    ("10", "n2", 2, "64K"),
    ("10", "n2", 3, "64K"),
    ("10", "n2", 4, "4K"),
    ("10", "n3", 5, "64K"),
];
const DOUBLE: &[Shape] = &[
    ("6", "left-symmetric", 4, "64K"),
    ("6", "left-asymmetric", 5, "128K"),
    ("6", "right-symmetric", 5, "16K"),
    ("6", "right-asymmetric", 5, "64K"),
    ("6", "parity-first", 5, "64K"),
    ("6", "parity-last", 5, "4K"),
    ("6", "ddf-zero-restart", 5, "64K"),
    ("6", "ddf-N-restart", 5, "64K"),
    ("6", "ddf-N-continue", 5, "64K"),
    ("6", "left-symmetric-6", 5, "64K"),
    ("6", "left-asymmetric-6", 5, "64K"),
    ("6", "right-symmetric-6", 5, "64K"),
    ("6", "right-asymmetric-6", 5, "64K"),
    ("6", "parity-first-6", 5, "64K"),
    ("10", "f2", 2, "64K"),
    ("10", "f2", 3, "64K"),
    ("10", "f3", 5, "32K"),
    ("10", "o2", 3, "64K"),
    ("10", "o2", 4, "128K"),
    ("10", "o3", 5, "64K"),
];

#[test]
fn md_takes_single_parity_and_mirrors() {
    every_shape("md_takes_single_parity_and_mirrors", STRIPED);
}

#[test]
fn md_takes_double_parity_and_far_copies() {
    every_shape("md_takes_double_parity_and_far_copies", DOUBLE);
}

/// Superblocks that lie elsewhere than by default, and data that begin where they were asked to.
#[test]
fn md_takes_superblocks_of_each_version() {
    const MIRROR: Shape = ("1", "", 2, "");
    const PARITY: Shape = ("5", "left-symmetric", 3, "64K");
    const PLACES: [&[&str]; 4] = [
        &["--metadata", "1.0"],
        &["--metadata", "1.1"],
        &["--metadata", "1.1", "--data-offset", "2M"],
        &["--metadata", "1.2", "--data-offset", "3M"],
    ];
    // Of each pair the second one has a bitmap.
    let arrays = PLACES.iter().flat_map(|more| [(MIRROR, *more), (PARITY, *more)]);
    every_array("md_takes_superblocks_of_each_version", arrays);
}

/// Superblocks 0.90, which md makes and Braid goes on to write.
#[test]
fn md_takes_back_superblocks_of_its_oldest_version() {
    const SHAPES: [Shape; 4] = [
        ("1", "", 2, ""),
        ("5", "left-symmetric", 3, "64K"),
        ("6", "left-symmetric", 4, "64K"),
        ("10", "n2", 4, "64K"),
    ];
    let test = "md_takes_back_superblocks_of_its_oldest_version";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let mut script = String::new();
    let drawn = support::drawn(SHAPES.iter().enumerate());
    let made = drawn.into_iter().map(|(number, shape)| {
        let (level, layout, devices, chunk) = *shape;
        let name = format!("old-{level}");
        let members = members(&format!("to-md-{name}"), devices, MEMBER_BYTES);
        let kind = if has_bitmap(shape, number) { "internal" } else { "none" };
        let mut words = format!("--level={level} --bitmap={kind}");
        for (option, value) in [("layout", layout), ("chunk", chunk)] {
            if !value.is_empty() {
                words += &format!(" --{option}={value}");
            }
        }
        script += &old_by_md(&members, &words);
        (name, members, shape, number)
    });
    let made: Vec<(String, Vec<PathBuf>, &Shape, usize)> = made.collect();
    guest::run("old", &script).expect_success("md makes them");
    let mut left = Vec::new();
    let mut findings = Vec::new();
    for (name, members, shape, number) in made {
        match support::attempt(|| live_on(&name, members, shape, number)) {
            Ok(array) => left.push(array),
            Err(finding) => findings.push(format!("{name}: {finding}")),
        }
    }
    if let Err(finding) = support::attempt(|| to_md_and_back(test, left)) {
        findings.push(finding);
    }
    support::report(&findings);
}

/// Has md make an array with superblocks 0.90: what a guest does.
pub(crate) fn old_by_md(members: &[PathBuf], arguments: &str) -> String {
    let directory = members[0].parent().expect("a directory").display();
    let count = members.len();
    let create = format!("md --create /dev/md0 --run --assume-clean -e0.90 -n{count} {arguments}");
    let last = count - 1;
    format!(
        "cd {directory}\nattach $(seq -f m%g.img 0 {last})\n{create} \"${{LOOPS[@]}}\"\n\
         idle md0\nmd --stop /dev/md0\ndetach\n"
    )
}

/// What these tests need.
pub(crate) fn available() -> Result<(), String> {
    guest::available()?;
    ["nbdcopy", "nbdinfo", "nbdsh"].into_iter().try_for_each(program)
}

fn every_shape(test: &str, shapes: &[Shape]) {
    every_array(test, shapes.iter().map(|shape| (*shape, &[][..])));
}

/// Shapes, and more words for `braid create`.
fn every_array<'a>(test: &str, arrays: impl Iterator<Item = (Shape, &'a [&'a str])>) {
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let mut left = Vec::new();
    let mut findings = Vec::new();
    for (number, (shape, more)) in support::drawn(arrays.enumerate()) {
        let mut name = format!("{}-{}-{}", shape.0, shape.1, shape.2);
        for value in more.iter().filter(|word| !word.starts_with("--")) {
            name.extend(["-", value]);
        }
        match support::attempt(|| live(&name, &shape, more, number)) {
            Ok(array) => left.push(array),
            Err(finding) => findings.push(format!("{name}: {finding}")),
        }
    }
    if let Err(finding) = support::attempt(|| to_md_and_back(test, left)) {
        findings.push(finding);
    }
    support::report(&findings);
}

/// Sparse member files in a directory of their own.
pub(crate) fn members(test: &str, count: usize, size_bytes: u64) -> Vec<PathBuf> {
    let directory = support::directory(test);
    let members: Vec<_> = (0..count).map(|n| directory.join(format!("m{n}.img"))).collect();
    members.iter().for_each(|member| support::sparse_file(member, size_bytes));
    members
}

/// `braid create`, which must succeed.
pub(crate) fn create(name: &str, level: &str, members: &[PathBuf], arguments: &[&str]) {
    let mut command = braid();
    command.args(["create", name, "--level", level]);
    command.args(["--raid-devices", &members.len().to_string()]).args(arguments).args(members);
    Run::of(&mut command).expect_success("create");
}

/// mdadm reads the same from our superblocks as we do.
#[test]
fn mdadm_examines_as_we_do() {
    if let Err(reason) = program("mdadm") {
        return skip("mdadm_examines_as_we_do", &reason);
    }
    let mut findings = Vec::new();
    for &(level, layout, devices, chunk) in STRIPED.iter().chain(DOUBLE) {
        let name = format!("examine-{level}-{layout}-{devices}");
        let members = members(&name, devices, MEMBER_BYTES);
        create(&name, level, &members, &options(layout, chunk));
        for member in &members {
            let mut mdadm = Command::new("/sbin/mdadm");
            let theirs = Run::of(mdadm.args(["--examine", "--export"]).arg(member));
            let theirs = theirs.expect_success("mdadm --examine").stdout;
            let ours = Run::of(braid().args(["examine", "--export"]).arg(member)).stdout;
            if theirs.lines().any(|line| !ours.lines().any(|other| other == line)) {
                findings.push(format!("{name}: mdadm:\n{theirs}ours:\n{ours}"));
            }
            let text = Run::of(Command::new("/sbin/mdadm").arg("--examine").arg(member)).stdout;
            if !text.contains("- correct") {
                findings.push(format!("{name}: {text}"));
            }
        }
    }
    support::report(&findings);
}

fn options<'a>(layout: &'a str, chunk: &'a str) -> Vec<&'a str> {
    let named = [("--layout", layout), ("--chunk", chunk)];
    let given = named.into_iter().filter(|(_, value)| !value.is_empty());
    given.flat_map(|(option, value)| [option, value]).collect()
}

/// The life of one array: made, filled, hurt and healed where its level allows, stopped.
fn live(name: &str, shape: &Shape, more: &[&str], number: usize) -> Left {
    let &(level, layout, devices, chunk) = shape;
    let members = members(&format!("to-md-{name}"), devices, MEMBER_BYTES);
    let mut arguments = options(layout, chunk);
    arguments.extend(more);
    if is_redundant(shape) {
        let kind = if has_bitmap(shape, number) { "internal" } else { "none" };
        arguments.extend(["--bitmap", kind]);
    }
    create(name, level, &members, &arguments);
    live_on(name, members, shape, number)
}

fn is_redundant(&(level, ..): &Shape) -> bool {
    !["linear", "0"].contains(&level)
}

fn has_bitmap(shape: &Shape, number: usize) -> bool {
    is_redundant(shape) && number % 2 == 1
}

/// The same, once it is made.
fn live_on(name: &str, members: Vec<PathBuf>, shape: &Shape, number: usize) -> Left {
    let served = Served::start(name, &members, &[]);
    let mut content = Content::of(1000 + number as u64);
    let size_bytes = served.size_bytes();
    served.fill(&content);
    served.expect(&content, "after the fill");
    if is_redundant(shape) {
        served.wait_until_whole();
        let member = &members[number % members.len()];
        content = hurt_and_heal(&served, content, member, has_bitmap(shape, number));
    }
    served.stop();
    let left = Left { name: name.into(), members, content, size_bytes };
    left.expect_by_cat("after the stop");
    left
}

/// A member fails, the array is written, and the member comes back.
fn hurt_and_heal(served: &Served, content: Content, member: &Path, bitmap: bool) -> Content {
    served.manage("fail", member);
    assert!(served.is("degraded"), "a member failed: {}", served.status());
    let content = content.then(5, 1 << 20, 256 << 10).then(6, (5 << 20) + 4096, 12288);
    for write in &content.over {
        served.write(&content, write.offset, write.length);
    }
    served.expect(&content, "degraded");
    served.manage("remove", member);
    if bitmap {
        served.manage("re-add", member);
    } else {
        support::sparse_file(member, MEMBER_BYTES);
        served.manage("add", member);
    }
    served.wait_until_whole();
    served.expect(&content, "recovered");
    assert_eq!(served.check(), 0, "mismatches after recovery");
    content
}
