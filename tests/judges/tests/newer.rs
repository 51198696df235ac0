//! What kernels from 6.19 on put into superblocks where older ones want zeroes.

use crate::braid_to_md::{available, create, members};
use crate::served::Served;
use crate::support::{self, Run, braid, guest, skip};
use braid_judges::Content;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// Where a 1.2 superblock lies, in bytes.
const AT: u64 = 4096;
const LOGICAL_BLOCK_SIZE: usize = 224;
const PAD3: usize = 228;

/// Puts a field into the superblocks, and the checksum over 128 roles right again.
fn put(members: &[PathBuf], at: usize, field: u32) {
    for member in members {
        let file = OpenOptions::new().read(true).write(true).open(member).expect("a member");
        let mut bytes = [0; 512];
        file.read_exact_at(&mut bytes, AT).expect("a superblock");
        bytes[at..at + 4].copy_from_slice(&field.to_le_bytes());
        bytes[216..220].fill(0);
        let words = bytes.as_chunks::<4>().0;
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
        let folded = (sum & 0xffff_ffff) + (sum >> 32);
        bytes[216..220].copy_from_slice(&folded.to_le_bytes()[..4]);
        file.write_all_at(&bytes, AT).expect("room");
    }
}

fn examined(member: &PathBuf) -> serde_json::Value {
    let run = Run::of(braid().args(["examine", "--json"]).arg(member)).expect_success("examine");
    let found: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    found[0].clone()
}

#[test]
fn the_logical_block_size_is_kept_and_exported() {
    let test = "the_logical_block_size_is_kept_and_exported";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("newer-blocks", 2, 32 << 20);
    create("newer-blocks", "1", &members, &["--assume-clean"]);
    put(&members, LOGICAL_BLOCK_SIZE, 4096);
    let served = Served::start("newer-blocks", &members, &[]);
    let info = Run::of(Command::new("nbdinfo").arg(served.uri())).expect_success("nbdinfo");
    assert!(info.stdout.contains("block_size_minimum: 4096"), "{info}");
    let content = Content::of(0).then(5, 1 << 20, 65536);
    served.write(&content, 1 << 20, 65536);
    served.stop();
    for member in &members {
        let found = examined(member);
        assert_eq!(found["logical_block_size_bytes"], 4096, "{found}");
        assert!(found["events"].as_u64() > Some(1), "{found}");
    }
}

/// The md kernel here is older than all of these fields, and refuses them, too.
#[test]
fn fields_of_a_newer_md_are_refused_and_nothing_is_written() {
    let test = "fields_of_a_newer_md_are_refused_and_nothing_is_written";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("newer-pads", 2, 32 << 20);
    create("newer-pads", "1", &members, &["--assume-clean"]);
    put(&members, PAD3, 1);
    let before = support::fingerprints(&members);
    let run = Run::of(braid().args(["assemble", "--rename", "newer-pads"]).args(&members));
    let run = run.expect_status(1, "assembling what a newer md made");
    assert!(run.stderr.contains("superblock fields of a newer md"), "{run}");
    assert_eq!(support::fingerprints(&members), before, "a refused member changed");
    let directory = members[0].parent().expect("a directory").display();
    let md = || {
        let assemble = "mdadm --assemble --run /dev/md0 \"${LOOPS[@]}\"";
        guest::run(test, &format!("cd {directory}\nattach m0.img m1.img\n{assemble}\n"))
    };
    md().expect_status(1, "md takes what a newer md made");
    put(&members, PAD3, 0);
    md().expect_success("md takes it without");
}

/// What Braid advises where no member's bitmap can be read, a real md carries out.
#[test]
fn a_lost_bitmap_is_dropped_as_braid_advises() {
    let test = "a_lost_bitmap_is_dropped_as_braid_advises";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("lost-bitmap", 3, 32 << 20);
    create("lost-bitmap", "5", &members, &["--bitmap", "internal", "--assume-clean"]);
    let served = Served::start("lost-bitmap", &members, &[]);
    let content = Content::of(6);
    served.fill(&content);
    served.stop();
    for member in &members {
        let file = OpenOptions::new().write(true).open(member).expect("a member");
        file.write_all_at(&[0; 4096], AT + 4096).expect("a bitmap");
    }
    let run = Run::of(braid().args(["assemble", "--rename", "lost-bitmap"]).args(&members));
    let run = run.expect_status(1, "assembling without a bitmap");
    assert!(run.stderr.contains("no member's bitmap can be read"), "{run}");
    let directory = members[0].parent().expect("a directory").display();
    let script = format!(
        "cd {directory}\nattach m0.img m1.img m2.img\n\
         md --assemble --update=no-bitmap /dev/md0 \"${{LOOPS[@]}}\"\n\
         md --stop /dev/md0\n\
         md --assemble --update=resync /dev/md0 \"${{LOOPS[@]}}\"\n\
         idle md0\nscrub md0\n[ $MISMATCHES = 0 ] || fail mismatches\nmd --stop /dev/md0\n"
    );
    assert!(run.stderr.contains("mdadm --assemble --update=resync"), "{run}");
    guest::run(test, &script).expect_success("the steps that Braid advises");
    let served = Served::start("lost-bitmap", &members, &[]);
    served.expect(&content, "without its bitmap");
    served.stop();
}
