//! The Debian packages, as dpkg installs, upgrades, removes and purges them in a root of their own,
//! and the program without libraries.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::broken_links;
use crate::support::{Run, braid, directory, program, read, skip, sparse_file};

/// What packs for a minute of a processor does so in two seconds: dpkg and lintian take both.
pub(crate) fn packed_fast(deb: &mut Command) -> &mut Command {
    deb.envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")])
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name))
}

fn programs() -> PathBuf {
    let braid = PathBuf::from(braid().get_program());
    braid.parent().expect("a directory").to_owned()
}

/// What maintainer scripts need: a shell, and what the program is linked with.
fn scratch_root(root: &Path) {
    for below in ["bin", "dev", "run/braid", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        std::fs::create_dir_all(root.join(below)).expect("a directory");
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
    let null = root.join("dev/null");
    Run::of(Command::new("cp").args(["-a", "/dev/null"]).arg(null)).expect_success("cp");
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    for tool in ["sh", "basename", "rm", "rmdir"] {
        symlink("busybox", root.join("bin").join(tool)).expect("a link");
    }
    let linked = Run::of(Command::new("ldd").arg(programs().join("braid"))).stdout;
    for path in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(&path[1..]);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::copy(path, to).expect("a library");
    }
}

/// The files of packages, without those of dpkg and of the root itself.
fn files(root: &Path) -> Vec<String> {
    let mut command = Command::new("find");
    command.current_dir(root).args(["usr", "etc", "-type", "f"]);
    Run::of(&mut command).stdout.lines().map(str::to_owned).collect()
}

/// Enables the monitor, as systemctl does, and returns the link that this makes.
fn enabled_monitor(root: &Path) -> PathBuf {
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    std::fs::create_dir_all(&wants).expect("a directory");
    let link = wants.join("braid-monitor.service");
    symlink("/lib/systemd/system/braid-monitor.service", &link).expect("a link");
    link
}

/// What packages bring, and where it says to be.
fn expect_files(root: &Path) {
    for file in [
        "usr/bin/braid",
        "usr/bin/braid-bench",
        "usr/lib/systemd/system/braid@.service",
        "usr/lib/systemd/system/braid-join@.service",
        "usr/lib/systemd/system-generators/braid-generator",
        "usr/lib/udev/rules.d/63-braid.rules",
        "usr/share/man/man1/braid-up.1.gz",
        "etc/braid/arrays.toml",
    ] {
        assert!(root.join(file).exists(), "{file} is missing");
    }
    let unit = read(&root.join("usr/lib/systemd/system/braid@.service"));
    assert!(unit.contains("ExecStart=/usr/bin/braid up --foreground"), "{unit}");
}

#[test]
fn packages_come_and_go_and_leave_arrays_alone() {
    let test = "packages_come_and_go_and_leave_arrays_alone";
    let tools = ["dpkg", "dpkg-deb", "dpkg-shlibdeps", "lintian", "busybox"];
    let tools = tools.into_iter().map(program);
    if let Err(reason) = tools.collect::<Result<Vec<()>, _>>() {
        return skip(test, &reason);
    }
    if !rustix::process::geteuid().is_root() {
        return skip(test, "dpkg --root needs root");
    }
    let dir = directory("package");
    let root = dir.join("root");
    scratch_root(&root);
    let mut deb = script("deb.sh");
    let made = Run::of(packed_fast(&mut deb).arg(programs()).arg(&dir));
    let made = made.expect_success("deb.sh").stdout;
    let packages: Vec<&str> = made.lines().collect();
    assert_eq!(packages.len(), 2, "{made}");
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]).args(&packages);
    Run::of(&mut lintian).expect_success("Debian's rules are kept");
    let dpkg = |words: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display())).arg("--force-depends");
        Run::of(command.args(words))
    };
    dpkg(&["--install", packages[0]]).expect_success("braid is installed");
    assert_eq!(broken_links(&root.join("usr/share/doc/braid")), [""; 0]);
    dpkg(&["--install", packages[1]]).expect_success("braid-bench is installed");
    expect_files(&root);

    // An array that runs, and a file that was changed, are as before after an upgrade.
    let members = [dir.join("m0"), dir.join("m1")];
    members.iter().for_each(|member| sparse_file(member, 8 << 20));
    let run = |words: &[&str]| {
        let mut command = Command::new(root.join("usr/bin/braid"));
        command.env("BRAID_RUN_DIR", root.join("run/braid")).args(words);
        command
    };
    let of_members = |words: &[&str]| {
        let mut command = run(words);
        Run::of(command.args(&members)).expect_success("braid")
    };
    of_members(&["create", "home", "-l", "1", "-n", "2", "--assume-clean"]);
    of_members(&["assemble", "home"]);
    let pid = || {
        let status = Run::of(&mut run(&["status", "home", "--json"])).expect_success("it runs");
        let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("JSON");
        status["pid"].as_u64().expect("a process")
    };
    let before = pid();
    let config = root.join("etc/braid/arrays.toml");
    std::fs::write(&config, "[array.home]\n").expect("a file");
    let said = dpkg(&["--install", packages[0]]).expect_success("braid is upgraded").stdout;
    assert!(said.contains("to give them this one: braid upgrade --all"), "{said}");
    assert_eq!(pid(), before, "another process serves it");
    assert_eq!(read(&config), "[array.home]\n");

    dpkg(&["--purge", "braid-bench"]).expect_success("braid-bench is purged");
    let refused = dpkg(&["--remove", "braid"]);
    assert!(!refused.status.success(), "{refused}");
    assert!(refused.stderr.contains("array home runs; stop it first"), "{refused}");
    assert_eq!(pid(), before);
    Run::of(&mut run(&["stop", "home"])).expect_success("stop");
    dpkg(&["--remove", "braid"]).expect_success("braid is removed");
    assert_eq!(files(&root).iter().filter(|file| !file.starts_with("usr/lib/x86_64")).count(), 1);
    assert_eq!(read(&config), "[array.home]\n");
    let enabled = enabled_monitor(&root);
    dpkg(&["--purge", "braid"]).expect_success("braid is purged");
    assert!(!enabled.is_symlink(), "the monitor is still enabled");
    assert!(!root.join("etc/braid").exists(), "{:?}", files(&root));
}
