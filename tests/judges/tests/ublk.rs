//! Block devices of arrays by the kernel's own driver: on this kernel, where it has none, refused;
//! and in a guest whose kernel has it, under fio, ext4 and kill -9.

use crate::support::{Run, braid, directory, kernel, skip, sparse_file};
use crate::typed;
use std::path::Path;

const GUEST: &str = include_str!("ublk.sh");

#[test]
fn a_kernel_without_ublk_is_told_before_anything_is_served() {
    let test = "a_kernel_without_ublk_is_told_before_anything_is_served";
    if Path::new("/dev/ublk-control").exists() {
        // The guest has one without it as well.
        return;
    }
    let directory = directory(test);
    let members = ["m0", "m1"].map(|name| directory.join(name));
    members.iter().for_each(|member| sparse_file(member, 16 << 20));
    let run = |words: &[&str]| {
        let mut command = braid();
        command.args(words).args(&members).env("BRAID_RUN_DIR", directory.join("run"));
        Run::of(&mut command)
    };
    run(&["create", "a", "--level", "1", "-n", "2"]).expect_success("create");
    let before = crate::support::fingerprints(&members);
    let refused = run(&["assemble", "a", "--export", "ublk"]);
    let refused = refused.expect_status(1, "there is no ublk");
    for words in ["no ublk", "/dev/ublk-control", "modprobe ublk_drv"] {
        assert!(refused.stderr.contains(words), "{refused}");
    }
    assert_eq!(crate::support::fingerprints(&members), before, "members were written");
}

/// Then all is typed in the same guest that needs one (`typed.rs`).
#[test]
fn a_block_device_outlives_the_process_that_serves_it_and_pages_are_typed() {
    let test = "a_block_device_outlives_the_process_that_serves_it_and_pages_are_typed";
    if let Err(reason) = kernel::available() {
        return skip(test, &reason);
    }
    let braid = braid().get_program().to_owned();
    let braid = Path::new(&braid).display();
    // Each in a shell of its own: what one sets is not there for the other.
    let typed = typed::script();
    let script =
        format!("BRAID={braid}\n(\n{GUEST}\n)\n[ $? = 0 ] || exit 1\n(\n{typed}\n)\n[ $? = 0 ]\n");
    let run = kernel::run("ublk", &script);
    if run.status.code() == Some(kernel::CANNOT) {
        return skip(test, run.stderr.trim());
    }
    println!("{}", run.stdout);
    let run = run.expect_success("a guest uses the kernel's ublk, and types commands of pages");
    for expected in typed::SAID {
        assert!(run.stdout.contains(expected), "{expected} is missing: {}", run.stdout);
    }
}
