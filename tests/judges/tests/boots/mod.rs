//! A machine that boots with arrays: systemd, udev, fstab and a kernel as Debian has them. Such
//! boots take the longest of all judges, and by this name they begin among the first.

mod operated;
mod units;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Run, braid, root, sparse_file, until};

/// What all scripts begin with.
const BOOTED: &str = include_str!("booted.sh");
const MEMBER_BYTES: u64 = 64 << 20;
/// In software, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(900);
/// The status when there is no guest to be had.
pub(crate) const CANNOT: i32 = 125;

pub(crate) const FSTAB: &str =
    "/dev/ublkb0 /data ext4 nofail,x-systemd.after=braid@home.service 0 2\n";
/// How the array `home` stops, after what lies on it.
pub(crate) const HOME_STOPS: [&str; 4] = [
    "Unmounted data.mount",
    "Stopping braid@home.service",
    "Stopped braid@home.service",
    "Reached target shutdown.target",
];
const MONITOR: &str = "/usr/lib/systemd/system/braid-monitor.service";
const SENDMAIL: &str = "#!/bin/sh\ncat >>/run/mail\n";

/// What a boot takes.
pub(crate) const BOOT_TOOLS: [&str; 10] = [
    "qemu-system-x86_64",
    "busybox",
    "cpio",
    "modprobe",
    "xz",
    "nbdcopy",
    "mkfs.ext4",
    "systemctl",
    "udevadm",
    "mdadm",
];

/// What an administrator writes.
pub(crate) struct Machine<'a> {
    pub(crate) arrays: &'a str,
    pub(crate) fstab: &'a str,
    /// Directories to be mounted on, below the root.
    pub(crate) mountpoints: &'a [&'a str],
    /// Other files.
    pub(crate) more: &'a [(&'a str, &'a str)],
}

impl Machine<'_> {
    /// Puts it where the machine has its files.
    pub(crate) fn write(&self, tree: &Path) {
        let files = [
            ("etc/braid/arrays.toml", self.arrays),
            ("etc/fstab", self.fstab),
            ("etc/modules-load.d/ublk.conf", "ublk_drv\n"),
            // In software, beside other work, devices may come after minutes.
            ("etc/systemd/system.conf.d/slow.conf", "[Manager]\nDefaultDeviceTimeoutSec=300s\n"),
        ];
        for (path, text) in files.iter().chain(self.more) {
            let path = tree.join(path);
            make_parent(&path);
            std::fs::write(path, text).expect("a file");
        }
        for mountpoint in self.mountpoints {
            std::fs::create_dir_all(tree.join(mountpoint)).expect("a mount point");
        }
    }
}

fn make_parent(path: &Path) {
    std::fs::create_dir_all(path.parent().expect("one")).expect("a directory");
}

/// The command with its units, as `make install` puts them there.
pub(crate) fn install(tree: &Path) {
    let programs = PathBuf::from(braid().get_program());
    let mut install = Command::new(root().join("scripts/install.sh"));
    install.env("DESTDIR", tree).env("PREFIX", "/usr").arg(programs.parent().expect("one"));
    Run::of(install.arg("braid")).expect_success("install.sh");
}

/// As `systemctl enable braid-monitor` does it; mail goes to /run/mail.
pub(crate) fn enable_monitor(tree: &Path) {
    let link = tree.join("etc/systemd/system/multi-user.target.wants/braid-monitor.service");
    make_parent(&link);
    symlink(MONITOR, link).expect("a link");
    let sendmail = tree.join("usr/sbin/sendmail");
    make_parent(&sendmail);
    std::fs::write(&sendmail, SENDMAIL).expect("a file");
    std::fs::set_permissions(&sendmail, Permissions::from_mode(0o755)).expect("a mode");
}

/// So many members of an array of this name and shape, with a file system on it.
pub(crate) fn members(dir: &Path, array: &str, count: usize, shape: &str) -> Vec<PathBuf> {
    let members: Vec<PathBuf> = (0..count).map(|number| dir.join(format!("m{number}"))).collect();
    members.iter().for_each(|member| sparse_file(member, MEMBER_BYTES));
    let run = |words: &str, paths: &[PathBuf]| {
        let mut command = braid();
        command.env("BRAID_RUN_DIR", dir.join("run"));
        Run::of(command.args(words.split_whitespace()).args(paths)).expect_success(words).stdout
    };
    run(&format!("create {array} {shape} --assume-clean"), &members);
    let socket = dir.join("nbd");
    run(&format!("assemble {array} --export nbd:unix:{}", socket.display()), &members);
    let status: serde_json::Value =
        serde_json::from_str(&run(&format!("status {array} --json"), &[])).expect("JSON");
    let image = dir.join("fs");
    file_system(&image, status["size_bytes"].as_u64().expect("a size"));
    let to = format!("nbd+unix:///?socket={}", socket.display());
    Run::of(Command::new("nbdcopy").arg(&image).arg(to)).expect_success("nbdcopy");
    until("the client is gone", || {
        let mut stop = braid();
        let stop = stop.env("BRAID_RUN_DIR", dir.join("run")).args(["stop", array]);
        Run::of(stop).status.success()
    });
    members
}

/// An image of a file system.
pub(crate) fn file_system(image: &Path, size_bytes: u64) {
    sparse_file(image, size_bytes);
    Run::of(Command::new("mkfs.ext4").args(["-qF"]).arg(image)).expect_success("mkfs.ext4");
}

/// Boots, runs the script, shuts down; in order, and with nothing that failed.
pub(crate) fn boot(dir: &Path, tree: &Path, text: &str, images: &[PathBuf]) -> Run {
    let script = dir.join("script.sh");
    std::fs::write(&script, format!("{BOOTED}\n{text}")).expect("a script");
    let mut command = Command::new(root().join("tests/boot/run-boot.sh"));
    command.args(["-v", "-t", &(LIMIT.as_secs() - 20).to_string()]);
    Run::within(LIMIT, command.arg(tree).arg(script).args(images))
}

/// The machine said these, each for the last time after the one before.
pub(crate) fn expect_order(run: &Run, said: &[&str]) {
    let at = |what: &str| run.stderr.rfind(what).unwrap_or_else(|| panic!("no {what}: {run}"));
    for two in said.windows(2) {
        assert!(at(two[0]) < at(two[1]), "{} before {}: {run}", two[1], two[0]);
    }
}
