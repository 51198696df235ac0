//! A machine that boots with an array: systemd, udev, fstab and a kernel as Debian has them. A
//! member is pulled while it runs; it boots again without.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Run, base, braid, directory, program, skip, sparse_file, until};

const SCRIPT: &str = include_str!("boot.sh");
const MEMBER_BYTES: u64 = 64 << 20;
/// In software, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(600);
/// The status when there is no guest to be had.
const CANNOT: i32 = 125;

const ARRAYS: &str = r#"
[array.home]
members = [
    "/dev/disk/by-id/virtio-m0", "/dev/disk/by-id/virtio-m1", "/dev/disk/by-id/virtio-m2",
]
exports = ["ublk:0"]
wait = 40
"#;
const FSTAB: &str = "/dev/ublkb0 /data ext4 nofail,x-systemd.requires=braid@home.service 0 2\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the machine has besides: the command with its units, and what an administrator writes.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    let programs = PathBuf::from(braid().get_program());
    let mut install = Command::new(root().join("scripts/install.sh"));
    install.env("DESTDIR", &tree).env("PREFIX", "/usr").arg(programs.parent().expect("one"));
    Run::of(install.arg("braid")).expect_success("install.sh");
    let files = [
        ("etc/braid/arrays.toml", ARRAYS),
        ("etc/fstab", FSTAB),
        ("etc/modules-load.d/ublk.conf", "ublk_drv\n"),
    ];
    for (path, text) in files {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().expect("one")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    std::fs::create_dir(tree.join("data")).expect("a mount point");
    tree
}

/// A level 5 with a file system on it.
fn members(dir: &Path) -> Vec<PathBuf> {
    let members: Vec<PathBuf> = (0..3).map(|number| dir.join(format!("m{number}"))).collect();
    members.iter().for_each(|member| sparse_file(member, MEMBER_BYTES));
    let run = |words: &str, paths: &[PathBuf]| {
        let mut command = braid();
        command.env("BRAID_RUN_DIR", dir.join("run"));
        Run::of(command.args(words.split_whitespace()).args(paths)).expect_success(words).stdout
    };
    run("create home -l 5 -n 3 --assume-clean", &members);
    let socket = dir.join("nbd");
    run(&format!("assemble home --export nbd:unix:{}", socket.display()), &members);
    let status: serde_json::Value =
        serde_json::from_str(&run("status home --json", &[])).expect("JSON");
    let image = dir.join("fs");
    sparse_file(&image, status["size_bytes"].as_u64().expect("a size"));
    Run::of(Command::new("mkfs.ext4").args(["-qF"]).arg(&image)).expect_success("mkfs.ext4");
    let to = format!("nbd+unix:///?socket={}", socket.display());
    Run::of(Command::new("nbdcopy").arg(&image).arg(to)).expect_success("nbdcopy");
    until("the client is gone", || {
        let mut stop = braid();
        let stop = stop.env("BRAID_RUN_DIR", dir.join("run")).args(["stop", "home"]);
        Run::of(stop).status.success()
    });
    members
}

/// Boots, runs the script, shuts down; in order, and with nothing that failed.
fn boot(dir: &Path, tree: &Path, before: &str, images: &[PathBuf]) -> Run {
    let script = dir.join("script.sh");
    std::fs::write(&script, format!("{before}\n{SCRIPT}")).expect("a script");
    let mut command = Command::new(root().join("tests/boot/run-boot.sh"));
    command.args(["-v", "-t", &(LIMIT.as_secs() - 20).to_string()]);
    Run::within(LIMIT, command.arg(tree).arg(script).args(images))
}

/// The file system is unmounted before its array stops.
fn expect_order(run: &Run) {
    let at = |what: &str| run.stderr.rfind(what).unwrap_or_else(|| panic!("no {what}: {run}"));
    assert!(at("Unmounted data.mount") < at("Stopping braid@home.service"), "{run}");
    assert!(at("Stopped braid@home.service") < at("Reached target shutdown.target"), "{run}");
}

#[test]
fn a_machine_boots_with_an_array_and_again_without_a_member() {
    let test = "a_machine_boots_with_an_array_and_again_without_a_member";
    let tools = ["qemu-system-x86_64", "busybox", "cpio", "modprobe", "xz", "nbdcopy", "mkfs.ext4"];
    let tools = tools.into_iter().chain(["systemctl", "udevadm", "mdadm"]);
    if let Err(reason) = tools.map(program).collect::<Result<Vec<()>, _>>() {
        return skip(test, &reason);
    }
    let dir = directory("boot");
    let tree = tree(&dir);
    let members = members(&dir);
    let first = boot(&dir, &tree, "", &members);
    if first.status.code() == Some(CANNOT) {
        return skip(test, first.stderr.trim());
    }
    let first = first.expect_success("the first boot");
    expect_order(&first);
    let clean = |member: &PathBuf| {
        let examined = Run::of(braid().arg("examine").arg(member)).expect_success("examine").stdout;
        assert!(examined.contains("State : clean"), "{examined}");
    };
    members[..2].iter().for_each(clean);
    let second = boot(&dir, &tree, "WITHOUT=m2", &members[..2]).expect_success("without a member");
    expect_order(&second);
    members[..2].iter().for_each(clean);
    std::fs::remove_dir_all(base().join("boot")).expect("nobody uses it");
}
