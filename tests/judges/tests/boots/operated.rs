//! What an administrator of a small host does, from the package to the next boot: two lines of
//! configuration, a member that is pulled under load, mail, webhook, metrics and page, a spare, and
//! an upgrade of the package meanwhile. Then another member is pulled, the machine boots without
//! both, and the package is removed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    BOOT_TOOLS, CANNOT, FSTAB, HOME_STOPS, Machine, boot, enable_monitor, expect_order, members,
};
use crate::package::packed_fast;
use crate::support::{Run, base, braid, directory, is_drawn, program, root, skip};

const SCRIPT: &str = include_str!("operated.sh");

const ARRAYS: &str = "[array.home]\nexports = [\"ublk:0\"]\n";
/// At the second boot.
const NAMED_MEMBERS: &str = r#"
[array.home]
members = [
    "/dev/disk/by-id/virtio-m0", "/dev/disk/by-id/virtio-m1", "/dev/disk/by-id/virtio-m3",
]
exports = ["ublk:0"]
wait = 40
"#;
const MONITOR: &str = "MONITOR_OPTIONS=--mail root --webhook http://127.0.0.1:8081/ \
                       --metrics 9101 --web 8082\n";

/// The machine with the package as dpkg would install it, and what an administrator writes.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    let programs = PathBuf::from(braid().get_program());
    let mut deb = Command::new(root().join("scripts/deb.sh"));
    let made = Run::of(packed_fast(&mut deb).arg(programs.parent().expect("one")).arg(dir));
    let made = made.expect_success("deb.sh");
    let package = made.stdout.lines().next().expect("a package").to_owned();
    std::fs::create_dir_all(tree.join("deb")).expect("a directory");
    std::fs::copy(&package, tree.join("deb/braid.deb")).expect("a package");
    let mut unpack = Command::new("dpkg-deb");
    Run::of(unpack.arg("-x").arg(&package).arg(&tree)).expect_success("dpkg-deb");
    let more = &[("etc/default/braid-monitor", MONITOR)];
    Machine { arrays: ARRAYS, fstab: FSTAB, mountpoints: &["data"], more }.write(&tree);
    enable_monitor(&tree);
    tree
}

#[test]
fn a_package_a_failure_and_an_upgrade_under_load() {
    let test = "a_package_a_failure_and_an_upgrade_under_load";
    if !is_drawn(1) {
        return println!("the other whole machine is drawn");
    }
    let tools = ["fio", "dpkg", "dpkg-deb", "dpkg-shlibdeps", "script", "python3"];
    let tools = tools.into_iter().chain(BOOT_TOOLS).map(program);
    if let Err(reason) = tools.collect::<Result<Vec<()>, _>>() {
        return skip(test, &reason);
    }
    let dir = directory("operated");
    let tree = tree(&dir);
    let members = members(&dir, "home", 4, "-l 5 -n 3 -x 1");
    let first = boot(&dir, &tree, SCRIPT, &members);
    if first.status.code() == Some(CANNOT) {
        return skip(test, first.stderr.trim());
    }
    let first = first.expect_success("the first boot");
    println!("{}", first.stdout);
    expect_order(&first, &HOME_STOPS);
    let members = [members[0].clone(), members[3].clone()];
    let clean = |member: &PathBuf| {
        let examined = Run::of(braid().arg("examine").arg(member)).expect_success("examine").stdout;
        assert!(examined.contains("State : clean"), "{examined}");
    };
    members.iter().for_each(clean);
    std::fs::write(tree.join("etc/braid/arrays.toml"), NAMED_MEMBERS).expect("a file");
    let script = format!("SECOND=yes\n{SCRIPT}");
    boot(&dir, &tree, &script, &members).expect_success("the second boot");
    members.iter().for_each(clean);
    std::fs::remove_dir_all(base().join("operated")).expect("nobody uses it");
}
