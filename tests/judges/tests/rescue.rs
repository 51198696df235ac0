//! Stories of arrays that a real md kernel made and whose superblocks were lost: `braid recover`
//! finds each again exactly, reads what it held, and writes superblocks with which md takes it.
//! Nothing changes a byte of a member but what says so.

use crate::support::{self, Run, braid, fingerprints, guest, partition, program, skip};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const GUEST: &str = include_str!("rescue.sh");
const CONTENT_BYTES: u64 = 28 << 20;
/// Before partitions of disks that have a table, and the partitions.
const PARTITIONS: [(u64, u64); 3] = [(1 << 20, 4 << 20), (5 << 20, 4 << 20), (9 << 20, 32 << 20)];

/// An array of so many disks, and what happens to it.
struct Story {
    name: &'static str,
    disks: usize,
    disk_mib: u64,
    arguments: &'static str,
    loss: Loss,
}

/// How superblocks are lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Somebody cleared the first 8 KiB of all members.
    Cleared,
    /// And one member is not there.
    ClearedAndMissing(usize),
    /// Somebody wrote GPTs to the disks, but not to this one.
    TablesBut(usize),
    /// The firmware of the board clears what it takes for a broken table, of these members.
    Firmware(&'static [usize]),
    /// `mdadm --create` was typed for `--assemble`, with the members in this order.
    CreatedAs(&'static [usize]),
    /// Whole disks with a partition table each. The first member is months behind, and the last
    /// has lost its superblock.
    Box,
}

const STORIES: &[Story] = &[
    Story { name: "cleared-5", disks: 3, disk_mib: 32, arguments: "-l5 -c64", loss: Loss::Cleared },
    Story {
        name: "cleared-5-ra",
        disks: 4,
        disk_mib: 24,
        arguments: "-l5 -c16 -pright-asymmetric",
        loss: Loss::Cleared,
    },
    // Behind what was cleared, md's bitmaps are left.
    Story {
        name: "bitmap-5",
        disks: 4,
        disk_mib: 24,
        arguments: "-l5 -c64 --bitmap=internal",
        loss: Loss::Cleared,
    },
    Story { name: "cleared-6", disks: 5, disk_mib: 24, arguments: "-l6 -c32", loss: Loss::Cleared },
    Story { name: "cleared-0", disks: 3, disk_mib: 24, arguments: "-l0 -c64", loss: Loss::Cleared },
    Story {
        name: "cleared-10",
        disks: 4,
        disk_mib: 24,
        arguments: "-l10 -c64 -pn2",
        loss: Loss::Cleared,
    },
    Story {
        name: "missing-5",
        disks: 4,
        disk_mib: 24,
        arguments: "-l5 -c64",
        loss: Loss::ClearedAndMissing(2),
    },
    Story {
        name: "tables-5",
        disks: 4,
        disk_mib: 24,
        arguments: "-l5 -c128",
        loss: Loss::TablesBut(1),
    },
    Story {
        name: "firmware-6",
        disks: 4,
        disk_mib: 32,
        arguments: "-l6 -c64",
        loss: Loss::Firmware(&[0, 2]),
    },
    Story {
        name: "created-5",
        disks: 3,
        disk_mib: 32,
        arguments: "-l5 -c64",
        loss: Loss::CreatedAs(&[1, 0, 2]),
    },
    Story { name: "box-5", disks: 4, disk_mib: 42, arguments: "-l5 -c64", loss: Loss::Box },
];

impl Story {
    fn directory(&self) -> PathBuf {
        support::base().join(format!("rescue-{}", self.name))
    }

    fn disk(&self, number: usize) -> PathBuf {
        self.directory().join(format!("d{number}.img"))
    }

    fn disks(&self) -> Vec<PathBuf> {
        (0..self.disks).map(|number| self.disk(number)).collect()
    }

    /// The members for the guest, in the order of their roles.
    fn parts(&self, within: &Path) -> Vec<String> {
        let part = |number| {
            let file = within.join(format!("d{number}.img"));
            match (self.loss, PARTITIONS[2]) {
                (Loss::Box, (offset, bytes)) => format!("{}:{offset}:{bytes}", file.display()),
                _ => file.display().to_string(),
            }
        };
        (0..self.disks).map(part).collect()
    }

    fn create_disks(&self) {
        let _ = fs::remove_dir_all(self.directory());
        fs::create_dir_all(self.directory()).expect("a directory");
        for disk in self.disks() {
            support::sparse_file(&disk, self.disk_mib << 20);
            if self.loss == Loss::Box {
                let lines = PARTITIONS.map(|(at, bytes)| format!("{},{}\n", at / 512, bytes / 512));
                partition(&disk, &format!("label: gpt\n{}", lines.concat()));
            }
        }
    }

    fn calls(&self, contents: &Contents) -> String {
        let Self { name, arguments, .. } = self;
        let directory = self.directory();
        let parts = self.parts(&directory).join(" ");
        let directory = directory.display();
        let Contents { first, second } = contents;
        let content = first.display();
        let mut calls = format!("make {name} {directory} {content} '{arguments}' {parts}\n");
        match self.loss {
            Loss::CreatedAs(order) => {
                let parts: Vec<String> =
                    order.iter().map(|number| self.disk(*number).display().to_string()).collect();
                let parts = parts.join(" ");
                let _ = writeln!(calls, "make_wrongly {name} {directory} '{arguments}' {parts}");
            }
            Loss::Box => {
                let content = second.display();
                let _ = writeln!(calls, "leave_behind {name} {directory} {content} 0 {parts}");
            }
            _ => {}
        }
        calls
    }

    fn happens(&self) {
        let clear = |number: usize, at: u64, len: usize| {
            let file = File::options().write(true).open(self.disk(number)).expect("a disk");
            file.write_all_at(&vec![0; len], at).expect("room");
        };
        match self.loss {
            Loss::Cleared => (0..self.disks).for_each(|number| clear(number, 0, 8 << 10)),
            Loss::ClearedAndMissing(missing) => {
                (0..self.disks).for_each(|number| clear(number, 0, 8 << 10));
                fs::remove_file(self.disk(missing)).expect("it was there");
            }
            Loss::TablesBut(spared) => {
                let others = (0..self.disks).filter(|number| *number != spared);
                others.for_each(|number| {
                    partition(&self.disk(number), "label: gpt\n2048,16384\n");
                    // What sfdisk leaves alone of the entries, others clear.
                    clear(number, 4096, 13_312);
                });
            }
            Loss::Firmware(disks) => {
                disks.iter().for_each(|number| clear(*number, 0x1000, 0x3000));
            }
            Loss::CreatedAs(_) => {}
            Loss::Box => clear(self.disks - 1, PARTITIONS[2].0, 8 << 10),
        }
    }

    /// The disks that are there, in an order of no meaning.
    fn named(&self) -> Vec<PathBuf> {
        let mut disks: Vec<PathBuf> =
            self.disks().into_iter().filter(|disk| disk.exists()).collect();
        disks.reverse();
        disks.rotate_left(1);
        disks
    }

    /// Which members are to be found, in the order of roles.
    fn expected(&self) -> Vec<String> {
        let member = |number| match self.loss {
            Loss::ClearedAndMissing(missing) if number == missing => "missing".to_owned(),
            Loss::Box if number == 0 => "missing".to_owned(),
            Loss::Box => format!("{}#3", self.disk(number).display()),
            _ => self.disk(number).display().to_string(),
        };
        (0..self.disks).map(member).collect()
    }

    /// Is there nothing left that superblocks would be written over?
    fn is_cleared(&self) -> bool {
        matches!(self.loss, Loss::Cleared | Loss::ClearedAndMissing(_))
    }
}

/// What arrays hold: file systems, the second one changed since.
struct Contents {
    first: PathBuf,
    second: PathBuf,
}

impl Contents {
    fn make() -> Self {
        let directory = support::directory("rescue-content");
        let files = directory.join("files");
        // Directories are what most tells where it belongs.
        for number in 1..=700_u32 {
            let within = files.join(format!("{}/{number}", number % 20));
            fs::create_dir_all(&within).expect("a directory");
            let bytes: Vec<u8> =
                (0..4096 + number * 8).flat_map(|n| (n * number).to_le_bytes()).collect();
            fs::write(within.join("file"), &bytes[..bytes.len() / 2]).expect("a file");
        }
        let first = directory.join("first");
        support::sparse_file(&first, CONTENT_BYTES);
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-b", "4096", "-d"]).args([&files, &first]);
        Run::of(&mut mkfs).expect_success("mkfs.ext4");
        let second = directory.join("second");
        fs::copy(&first, &second).expect("a copy");
        let more = directory.join("more");
        fs::write(&more, vec![7; 3 << 20]).expect("a file");
        let write = format!("write {} more", more.display());
        let mut debugfs = Command::new("debugfs");
        Run::of(debugfs.args(["-w", "-R", &write]).arg(&second)).expect_success("debugfs");
        Self { first, second }
    }

    fn of(&self, story: &Story) -> &Path {
        if story.loss == Loss::Box { &self.second } else { &self.first }
    }
}

#[test]
fn what_md_made_is_found_again_without_superblocks() {
    let test = "what_md_made_is_found_again_without_superblocks";
    let tools = ["mkfs.ext4", "debugfs", "sfdisk"];
    let available = guest::available().and_then(|()| tools.into_iter().try_for_each(program));
    if let Err(reason) = available {
        return skip(test, &reason);
    }
    let contents = Contents::make();
    let stories = support::drawn(STORIES);
    stories.iter().for_each(|story| story.create_disks());
    let calls: Vec<String> = stories.iter().map(|story| story.calls(&contents)).collect();
    let script = format!("{GUEST}\n{}", calls.concat());
    println!("{}", guest::run("rescue-make", &script).expect_success("md makes arrays").stdout);
    stories.iter().for_each(|story| story.happens());

    let mut findings = Vec::new();
    let mut script = format!("{GUEST}\n");
    for story in stories {
        let found = support::attempt(|| {
            find(story, contents.of(story));
            if story.is_cleared() {
                script.push_str(&write(story, contents.of(story)));
            }
        });
        findings.extend(found.err().map(|finding| format!("{}: {finding}", story.name)));
    }
    let taken = guest::run("rescue-take", &script);
    if !taken.status.success() {
        findings.push(taken.to_string());
    }
    support::report(&findings);
}

/// Finds the array, and reads it by the command that is advised.
fn find(story: &Story, content: &Path) {
    let disks = story.named();
    let before = fingerprints(&disks);
    let run = Run::of(braid().arg("recover").arg("--json").args(&disks));
    let found: serde_json::Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("recover: {error}: {run}"));
    let best = &found["hypotheses"][0];
    let members: Vec<&str> =
        best["members"].as_array().into_iter().flatten().filter_map(|m| m.as_str()).collect();
    if !story.arguments.starts_with("-l10") {
        // Of mirrors either may come first.
        assert_eq!(members, story.expected(), "members of {found:#}");
    }
    assert_eq!(best["confidence"], "high", "{found:#}");
    if story.arguments.contains("--bitmap") {
        let evidence = best["evidence"].to_string();
        assert!(evidence.contains("is of one array, whose bitmap is of "), "{found:#}");
    }
    let command = best["command"].as_str().expect("a command");
    let words = command.strip_prefix("braid assemble --readonly ").expect("a command that reads");
    let mut cat = braid();
    // As it is to be typed: a `#` is quoted.
    let words = words.split(' ').map(|word| word.trim_matches('\''));
    cat.arg("cat").args(words).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut cat = cat.spawn().expect("braid starts");
    let mut bytes = vec![0; CONTENT_BYTES as usize];
    cat.stdout.take().expect("a pipe").read_exact(&mut bytes).expect("as much content");
    let _ = cat.wait();
    assert!(bytes == fs::read(content).expect("content"), "{command}: other content");
    assert_eq!(before, fingerprints(&disks), "looking for it changed a disk");
}

/// Writes superblocks to copies, takes them back, and writes them again, for md to take.
fn write(story: &Story, content: &Path) -> String {
    let directory = support::directory(&format!("rescue-{}-written", story.name));
    let copies: Vec<PathBuf> = story.named().iter().map(|disk| copy(disk, &directory)).collect();
    let before = fingerprints(&copies);
    let recover = |arguments: &[&str], members: &[PathBuf]| {
        let mut command = braid();
        command.current_dir(&directory).arg("recover").args(arguments).args(members);
        Run::of(&mut command).expect_success("recover")
    };
    let name = story.name;
    let saved = format!("braid-recover-{name}.saved");
    recover(&["--write-superblocks", name], &copies);
    assert_ne!(before, fingerprints(&copies), "superblocks are written");
    recover(&["--undo", &saved], &[]);
    assert_eq!(before, fingerprints(&copies), "all is as it was");
    let _ = fs::remove_file(directory.join(&saved));
    recover(&["--write-superblocks", name], &copies);
    let parts = story.parts(&directory);
    let there = parts.into_iter().filter(|part| Path::new(part).exists());
    let parts = there.collect::<Vec<String>>().join(" ");
    format!("take {name} {} {} {parts}\n", directory.display(), content.display())
}

fn copy(disk: &Path, directory: &Path) -> PathBuf {
    let to = directory.join(disk.file_name().expect("a name"));
    fs::copy(disk, &to).expect("a copy");
    to
}
