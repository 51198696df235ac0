//! Block devices of arrays by the kernel's own driver: on this kernel, where it has none, refused;
//! and in a guest whose kernel has it, under fio, ext4 and kill -9.

use crate::support::{Run, braid, directory, kernel, skip, sparse_file};
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

#[test]
fn a_block_device_outlives_the_process_that_serves_it() {
    let test = "a_block_device_outlives_the_process_that_serves_it";
    if let Err(reason) = kernel::available() {
        return skip(test, &reason);
    }
    let braid = braid().get_program().to_owned();
    let script = format!("BRAID={}\n{GUEST}", Path::new(&braid).display());
    let run = kernel::run("ublk", &script);
    if run.status.code() == Some(kernel::CANNOT) {
        return skip(test, run.stderr.trim());
    }
    println!("{}", run.stdout);
    run.expect_success("a guest uses the kernel's ublk");
}
