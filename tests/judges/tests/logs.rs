//! Arrays whose logs a real md kernel left in use (`logs/README.md`): with the same devices, Braid
//! gives what md gives, read-only through the log as well as assembled; or refuses and says why.

use crate::numbered::{Holds, Place};
use crate::served::Served;
use crate::support::{self, Run, braid, fingerprints, limited, program, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// md takes this journal for an empty one, and runs torn rows as clean.
const NOT_AS_MD: &str = "journal-5-3-bad-tail";

#[test]
fn partial_parity_logs_of_md_close_the_write_hole() {
    every_archive("partial_parity_logs_of_md_close_the_write_hole", "ppl-");
}

#[test]
fn journals_of_md_are_replayed() {
    every_archive("journals_of_md_are_replayed", "journal-");
}

/// One array, unpacked.
pub(crate) struct Archive {
    /// What it is called.
    pub(crate) name: String,
    /// Where its files are.
    pub(crate) directory: PathBuf,
    /// What the writers know.
    pub(crate) holds: Holds,
}

/// A line of expected.txt.
#[derive(Debug)]
struct Case {
    name: String,
    sha256: String,
    /// md ran it only by --force.
    forced: bool,
    degraded: bool,
    /// As md counts them, in sectors.
    mismatches: Option<u64>,
}

/// The names of the archives: those that `LOGS` lists, or all.
pub(crate) fn names(prefix: &str) -> Vec<String> {
    let wanted = std::env::var("LOGS").ok();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("logs");
    let files = fs::read_dir(folder).expect("the archives");
    let names = files.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names
        .filter_map(|name| name.ok()?.strip_suffix(".tar.gz").map(str::to_owned))
        .filter(|name| name.starts_with(prefix))
        .filter(|name| wanted.as_ref().is_none_or(|list| list.split(',').any(|one| one == name)))
        .collect();
    names.sort();
    names
}

impl Archive {
    /// Unpacks it below the directory of a test.
    pub(crate) fn unpack(name: &str, to: &Path) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("logs");
        let file = folder.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        Run::of(tar.arg("-xzf").arg(file).arg("-C").arg(to)).expect_success("unpacking");
        let directory = to.join(name);
        let holds = Holds::read(&support::read(&directory.join("holds.txt")));
        Self { name: name.into(), directory, holds }
    }

    fn cases(&self) -> Vec<Case> {
        let text = support::read(&self.directory.join("expected.txt"));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let all = lines[0][1];
        let case = |words: &Vec<&str>| match words[..] {
            [name, sha256, how, _, degraded, mismatches] => Some(Case {
                name: name.into(),
                sha256: sha256.into(),
                forced: how == "force",
                degraded: degraded != "degraded=0",
                mismatches: mismatches.strip_prefix("mismatches=").and_then(|n| n.parse().ok()),
            }),
            // What md never answers ought to be as with all members.
            [name, "hangs"] => Some(Case {
                name: name.into(),
                sha256: all.into(),
                forced: false,
                degraded: true,
                mismatches: None,
            }),
            _ => None,
        };
        lines.iter().filter_map(case).collect()
    }

    /// Copies of the devices that a case has, members first.
    pub(crate) fn devices(&self, case: &str) -> Vec<PathBuf> {
        let lost: Vec<&str> = case.strip_prefix("without-").unwrap_or("").split('-').collect();
        let directory = self.directory.join(case);
        fs::create_dir_all(&directory).expect("a directory");
        let copy = |label: String, file: String| {
            let from = self.directory.join(&file);
            let to = directory.join(&file);
            if lost.contains(&label.as_str()) || !from.exists() {
                return None;
            }
            fs::copy(from, &to).expect("a copy");
            Some(to)
        };
        let members = (0..9).map(|role: u32| (role.to_string(), format!("m{role}.img")));
        let journal = ("journal".to_owned(), "journal.img".to_owned());
        members.chain([journal]).filter_map(|(label, file)| copy(label, file)).collect()
    }

    /// Where blocks lie, of a partial parity log's array.
    fn place(&self) -> Place {
        Place {
            members: (0..9).filter(|n| self.directory.join(format!("m{n}.img")).exists()).count(),
            symmetric: support::read(&self.directory.join("create.txt")).contains("layout=ls"),
        }
    }

    /// Fails unless this is what md gives, or what a log of partial parity leaves open.
    fn expect(&self, case: &Case, content: &[u8], when: &str) {
        let file = self.directory.join("content");
        fs::write(&file, content).expect("a file");
        let run = Run::of(Command::new("sha256sum").arg(&file)).expect_success("sha256sum");
        if run.stdout.starts_with(&case.sha256) {
            return;
        }
        let lost: Option<usize> =
            case.name.strip_prefix("without-").and_then(|role| role.parse().ok());
        let place = self.place();
        let partial = self.name.starts_with("ppl-") && !self.name.contains("-bad-");
        let open = |block| partial && lost == Some(place.role_of(block));
        let findings = self.holds.judge(content, &open);
        let exact = !partial || lost.is_none();
        assert!(!exact && findings.is_empty(), "{when}: not what md gives; {findings:?}");
    }
}

fn every_archive(test: &str, prefix: &str) {
    let needed = ["tar", "sha256sum", "nbdcopy"].into_iter().try_for_each(program);
    if let Err(reason) = needed {
        return skip(test, &reason);
    }
    let directory = support::directory(test);
    let mut findings = Vec::new();
    for name in support::drawn(names(prefix)) {
        let archive = Archive::unpack(&name, &directory);
        for case in archive.cases() {
            if let Err(finding) = support::attempt(|| one(&archive, &case)) {
                findings.push(format!("{name}, {}: {finding}", case.name));
            }
        }
        fs::remove_dir_all(&archive.directory).expect("files of this test");
    }
    support::report(&findings);
}

fn one(archive: &Archive, case: &Case) {
    let devices = archive.devices(&case.name);
    let before = fingerprints(&devices);
    read_only(archive, case, &devices);
    assert_eq!(before, fingerprints(&devices), "braid cat wrote");
    assembled(archive, case, &devices);
}

/// `braid cat` of the devices.
fn read_only(archive: &Archive, case: &Case, devices: &[PathBuf]) {
    if archive.name == NOT_AS_MD && case.name != "without-journal" {
        refused(braid().arg("cat").args(devices), &["first block", "bring the journal back"]);
    } else if case.forced && case.degraded {
        refused(braid().arg("cat").args(devices), &["--force"]);
    } else {
        archive.expect(case, &cat(devices), "braid cat");
    }
}

/// `braid assemble`, all read, `braid check`, `braid stop`, and `braid cat` of what is left.
fn assembled(archive: &Archive, case: &Case, devices: &[PathBuf]) {
    let mut arguments = Vec::new();
    if case.degraded {
        arguments.push("--run");
    }
    let refuses = case.forced || archive.name == NOT_AS_MD;
    if refuses {
        let before = fingerprints(devices);
        let mut assemble = braid();
        assemble.args(["assemble", "--rename", "refused"]).args(&arguments).args(devices);
        refused(&mut assemble, &["--force"]);
        assert_eq!(before, fingerprints(devices), "refused, but written");
        arguments.push("--force");
    }
    let served = Served::start(&archive.name, devices, &arguments);
    // Where md was forced and parity had to be believed, it promises nothing.
    let promised = !refuses || case.forced && !case.degraded;
    let content = served.read();
    if promised {
        archive.expect(case, &content, "assembled");
    }
    if case.mismatches == Some(0) {
        served.wait_until_whole();
        assert_eq!(served.check(), 0, "mismatches");
    }
    served.stop();
    // Stopped before its resync is done, a degraded array that was forced is forced again.
    if promised {
        assert!(cat(devices) == content, "other content once it was stopped");
    }
}

/// What `braid cat` gives of these devices.
pub(crate) fn cat(devices: &[PathBuf]) -> Vec<u8> {
    let program = braid().get_program().to_owned();
    let mut command = limited(program.to_str().expect("a path of words"));
    let output = command.arg("cat").args(devices).output().expect("braid starts");
    assert!(output.status.success(), "cat: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// One line, and these words in it.
fn refused(command: &mut Command, words: &[&str]) {
    let run = Run::of(command).expect_status(1, "to be refused");
    assert_eq!(run.stderr.lines().count(), 1, "not one line: {run}");
    let missing = words.iter().find(|word| !run.stderr.contains(**word));
    assert_eq!(missing, None, "not said: {run}");
}
