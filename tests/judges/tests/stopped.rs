//! Data that md moves in place, stopped by mdadm in the middle: Braid restores the backup and ends
//! it, and md takes the array.

use crate::backups::hold;
use crate::made;
use crate::served::Served;
use crate::support::{self, guest, skip};
use braid_judges::Content;
use std::path::{Path, PathBuf};

const GUEST: &str = include_str!("stopped.sh");
const MEMBER_BYTES: u64 = 32 << 20;

/// name | members | before | mdadm --create | mdadm --grow
const TABLE: &str = "\
stopped-chunk | 3 | 3 | -e1.2 -l5 -c64 | -c128
stopped-less | 4 | 4 | -e1.0 -l4 -c128 | -c64
stopped-layout | 4 | 4 | -e1.2 -l5 -c64 | --layout=right-asymmetric
stopped-six | 4 | 3 | -e1.2 -l5 -c64 | --level=6 -n4";

/// One that was stopped.
struct Row {
    name: &'static str,
    directory: PathBuf,
    members: Vec<PathBuf>,
    content: Content,
}

impl Row {
    /// Nothing but parity of level 6 shows that md waited for the backup.
    fn options(&self) -> &'static [&'static str] {
        if self.name == "stopped-six" { &[] } else { &["--force"] }
    }

    fn end(&self) {
        let Self { name, directory, members, content } = self;
        let file = directory.join("backup").display().to_string();
        let options = [&["--backup-file", &file], self.options()].concat();
        let served = Served::start(name, members, &options);
        support::until("an end", || {
            let sync = &served.status()["sync"];
            sync["action"] == "idle" && sync["from"].is_null()
        });
        served.wait_until_whole();
        let before = support::read(&directory.join("size.txt"));
        assert_eq!(served.size_bytes().to_string(), before.trim(), "another size");
        served.expect(content, "gone on with");
        assert_eq!(served.check(), 0, "mismatches");
        served.stop();
    }
}

/// Returns the row, and the guest's call that makes it.
fn row(line: &'static str, root: &Path) -> (Row, String) {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, count, before, create, grow] = columns[..] else { panic!("bad line: {line}") };
    let directory = root.join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    let members = made::members_in(&directory, count.parse().expect("a number"));
    members.iter().for_each(|member| support::sparse_file(member, MEMBER_BYTES));
    let content = made::content_of(name);
    let at = directory.display();
    let call = format!("stopped {name} {} {before} {at} '{create}' '{grow}'\n", content.seed);
    (Row { name, directory, members, content }, call)
}

#[test]
fn braid_ends_what_md_moved_in_place_and_stopped() {
    let test = "braid_ends_what_md_moved_in_place_and_stopped";
    if let Err(reason) = guest::available() {
        return skip(test, &reason);
    }
    let root = support::directory("stopped");
    let pattern = env!("CARGO_BIN_EXE_pattern");
    let functions = format!("PATTERN={pattern}\nHOLD={}\n{GUEST}\n", hold().display());
    let rows: Vec<(Row, String)> =
        support::drawn(TABLE.lines()).into_iter().map(|line| row(line, &root)).collect();
    let calls: String = rows.iter().map(|(_, call)| call.as_str()).collect();
    guest::run("stopped", &format!("{functions}{calls}")).expect_success("md begins");
    let mut findings = Vec::new();
    let mut script = functions;
    for (row, _) in &rows {
        let Row { name, directory, content, .. } = row;
        match support::attempt(|| row.end()) {
            Ok(()) => script += &format!("holds {name} {} {}\n", content.seed, directory.display()),
            Err(why) => findings.push(format!("{name}: {why}")),
        }
    }
    guest::run("stopped-taken", &script).expect_success("md takes them");
    support::report(&findings);
}
