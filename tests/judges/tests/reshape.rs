//! Arrays that a real md kernel stopped in the middle of a reshape: Braid reads what they held
//! before, also with each member left out, or says why it does not; and not one byte of any member
//! changes.

use crate::made::{self, Made};
use crate::served::Served;
use crate::support::{self, Run, braid, fingerprints, guest, skip};
use braid_judges::Content;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock};

/// name | members | before | stop (reshape.sh) | mdadm --create | mdadm --grow | readable without
///
/// The last column has the members each of which can be left out for sure. Without another one the
/// content is right as well, or refused.
const TABLE: &str = "
grow-early | 4 | 3 | past=3000 | -l5 -c64 --bitmap=none | -n4 | 0123
grow | 4 | 3 | past=60000 | -l5 -c64 --bitmap=none | -n4 | 0123
grow-bitmap | 4 | 3 | past=20000 | -l5 -c64 -binternal | -n4 | 0123
grow-cut | 4 | 3 | past=20000,cut | -l5 -c64 --bitmap=none | -n4 | 0123
grow-6 | 5 | 4 | past=20000 | -l6 -c64 --bitmap=none | -n5 | 01234
grow-two | 5 | 3 | past=20000 | -l5 -c32 --bitmap=none | -n5 | 01234
grow-090 | 4 | 3 | past=20000 | -e0.90 -l5 -c64 --bitmap=none | -n4 | 0123
grow-chunk | 4 | 3 | past=20000 | -l5 -c64 --bitmap=none | -n4 -c128 | 0123
shrink | 4 | 4 | size=51200,below=80000 | -l5 -c64 --bitmap=none -z26M | -n3 | 0123
shrink-late | 4 | 4 | size=51200,below=20000 | -l5 -c64 --bitmap=none -z26M | -n3 | 0123
chunk | 3 | 3 | past=9000 | -l5 -c64 --bitmap=none | -c128 |
layout | 3 | 3 | past=9000 | -l5 -c64 --bitmap=none | --layout=right-asymmetric |
six | 4 | 3 | past=9000 | -l5 -c64 --bitmap=none | --level=6 -n4 | 3
six-cut | 4 | 3 | past=9000,cut | -l5 -c64 --bitmap=none | --level=6 -n4 | 3
ten | 4 | 3 | past=9000 | -l10 -c64 --bitmap=none | -n4 | 0123
ten-chunk | 4 | 4 | past=9000 | -l10 -c64 --bitmap=none | -c128 | 0123
zero | 3 | 2 | past=9000,cut | -l0 -c64 | -n3 --add NEW |
file-chunk | 3 | 3 | past=100,killed,cut | -l5 -c64 --bitmap=none | -c128 --backup-file=backup |
";

const MEMBER_BYTES: u64 = 32 << 20;

/// The members are read by several tests, and served by one, which has them alone.
static USERS: RwLock<()> = RwLock::new(());

/// An array that stopped on its way.
#[derive(Debug)]
struct Stopped {
    name: String,
    before: usize,
    stop: String,
    create: String,
    grow: String,
    without: Vec<usize>,
    directory: PathBuf,
    members: Vec<PathBuf>,
    content: Content,
}

impl Made for Stopped {
    const GUEST: &str = include_str!("reshape.sh");

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn members(&self) -> Vec<(&Path, u64)> {
        self.members.iter().map(|path| (path.as_path(), MEMBER_BYTES)).collect()
    }

    fn copies(&self) -> Vec<&'static str> {
        if self.is_readable() { Vec::new() } else { vec!["backup"] }
    }

    fn content(&self) -> &Content {
        &self.content
    }

    fn call(&self) -> String {
        let Self { name, before, stop, create, grow, content, .. } = self;
        let directory = self.directory.display();
        let seed = content.seed;
        format!("half {name} {seed} {before} {stop} {directory} '{create}' '{grow}'")
    }
}

impl Stopped {
    /// With the mdadm that makes backups killed, more had been moved in the one trial than the file
    /// held, and what the array held could not be had from what was left.
    fn is_readable(&self) -> bool {
        !self.grow.contains("--backup-file")
    }

    /// How it is read: md lets go of the new member of a level 4 that was a level 0 when it stops,
    /// and such a one is taken only when that is asked for.
    fn options(&self) -> Vec<String> {
        if self.name == "zero" { vec!["--force".into()] } else { Vec::new() }
    }

    fn but(&self, without: &[usize]) -> Vec<PathBuf> {
        let members = self.members.iter().enumerate();
        members
            .filter(|(index, _)| !without.contains(index))
            .map(|(_, path)| path.clone())
            .collect()
    }
}

/// All of the table.
fn all() -> &'static [Stopped] {
    static MADE: OnceLock<Result<Vec<Stopped>, String>> = OnceLock::new();
    MADE.get_or_init(make).as_ref().unwrap_or_else(|reason| panic!("{reason}"))
}

fn named(name: &str) -> &'static Stopped {
    all().iter().find(|array| array.name == name).unwrap_or_else(|| panic!("no array {name}"))
}

fn make() -> Result<Vec<Stopped>, String> {
    let arrays = table();
    made::unpack_all("reshape", &arrays)?;
    Ok(arrays)
}

#[test]
#[ignore = "makes the committed archive anew"]
fn make_archive() {
    made::make_all("reshape", &table()).expect("a guest");
    made::pack_all("reshape", &table());
}

fn table() -> Vec<Stopped> {
    TABLE.lines().filter(|line| !line.is_empty()).map(parse).collect()
}

fn parse(line: &str) -> Stopped {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, members, before, stop, create, grow, without] = columns[..] else {
        panic!("bad line: {line}")
    };
    let directory = support::base().join("reshape").join(name);
    let count: usize = members.parse().expect("a number");
    Stopped {
        name: name.into(),
        before: before.parse().expect("a number"),
        stop: stop.into(),
        create: create.into(),
        grow: grow.into(),
        without: without.bytes().map(|digit| usize::from(digit - b'0')).collect(),
        members: made::members_in(&directory, count),
        content: made::content_of(name),
        directory,
    }
}

/// `braid cat`: right, refused with this line, or wrong. And what else was said.
fn cat(array: &Stopped, members: &[PathBuf], options: &[String]) -> Result<String, String> {
    let _reader = USERS.read().unwrap_or_else(PoisonError::into_inner);
    let mut command = braid();
    command.arg("cat").args(members).args(options);
    if array.stop.starts_with("size=") {
        // Superblocks do not say that an array was made smaller to be shrunk.
        command.args(["--length", &array.size_bytes().to_string()]);
    }
    made::content_by(&mut command, &array.content, array.size_bytes())
}

#[test]
fn reads_arrays_in_the_middle_of_a_reshape() {
    if let Err(reason) = guest::available() {
        return skip("reads_arrays_in_the_middle_of_a_reshape", &reason);
    }
    let mut findings = Vec::new();
    for array in support::drawn(all().iter().filter(|array| array.is_readable())) {
        let before = fingerprints(&array.members);
        let name = &array.name;
        if let Err(why) = cat(array, &array.members, &array.options()) {
            findings.push(format!("{name}: {why}"));
        }
        for index in 0..array.members.len() {
            let read = cat(array, &array.but(&[index]), &[]);
            match (read, array.without.contains(&index)) {
                (Ok(_), _) => {}
                (Err(why), false) if why.starts_with("refused: ") => {}
                (read, _) => findings.push(format!("{name} without {index}: {read:?}")),
            }
        }
        if fingerprints(&array.members) != before {
            findings.push(format!("{name}: reading changed a member"));
        }
    }
    support::report(&findings);
}

/// Those that Braid goes on with, where the position is old after it has looked for the true one.
const GO_ON: [&str; 15] = [
    "grow-early",
    "grow",
    "grow-bitmap",
    "grow-cut",
    "grow-6",
    "grow-two",
    "grow-090",
    "shrink",
    "shrink-late",
    "ten",
    "ten-chunk",
    "chunk",
    "layout",
    "six",
    "six-cut",
];

/// md has begun, and stopped or lost its power; Braid ends it, with all members and without the
/// last one, which was added.
#[test]
fn ends_what_md_began() {
    if let Err(reason) = guest::available() {
        return skip("ends_what_md_began", &reason);
    }
    let mut findings = Vec::new();
    // That of stripes is taken only when that is asked for.
    for name in support::drawn(GO_ON.into_iter().chain(["zero"])) {
        let array = named(name);
        // Where the position is old, only all members tell the true one.
        let counts = if array.without.len() == array.members.len() { 0..=1 } else { 0..=0 };
        for without in counts {
            let end = |what: &str| end(array, without, what);
            if let Err(finding) = support::attempt(|| end("goes on")) {
                findings.push(format!("{name} without {without}: {finding}"));
            }
        }
    }
    support::report(&findings);
}

fn end(array: &Stopped, without: usize, what: &str) {
    let directory = support::directory(&format!("reshape-ends-{}-{without}", array.name));
    let kept = &array.members[..array.members.len() - without];
    let members: Vec<PathBuf> =
        (0..kept.len()).map(|number| directory.join(format!("m{number}.img"))).collect();
    for (from, to) in kept.iter().zip(&members) {
        fs::copy(from, to).expect("a copy");
    }
    let forced = array.options();
    let options = if without > 0 { &["--run"][..] } else { &[] };
    let options = options.iter().copied().chain(forced.iter().map(String::as_str));
    let options: Vec<&str> = options.collect();
    // Another test serves it under its own name.
    let served = Served::start(&format!("ends-{}", array.name), &members, &options);
    support::until("an end", || {
        let sync = &served.status()["sync"];
        sync["action"] == "idle" && sync["from"].is_null()
    });
    let after = served.size_bytes();
    let before = array.size_bytes().min(after);
    served.write(&array.content, before, after - before);
    served.expect(&array.content, what);
    if array.name == "zero" {
        assert_eq!(served.status()["level"], "raid0", "{what}");
    } else if without == 0 {
        served.wait_until_whole();
        assert_eq!(served.check(), 0, "{what}: mismatches");
    }
    served.stop();
}

#[test]
fn serves_arrays_in_the_middle_of_a_reshape() {
    if let Err(reason) = guest::available() {
        return skip("serves_arrays_in_the_middle_of_a_reshape", &reason);
    }
    for array in support::drawn(all().iter().filter(|array| array.is_readable())) {
        let _alone = USERS.write().unwrap_or_else(PoisonError::into_inner);
        let before = fingerprints(&array.members);
        if !GO_ON.contains(&array.name.as_str()) {
            let refused = Run::of(braid().arg("assemble").args(&array.members));
            let refused = refused.expect_status(1, "assembling to write").stderr;
            assert!(refused.contains("--readonly"), "{}: {refused}", array.name);
        }
        let options = array.options();
        let options: Vec<&str> =
            std::iter::once("--readonly").chain(options.iter().map(String::as_str)).collect();
        let served = Served::start(&array.name, &array.members, &options);
        served.expect(&array.content, "in the middle of a reshape");
        Run::of(&mut served.braid("detail")).expect_success("detail");
        served.stop();
        assert_eq!(fingerprints(&array.members), before, "{}", array.name);
    }
}

#[test]
fn does_not_believe_a_stale_position() {
    if let Err(reason) = guest::available() {
        return skip("does_not_believe_a_stale_position", &reason);
    }
    for name in ["six", "chunk", "layout"] {
        let array = named(name);
        let said = cat(array, &array.members, &[]).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(said.contains("md would go on from the wrong place"), "{name}: {said}");
    }
}

#[test]
fn asks_for_the_backup() {
    if let Err(reason) = guest::available() {
        return skip("asks_for_the_backup", &reason);
    }
    let array = named("file-chunk");
    let refused = cat(array, &array.members, &[]).expect_err("a backup is needed");
    assert!(refused.contains("--backup-file"), "{refused}");
    let foreign = named("grow").members[0].display().to_string();
    let options = ["--backup-file".to_owned(), foreign];
    let refused = cat(array, &array.members, &options).expect_err("no backup");
    assert!(refused.contains("no backup file of mdadm's"), "{refused}");
}

/// Each map opens the members that both have once more: at a server, by another connection.
#[test]
fn reads_members_at_servers() {
    let available = guest::available().and_then(|()| support::program("qemu-nbd"));
    if let Err(reason) = available {
        return skip("reads_members_at_servers", &reason);
    }
    let array = named("grow");
    let directory = std::env::temp_dir().join(format!("bj-{}-servers", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let mut servers = Vec::new();
    let mut uris = Vec::new();
    for (number, member) in array.members.iter().enumerate() {
        let socket = directory.join(number.to_string());
        // A copy: QEMU takes no file that another test has locked.
        let copy = directory.join(format!("m{number}.img"));
        fs::copy(member, &copy).expect("a copy");
        let mut server = Command::new("qemu-nbd");
        server.args(["--read-only", "--persistent", "--shared=0", "-f", "raw", "-k"]);
        server.stderr(Stdio::null());
        servers.push(server.arg(&socket).arg(copy).spawn().expect("qemu-nbd starts"));
        support::until("a server", || UnixStream::connect(&socket).is_ok());
        uris.push(PathBuf::from(format!("nbd+unix:///?socket={}", socket.display())));
    }
    let read = cat(array, &uris, &[]);
    for server in &mut servers {
        let _ = server.kill();
        let _ = server.wait();
    }
    let _ = fs::remove_dir_all(&directory);
    assert!(read.is_ok(), "{read:?}");
}

/// The power goes off while superblocks are written: one member has the position of before.
#[test]
fn reads_where_a_member_missed_the_last_position() {
    if let Err(reason) = guest::available() {
        return skip("reads_where_a_member_missed_the_last_position", &reason);
    }
    let array = named("grow");
    let directory = support::directory("reshape-older");
    for late in 0..array.members.len() {
        let members: Vec<PathBuf> = (0..array.members.len())
            .map(|number| directory.join(format!("m{number}.img")))
            .collect();
        for (from, to) in array.members.iter().zip(&members) {
            fs::copy(from, to).expect("a copy");
        }
        set_back(&members[late]);
        let read = cat(array, &members, &[]);
        assert!(read.is_ok(), "member {late}: {read:?}");
    }
}

/// Takes one event and one unit from a superblock 1.2.
fn set_back(member: &Path) {
    const AT: u64 = 4096;
    let file = fs::OpenOptions::new().read(true).write(true).open(member).expect("a member");
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, AT).expect("a superblock");
    let number = |block: &[u8], at: usize| {
        u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
    };
    let events = number(&block, 200) - 1;
    let position = number(&block, 104) - 384;
    block[200..208].copy_from_slice(&events.to_le_bytes());
    block[104..112].copy_from_slice(&position.to_le_bytes());
    block[216..220].fill(0);
    let word = |block: &[u8], at: usize| {
        u64::from(u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes")))
    };
    let length = 256 + 2 * word(&block, 220) as usize;
    block[length..].fill(0);
    let sum: u64 = (0..length.next_multiple_of(4)).step_by(4).map(|at| word(&block, at)).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    block[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
    file.write_all_at(&block, AT).expect("a superblock");
}

#[test]
fn examines_a_reshape_as_mdadm_does() {
    if let Err(reason) = guest::available() {
        return skip("examines_a_reshape_as_mdadm_does", &reason);
    }
    let mut findings = Vec::new();
    for array in all() {
        let mut compared = 0;
        for (number, member) in array.members.iter().enumerate() {
            let theirs = support::read(&array.directory.join(format!("examine-{number}.txt")));
            let run = Run::of(braid().arg("examine").arg(member)).expect_success("examine");
            let ours: Vec<&str> = run.stdout.lines().map(str::trim).collect();
            let told = theirs.lines().map(str::trim);
            let told = told.skip_while(|line| !line.starts_with("Reshape pos'n"));
            for line in told.take_while(|line| !line.is_empty()) {
                compared += 1;
                if !ours.contains(&line) {
                    findings.push(format!("{} member {number}: no line {line}", array.name));
                }
            }
        }
        assert!(compared > 0, "{}: mdadm tells of no reshape", array.name);
    }
    support::report(&findings);
}

#[test]
fn explains_a_reshape() {
    if let Err(reason) = guest::available() {
        return skip("explains_a_reshape", &reason);
    }
    let array = named("grow");
    let run = Run::of(braid().args(["assemble", "--explain"]).args(&array.members));
    assert!(run.stdout.contains("a reshape from 3 to 4 members at "), "{run}");
    assert!(run.stdout.contains("goes on"), "{run}");
    assert!(run.stdout.contains("next: ") && run.stdout.contains("--readonly"), "{run}");
}
