//! A journal that Braid gives to an array that is stopped is one for a real md kernel, which uses
//! it; and of one that Braid takes away md knows nothing any more.

use crate::braid_to_md::{available, create, members};
use crate::handoff::{Left, to_md_and_back};
use crate::served::Served;
use crate::support::{Run, braid, skip};
use braid_judges::Content;
use std::path::{Path, PathBuf};
use std::process::Command;

const MEMBER_BYTES: u64 = 12 << 20;
/// What Braid writes after md: seed, offset, length.
const BY_BRAID: (u64, u64, u64) = (5, (5 << 20) + 4096, 192 << 10);

#[test]
fn md_takes_arrays_that_were_given_a_journal_and_rid_of_it() {
    let test = "md_takes_arrays_that_were_given_a_journal_and_rid_of_it";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let given = vec![with_journal("given-5", "5", 3), with_journal("given-6", "6", 4)];
    let (used, said) = to_md_and_back(test, given);
    for Left { name, .. } in &used {
        assert!(said.contains(&format!("{name}: journal, ")), "{said}");
    }
    let rid: Vec<Left> = used.into_iter().map(without_journal).collect();
    let (rid, said) = to_md_and_back(test, rid);
    for Left { name, .. } in &rid {
        assert!(said.contains(&format!("{name}: resync, ")), "{said}");
    }
}

/// An array that was filled and stopped, and then given a journal: its last member.
fn with_journal(name: &str, level: &str, devices: usize) -> Left {
    let members = members(name, devices + 1, MEMBER_BYTES);
    let (journal, roles) = members.split_last().expect("members");
    create(name, level, roles, &["--bitmap", "none", "--chunk", "64K"]);
    let served = Served::start(name, roles, &[]);
    let content = Content::of(31);
    let size_bytes = served.size_bytes();
    served.fill(&content);
    served.wait_until_whole();
    served.stop();
    let device = ["--write-journal", journal.to_str().expect("a path")];
    update(name, roles, "journal", &device);
    let examined = examine(journal);
    assert!(examined.contains("Device Role : Journal"), "{examined}");
    let left = Left { name: name.into(), members, content, size_bytes };
    left.expect_by_cat("with the journal");
    left
}

/// Braid goes on where md stopped, with the journal, and takes that away.
fn without_journal(array: Left) -> Left {
    let Left { name, mut members, content, size_bytes } = array;
    let served = Served::start(&name, &members, &[]);
    served.expect(&content, "after md wrote");
    let (seed, offset, length) = BY_BRAID;
    let content = content.then(seed, offset, length);
    served.write(&content, offset, length);
    served.stop();
    update(&name, &members, "resync", &[]);
    let journal = members.pop().expect("a journal");
    let run = Run::of(Command::new("/sbin/mdadm").arg("--examine").arg(&journal));
    assert!(run.stderr.contains("No md superblock"), "{run}");
    for member in &members {
        let examined = examine(member);
        assert!(!examined.contains("ournal"), "{examined}");
    }
    Left { name, members, content, size_bytes }
}

fn update(name: &str, members: &[PathBuf], policy: &str, more: &[&str]) {
    let mut command = braid();
    command.args(["update", name, "-k", policy]).args(more).args(members);
    Run::of(&mut command).expect_success("update");
}

fn examine(member: &Path) -> String {
    let mut mdadm = Command::new("/sbin/mdadm");
    Run::of(mdadm.arg("--examine").arg(member)).expect_success("mdadm --examine").stdout
}
