//! Machines that died in the middle of a reshape of which mdadm made backups: kernel, mdadm and all
//! at one moment. Braid reads what the array held before, md agrees where it can be asked, and not
//! one byte of any member changes.

use crate::made::{self, Made};
use crate::served::Served;
use crate::support::{self, Run, braid, fingerprints, guest, skip};
use braid_judges::Content;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const HOLD: &str = include_str!("hold.c");
const MEMBER_BYTES: u64 = 32 << 20;

/// name | members | before | moment (backups.sh) | mdadm --create | mdadm --grow (FILE: with one)
const TABLE: &str = "
six | 4 | 3 | past=3000 | -e1.2 -l5 -c64 | --level=6 -n4 FILE
six-late | 4 | 3 | past=9000,wait=0.7 | -e1.2 -l5 -c64 | --level=6 -n4 FILE
chunk | 3 | 3 | past=3000,wait=0.4 | -e1.2 -l5 -c64 | -c128 FILE
chunk-end | 3 | 3 | past=5000,late,wait=3 | -e1.2 -l5 -c64 | -c128 FILE
chunk-less | 4 | 4 | past=8000,wait=0.2 | -e1.1 -l5 -c128 | -c32 FILE
layout | 4 | 4 | past=6000,speed=2000 | -e1.2 -l5 -c64 | --layout=right-asymmetric FILE
chunk-6 | 5 | 5 | past=8000,wait=0.5 | -e1.2 -l6 -c64 | -c32 FILE
shrink | 4 | 4 | size=16384,below=6000,wait=0.6 | -e1.2 -l5 -c512 -z8M | -n3 FILE
grow | 4 | 3 | past=0,wait=1.5,speed=200 | -e1.2 -l5 -c512 | -n4 FILE
grow-090 | 4 | 3 | past=0,wait=1.5,speed=200 | -e0.90 -l5 -c512 | -n4 FILE
six-090 | 4 | 3 | past=3000 | -e0.90 -l5 -c64 | --level=6 -n4 FILE
spare-090 | 5 | 3 | past=0,wait=1.5,speed=200 | -e0.90 -l5 -c512 | -n4
spare | 5 | 3 | past=0,wait=1.5,speed=200 | -e1.0 -l5 -c512 | -n4
spare-new | 4 | 3 | past=3000,wait=0.3,speed=200 | -e1.0 -l5 -c512 | -n4
ahead-six | 4 | 3 | past=0,wait=4,ahead | -e1.2 -l5 -c64 | --level=6 -n4 FILE
ahead-chunk-6 | 5 | 5 | past=0,wait=6,ahead,speed=1000 | -e1.2 -l6 -c64 | -c32 FILE
ahead-chunk | 3 | 3 | past=0,wait=4,ahead | -e1.2 -l5 -c64 | -c128 FILE
";

/// An array whose machine died.
#[derive(Debug)]
struct Dead {
    name: String,
    before: usize,
    moment: String,
    create: String,
    grow: String,
    directory: PathBuf,
    members: Vec<PathBuf>,
    content: Content,
}

impl Made for Dead {
    /// What holds mdadm is a part of the recipe, though the guest gets it as a library.
    const GUEST: &str =
        concat!(include_str!("backups.sh"), ": <<'END'\n", include_str!("hold.c"), "END\n");

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn members(&self) -> Vec<(&Path, u64)> {
        self.members.iter().map(|path| (path.as_path(), MEMBER_BYTES)).collect()
    }

    fn copies(&self) -> Vec<&'static str> {
        if self.has_backup() { vec!["backup"] } else { Vec::new() }
    }

    fn content(&self) -> &Content {
        &self.content
    }

    fn call(&self) -> String {
        let Self { name, before, moment, create, grow, content, .. } = self;
        let directory = self.directory.display();
        let seed = content.seed;
        format!("die {name} {seed} {before} {moment} {directory} '{create}' '{grow}'")
    }
}

impl Dead {
    fn make(&self) -> Result<(), String> {
        if self.is_made() {
            return Ok(());
        }
        self.begin();
        let script =
            format!("HOLD={}\n{}{}\n", hold().display(), made::guest::<Self>(), self.call());
        let run = guest::with_disks(&format!("backup-{}", self.name), &script, &self.members);
        if !self.directory.join("died").exists() {
            return Err(format!("{}: {run}", self.name));
        }
        self.finish();
        Ok(())
    }

    fn has_backup(&self) -> bool {
        self.grow.contains("FILE")
    }

    fn backup(&self) -> Option<PathBuf> {
        self.has_backup().then(|| self.directory.join("backup"))
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = braid();
        command.arg("cat").args(&self.members).args(options);
        if let Some(file) = self.backup() {
            command.arg("--backup-file").arg(file);
        }
        // Superblocks do not say that an array was made smaller to be shrunk.
        command.args(["--length", &self.size_bytes().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `braid cat`: right, refused with this line, or wrong. And what else was said.
    fn cat(&self) -> Result<String, String> {
        made::content_by(&mut self.command(&[]), &self.content, self.size_bytes())
    }
}

/// Sectors that are not as they were before: the first one, and the end of the last one.
fn wrong(array: &Dead, found: &[u8]) -> Option<(u64, u64)> {
    let mut expected = vec![0; found.len()];
    array.content.fill(0, &mut expected);
    let sectors = found.chunks(512).zip(expected.chunks(512)).enumerate();
    let mut wrong = sectors.filter(|(_, (found, expected))| found != expected);
    let (first, _) = wrong.next()?;
    let last = wrong.next_back().map_or(first, |(last, _)| last);
    Some((first as u64, last as u64 + 1))
}

/// What has mdadm wait, as older ones do.
pub(crate) fn hold() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let directory = support::directory("backups-hold");
        let source = directory.join("hold.c");
        let object = directory.join("hold.so");
        fs::write(&source, HOLD).expect("a source");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&object).arg(&source);
        Run::of(&mut cc).expect_success("cc");
        object
    };
    MADE.get_or_init(make).clone()
}

fn parse(line: &str) -> Dead {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, members, before, moment, create, grow] = columns[..] else {
        panic!("bad line: {line}")
    };
    let directory = support::base().join("backups").join(name);
    let count: usize = members.parse().expect("a number");
    Dead {
        name: name.into(),
        before: before.parse().expect("a number"),
        moment: moment.into(),
        create: create.into(),
        grow: grow.into(),
        members: made::members_in(&directory, count),
        content: made::content_of(name),
        directory,
    }
}

/// All of the table.
fn all() -> &'static [Dead] {
    static MADE: OnceLock<Result<Vec<Dead>, String>> = OnceLock::new();
    let make = || {
        let arrays = table();
        made::unpack_all("backups", &arrays)?;
        Ok(arrays)
    };
    MADE.get_or_init(make).as_ref().unwrap_or_else(|reason| panic!("{reason}"))
}

/// Two at a time.
#[test]
#[ignore = "makes the committed archive anew"]
fn make_archive() {
    let arrays = table();
    let halves = [0, 1].map(|half| arrays.iter().skip(half).step_by(2));
    std::thread::scope(|scope| {
        for half in halves {
            scope.spawn(|| half.for_each(|array| array.make().expect("a guest")));
        }
    });
    made::pack_all("backups", &arrays);
}

/// The guest's side of this, which has `go_on`.
pub(crate) fn guest_functions() -> String {
    made::guest::<Dead>()
}

fn table() -> Vec<Dead> {
    TABLE.lines().filter(|line| !line.is_empty()).map(parse).collect()
}

fn is_ahead(array: &Dead) -> bool {
    array.moment.contains("ahead")
}

#[test]
fn reads_what_a_machine_left_that_died_beside_its_backups() {
    let test = "reads_what_a_machine_left_that_died_beside_its_backups";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let mut findings = Vec::new();
    for array in support::drawn(all().iter().filter(|array| !is_ahead(array))) {
        let mut files = array.members.clone();
        files.extend(array.backup());
        let before = fingerprints(&files);
        let read = array.cat();
        println!("{}: {read:?}", array.name);
        if let Err(why) = read {
            findings.push(format!("{}: {why}", array.name));
        }
        if fingerprints(&files) != before {
            findings.push(format!("{}: reading changed a file", array.name));
        }
    }
    support::report(&findings);
}

/// md restores what mdadm finds in the backups, and goes on with the reshape to its end.
#[test]
fn md_agrees_with_what_is_read_with_backups() {
    let test = "md_agrees_with_what_is_read_with_backups";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let root = support::directory("backups-go-on");
    let mut script = guest_functions();
    let asked = support::drawn(all().iter().filter(|array| !is_ahead(array)));
    for array in &asked {
        let directory = root.join(&array.name);
        copy(array, &directory);
        // What a larger array has behind it was never written.
        let kib = (array.size_bytes() >> 10).to_string();
        fs::write(directory.join("limit"), kib).expect("a writable directory");
        let directory = directory.display();
        script += &format!("go_on {} {} {directory}\n", array.name, array.content.seed);
    }
    guest::run("backups-go-on", &script).expect_success("md goes on");
    let mut findings = Vec::new();
    for array in asked {
        let directory = root.join(&array.name);
        let answer = support::read(&directory.join("answer.txt"));
        let verdict = fs::read_to_string(directory.join("verdict.txt"));
        println!("{}: {verdict:?}: {answer}", array.name);
        // Where all was restored down to the first sector, md takes that for too early to go on.
        let is_refused = array.name == "shrink" && answer.contains("failed to RUN_ARRAY");
        if !verdict.is_ok_and(|verdict| verdict == "right\n") && !is_refused {
            findings.push(format!("{}: {answer}", array.name));
        }
    }
    support::report(&findings);
}

/// mdadm 4.2 lets md go on before there is a backup. Parity tells what was moved all the same, but
/// not what was being written.
#[test]
fn level_6_tells_what_was_moved_ahead_of_the_backups() {
    let test = "level_6_tells_what_was_moved_ahead_of_the_backups";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    for array in all().iter().filter(|array| is_ahead(array) && array.name != "ahead-chunk") {
        let name = &array.name;
        let read = array.cat();
        println!("{name}: {read:?}");
        let is_told = |why: &String| why.contains("were being moved, and no backup");
        assert!(read.as_ref().err().is_none_or(is_told), "{name}: {read:?}");
        let output = array.command(&["--force"]).output().expect("braid runs");
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{name}: {said}");
        assert_eq!(output.stdout.len() as u64, array.size_bytes(), "{name}: {said}");
        if let Some((from, until)) = wrong(array, &output.stdout) {
            let words: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [start, end] = words[..] else { panic!("{name}: {said}") };
            assert!(start <= from && until <= end, "{name}: {from} to {until}: {said}");
            assert!(said.contains("were being moved"), "{name}: {said}");
        }
    }
}

#[test]
fn says_where_nothing_tells_what_was_moved_ahead_of_the_backups() {
    let test = "says_where_nothing_tells_what_was_moved_ahead_of_the_backups";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let array = all().iter().find(|array| array.name == "ahead-chunk").expect("the array");
    let output = array.command(&[]).output().expect("braid runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nothing shows that md waited for the backup"), "{said}");
}

/// Those that Braid goes on with once the backup is where the new map has it. Of some nothing shows
/// that md waited for the backup: it did.
const GO_ON: [(&str, &[&str]); 14] = [
    ("six", &[]),
    ("six-late", &[]),
    ("chunk", &["--force"]),
    ("chunk-end", &[]),
    ("chunk-less", &["--force"]),
    ("layout", &["--force"]),
    ("chunk-6", &[]),
    ("shrink", &[]),
    ("six-090", &[]),
    ("grow", &["--force"]),
    ("grow-090", &[]),
    ("spare", &[]),
    ("spare-090", &[]),
    ("spare-new", &["--force"]),
];

#[test]
fn goes_on_once_backups_are_restored() {
    let test = "goes_on_once_backups_are_restored";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let root = support::directory("backups-ends");
    let mut findings = Vec::new();
    for array in support::drawn(all().iter().filter(|array| !is_ahead(array))) {
        let _ = fs::remove_dir_all(&root);
        copy(array, &root);
        let goes_on = GO_ON.iter().find(|(name, _)| *name == array.name);
        let forced = goes_on.map(|(_, options)| *options);
        if let Err(why) = support::attempt(|| end(array, &root, forced)) {
            findings.push(format!("{}: {why}", array.name));
        }
    }
    support::report(&findings);
}

/// Braid goes on with these options, or with none.
fn end(array: &Dead, directory: &Path, options: Option<&[&str]>) {
    let members = made::members_in(directory, array.members.len());
    let mut command = braid();
    command.arg("assemble").args(&members);
    let file = directory.join("backup").display().to_string();
    let backup = if array.has_backup() { vec!["--backup-file", &file] } else { Vec::new() };
    if options.is_none_or(|options| !options.is_empty()) {
        let before = fingerprints(&members);
        let refused = Run::of(command.args(&backup)).expect_status(1, "assembling to write");
        assert!(refused.stderr.contains("--readonly"), "{refused}");
        assert_eq!(fingerprints(&members), before, "refusing changed a member");
    }
    let Some(options) = options else { return };
    let name = format!("backups-{}", array.name);
    let served = Served::start(&name, &members, &[&backup, options].concat());
    support::until("an end", || {
        let sync = &served.status()["sync"];
        sync["action"] == "idle" && sync["from"].is_null()
    });
    let before = array.size_bytes();
    let after = served.size_bytes();
    assert!(after >= before, "{before} bytes became {after}");
    if after > before {
        served.write(&array.content, before, after - before);
    }
    served.expect(&array.content, "gone on with");
    // Q of what was level 5 is brought in line when all have moved.
    served.wait_until_whole();
    assert_eq!(served.check(), 0, "mismatches");
    served.stop();
}

/// Those of which Braid saves the rest to the same file, and enough is left for a window of it.
const SAVED: [&str; 5] = ["six", "chunk", "chunk-end", "chunk-6", "six-090"];

/// Goes on slowly, and is killed once something is saved; returns whether it was in time.
fn went_on(array: &Dead, directory: &Path) -> bool {
    copy(array, directory);
    let members = made::members_in(directory, array.members.len());
    let backup = directory.join("backup");
    let file = backup.display().to_string();
    let options = ["--max", "1M", "--force", "--backup-file", &file];
    let served = Served::in_foreground(&format!("went-on-{}", array.name), &members, &options);
    // Until then it is mdadm's, or tells of nothing.
    let before = header(&array.directory.join("backup"));
    support::until("a window that is saved", || {
        (0..5000).any(|_| {
            let found = header(&backup);
            found.2 > 0 && found != before
        })
    });
    served.kill();
    header(&backup).2 > 0
}

/// md began, and died; Braid went on, and was killed; md restores what Braid saved, and ends it.
#[test]
fn md_ends_what_braid_went_on_with() {
    let test = "md_ends_what_braid_went_on_with";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let root = support::directory("backups-back");
    let mut script = guest_functions();
    let rows = all().iter().filter(|array| SAVED.contains(&array.name.as_str()));
    let asked = support::drawn(rows);
    for array in &asked {
        let directory = root.join(&array.name);
        let is_in_time = (0..20).any(|_| went_on(array, &directory));
        assert!(is_in_time, "{}: never killed in the middle of a window", array.name);
        let kib = (array.size_bytes() >> 10).to_string();
        fs::write(directory.join("limit"), kib).expect("a writable directory");
        let directory = directory.display();
        script += &format!("go_on {} {} {directory}\n", array.name, array.content.seed);
    }
    guest::run("backups-back", &script).expect_success("md goes on");
    let mut findings = Vec::new();
    for array in asked {
        let directory = root.join(&array.name);
        let answer = support::read(&directory.join("answer.txt"));
        let verdict = fs::read_to_string(directory.join("verdict.txt"));
        println!("{}: {verdict:?}: {answer}", array.name);
        let is_right = verdict.is_ok_and(|verdict| verdict == "right\n");
        if !is_right || !answer.contains("restoring critical section") {
            findings.push(format!("{}: {answer}", array.name));
        }
    }
    support::report(&findings);
}

/// The header of a file: when it was written, the first sector that is kept, and the number of
/// sectors.
pub(crate) fn header(spill: &Path) -> (u64, u64, u64) {
    let mut numbers = [0; 32];
    let read = fs::File::open(spill).and_then(|file| file.read_exact_at(&mut numbers, 32));
    read.expect("a header");
    let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("8 bytes"));
    (number(0), number(16), number(24))
}

fn copy(array: &Dead, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for file in array.members.iter().cloned().chain(array.backup()) {
        let name = file.file_name().expect("a name");
        fs::copy(&file, to.join(name)).expect("a copy");
    }
}
