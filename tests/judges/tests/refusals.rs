//! Bad input: one line that says what, why and what to do next, exit code 1 (refused) or 2 (wrong
//! usage), and not one byte on any member changes.

use crate::braid_to_md::{create, members};
use crate::golden;
use crate::served::Served;
use crate::support::{self, Run, braid, fingerprints, guest, program, skip};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Run it; it must be refused, in one line with these words, and change none of the files.
fn refused(arguments: &[&str], files: &[PathBuf], words: &[&str]) -> Result<(), String> {
    let before = fingerprints(files);
    // Tests run side by side.
    let test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    let run_dir = support::directory(&format!("refusals-run-{test}"));
    let run = Run::of(braid().env("BRAID_RUN_DIR", run_dir).args(arguments).args(files));
    let fault = |what: &str| Err(format!("{what}: {run}"));
    if fingerprints(files) != before {
        return fault("a file changed");
    }
    if !matches!(run.status.code(), Some(1 | 2)) {
        return fault("not refused");
    }
    let usage = run.status.code() == Some(2);
    if !usage && (run.stderr.lines().count() != 1 || !run.stderr.starts_with("braid: ")) {
        return fault("not one line");
    }
    if !usage && !run.stderr.contains("; ") {
        return fault("no next step");
    }
    match words.iter().find(|word| !run.stderr.to_lowercase().contains(**word)) {
        Some(word) => fault(&format!("does not say '{word}'")),
        None => Ok(()),
    }
}

fn all(cases: impl IntoIterator<Item = Result<(), String>>) {
    support::report(&cases.into_iter().filter_map(Result::err).collect::<Vec<_>>());
}

#[test]
fn create_refuses_impossible_shapes() {
    let disks = members("impossible", 5, 8 << 20);
    let line = |text: &str, count: usize, words: &[&str]| {
        let arguments: Vec<&str> = ["create", "x"].into_iter().chain(text.split(' ')).collect();
        refused(&arguments, &disks[..count], words)
    };
    all([
        line("--level 7 --raid-devices 3", 3, &["level"]),
        line("--level 5 --raid-devices 3", 2, &["2"]),
        line("--level 5 --raid-devices 3", 4, &["4"]),
        line("--level 5 --raid-devices 1", 1, &["raid"]),
        line("--level 6 --raid-devices 3", 3, &["4"]),
        line("--level 1 --raid-devices 0", 0, &[]),
        line("--level 5 --raid-devices 3 --chunk 0", 3, &["chunk"]),
        line("--level 5 --raid-devices 3 --chunk 3K", 3, &["chunk"]),
        line("--level 5 --raid-devices 3 --chunk 1T", 3, &["chunk"]),
        line("--level 5 --raid-devices 3 --chunk lots", 3, &["chunk"]),
        line("--level 5 --raid-devices 3 --layout n2", 3, &["layout"]),
        line("--level 10 --raid-devices 3 --layout n4", 3, &["copies"]),
        line("--level 10 --raid-devices 3 --layout left-symmetric", 3, &["layout"]),
        line("--level 5 --raid-devices 3 --size 1T", 3, &["size"]),
        line("--level 5 --raid-devices 3 --bitmap maybe", 3, &["bitmap"]),
        line("--level 5 --raid-devices 99999999999", 3, &[]),
    ]);
}

#[test]
fn create_protects_what_the_members_hold() {
    let test = "create_protects_what_the_members_hold";
    if let Err(reason) = program("mkfs.ext4").and_then(|()| program("mkfs.xfs")) {
        return skip(test, &reason);
    }
    let disks = members("protect", 3, 400 << 20);
    let path = |name: &str| disks[0].with_file_name(name);
    Run::of(Command::new("/sbin/mkfs.ext4").args(["-q", "-F"]).arg(&disks[0]))
        .expect_success("ext4");
    Run::of(Command::new("/sbin/mkfs.xfs").args(["-q", "-f"]).arg(&disks[1])).expect_success("xfs");
    let table = OpenOptions::new().write(true).open(&disks[2]).expect("a disk");
    table
        .write_all_at(&[0x80, 0, 1, 0, 0x83, 0, 2, 0, 0, 8, 0, 0, 0, 8], 446)
        .expect("a partition");
    table.write_all_at(&[0x55, 0xaa], 510).expect("a partition table");
    support::sparse_file(&path("blank"), 400 << 20);
    support::sparse_file(&path("tiny"), 4096);
    let mirror = ["create", "x", "--level", "1", "--raid-devices", "2"];
    let with = |other: PathBuf, words: &[&str]| refused(&mirror, &[path("blank"), other], words);
    all([
        with(disks[0].clone(), &["ext4", "--force"]),
        with(disks[1].clone(), &["xfs", "--force"]),
        with(disks[2].clone(), &["partition", "--force"]),
        with(path("blank"), &["blank"]),
        with(path("tiny"), &["tiny"]),
        refused(
            &[&mirror[..], &[&path("none").display().to_string()]].concat(),
            &[path("blank")],
            &["none"],
        ),
    ]);
    let used = members("protect-md", 2, 8 << 20);
    create("used", "1", &used, &[]);
    all([refused(&mirror, &used, &["superblock", "--force"])]);
}

#[test]
fn assemble_and_cat_refuse_what_does_not_fit() {
    let test = "assemble_and_cat_refuse_what_does_not_fit";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let array = |name: &str, directory: &str| {
        golden::copy(golden::named(name), &support::directory(directory))
    };
    let ours = array("raid5-3", "fit-ours");
    let other = array("raid5-4-ls", "fit-other");
    let truncated = array("raid5-3", "fit-truncated");
    shorten(&truncated[1], 4 << 20);
    let flipped = array("raid5-3", "fit-flipped");
    flip(&flipped[1], 4096 + 80);
    let feature = array("raid5-3", "fit-feature");
    feature.iter().for_each(|member| flip(member, 4096 + 8 + 3));
    let dirty = array("raid5-dirty", "fit-dirty");
    let pick = |from: &[PathBuf], which: &[usize]| -> Vec<PathBuf> {
        which.iter().map(|index| from[*index].clone()).collect()
    };
    let foreign = vec![ours[0].clone(), ours[1].clone(), other[2].clone()];
    let blank = members("fit-blank", 1, 8 << 20);
    let mut cases = Vec::new();
    for operation in [&["cat"][..], &["assemble", "--rename", "x"]] {
        cases.extend([
            refused(operation, &pick(&ours, &[0]), &["member"]),
            refused(operation, &pick(&flipped, &[0, 1]), &["checksum"]),
            refused(operation, &feature, &[]),
            refused(operation, &foreign, &["array"]),
            refused(operation, &pick(&dirty, &[0, 2]), &[]),
            refused(operation, &blank, &["superblock"]),
            refused(operation, &[Path::new("nowhere").to_path_buf()][..0], &[]),
        ]);
    }
    // `cat` reads what is there.
    let cut = pick(&truncated, &[0, 1]);
    cases.push(refused(&["assemble", "--rename", "x", "--run"], &cut, &["m1.img is out: cut off"]));
    cases.push(refused(&["assemble", "--rename", "x"], &pick(&dirty, &[0, 2]), &["--force"]));
    cases.push(refused(
        &["assemble", "--rename", "x", "--run"],
        &pick(&dirty, &[0, 2]),
        &["--force"],
    ));
    cases.push(refused(&["assemble", "--rename", "x"], &pick(&ours, &[0, 1]), &["--run"]));
    all(cases);
}

#[test]
fn two_halves_of_a_mirror_do_not_meet_again() {
    let test = "two_halves_of_a_mirror_do_not_meet_again";
    if let Err(reason) = crate::braid_to_md::available() {
        return skip(test, &reason);
    }
    let disks = members("halves", 2, 8 << 20);
    create("halves", "1", &disks, &["--assume-clean"]);
    for half in 0..2 {
        let served = Served::start("halves", &disks[half..=half], &["--run"]);
        let content = braid_judges::Content::of(70 + half as u64);
        served.write(&content, 0, 65536);
        // Or the halves have counted other events, and one is the older one.
        served.wait_until("clean");
        served.stop();
    }
    all([refused(&["assemble", "--rename", "x"], &disks, &[]), refused(&["cat"], &disks, &[])]);
}

#[test]
fn a_member_in_use_is_not_shared() {
    let disks = members("in-use", 3, 8 << 20);
    create("in-use", "5", &disks, &[]);
    let served = Served::start("in-use", &disks, &["--readonly"]);
    all([
        refused(&["assemble", "--rename", "again"], &disks, &["use"]),
        refused(
            &["create", "x", "--force", "--level", "0", "--raid-devices", "3"],
            &disks,
            &["use"],
        ),
    ]);
    served.stop();
}

#[test]
fn a_running_array_refuses_nonsense() {
    if let Err(reason) = crate::braid_to_md::available() {
        return skip("a_running_array_refuses_nonsense", &reason);
    }
    let disks = members("nonsense", 4, 8 << 20);
    create("nonsense", "5", &disks[..3], &["--assume-clean"]);
    let served = Served::start("nonsense", &disks[..3], &[]);
    let content = braid_judges::Content::of(80);
    served.fill(&content);
    let refuse = |operation: &str, member: &Path| {
        let run = Run::of(served.braid(operation).arg(member)).expect_status(1, operation);
        assert_eq!(run.stderr.lines().count(), 1, "{run}");
        assert!(run.stderr.starts_with("braid: ") && run.stderr.contains("; "), "{run}");
    };
    refuse("fail", &disks[3]);
    refuse("remove", &disks[0]);
    refuse("remove", &disks[3]);
    refuse("add", &disks[0]);
    refuse("re-add", &disks[3]);
    support::sparse_file(&disks[3], 1 << 20);
    refuse("add", &disks[3]);
    assert!(!served.is("degraded"));
    // The last member that can go; the next would take data along.
    served.manage("fail", &disks[0]);
    refuse("fail", &disks[1]);
    served.expect(&content, "degraded");
    served.stop();
}

fn shorten(path: &Path, size_bytes: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(size_bytes))
        .expect("a file");
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x40], offset).expect("a byte");
}
