//! A file system on an array, through FUSE and a loop device, under fio with verification, while a
//! member fails, is replaced by a new one, and the process is killed during recovery.

use crate::braid_to_md::{create, members};
use crate::served::Served;
use crate::support::{self, Run, guest, program, skip, until, wait};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const MEMBER_BYTES: u64 = 192 << 20;

pub(crate) fn available() -> Result<(), String> {
    guest::available()?;
    if !is_root() {
        return Err("loop devices need root".into());
    }
    for path in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(path).exists() {
            return Err(format!("no {path} here"));
        }
    }
    ["fio", "fusermount3", "losetup", "mkfs.ext4", "mkfs.xfs", "e2fsck", "xfs_repair"]
        .into_iter()
        .try_for_each(program)
}

fn is_root() -> bool {
    let id = Run::of(Command::new("id").arg("-u"));
    id.stdout.trim() == "0"
}

/// A file system, on a loop device, on the file that the array is.
pub(crate) struct Mounted {
    pub(crate) system: &'static str,
    pub(crate) device: String,
    /// Its number may be another's as soon as we have given it up.
    attached: bool,
    pub(crate) mount: PathBuf,
    export: PathBuf,
}

impl Mounted {
    fn export_argument(directory: &Path) -> String {
        format!("fuse:{}", directory.display())
    }

    /// Attach the array's file and mount it, after making the file system if that is asked for.
    pub(crate) fn new(system: &'static str, served_name: &str, base: &Path, make: bool) -> Self {
        let export = base.join("export");
        let mount = base.join("mnt");
        fs::create_dir_all(&mount).expect("a directory");
        let file = export.join(served_name);
        let attach = Run::of(sbin("losetup").args(["-f", "--show", "--direct-io=on"]).arg(&file));
        let device = attach.expect_success("losetup").stdout.trim().to_string();
        let mounted = Self { system, device, attached: true, mount, export };
        if make {
            let force = if system == "xfs" { "-f" } else { "-F" };
            let mkfs = format!("mkfs.{system}");
            let mut command = sbin(&mkfs);
            if system == "ext4" {
                // Nothing is written later that nobody asked for.
                command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
            }
            Run::of(command.args(["-q", force, &mounted.device])).expect_success(&mkfs);
        }
        let mut mount = Command::new("mount");
        mount.args(["-t", system, &mounted.device]).arg(&mounted.mount);
        Run::of(&mut mount).expect_success("mount");
        mounted
    }

    /// Sectors written to the device so far.
    fn written_sectors(&self) -> u64 {
        let name = self.device.trim_start_matches("/dev/");
        let stat = support::read(Path::new(&format!("/sys/block/{name}/stat")));
        stat.split_whitespace().nth(6).and_then(|word| word.parse().ok()).expect("a number")
    }

    fn wait_for_writes(&self, mib: u64) {
        let goal = self.written_sectors() + mib * 2048;
        until("writes through the loop device", || self.written_sectors() >= goal);
    }

    /// fio with verification, in the background; it ends after so many passes over its file.
    fn start_fio(&self, name: &str, loops: u64) -> Child {
        let mut fio = Command::new("fio");
        fio.args(FIO).arg(format!("--name={name}")).arg(format!("--loops={loops}"));
        fio.arg(format!("--directory={}", self.mount.display()));
        fio.stdin(Stdio::null()).stdout(Stdio::null());
        fio.spawn().expect("fio starts")
    }

    /// Read again what fio wrote under this name.
    fn verify_fio(&self, name: &str, loops: u64) {
        let mut fio = Command::new("fio");
        fio.args(FIO).arg(format!("--name={name}")).arg(format!("--loops={loops}"));
        fio.arg(format!("--directory={}", self.mount.display())).arg("--verify_only");
        Run::of(&mut fio).expect_success("what fio wrote is still there");
    }

    pub(crate) fn unmount(&mut self) {
        Run::of(Command::new("umount").arg(&self.mount)).expect_success("umount");
        self.fsck();
        let ours = backing_file(&self.device);
        assert!(ours.is_some(), "{} has gone by itself", self.device);
        Run::of(sbin("losetup").args(["-d", &self.device])).expect_success("losetup -d");
        self.attached = false;
        until("the loop device lets go", || backing_file(&self.device) != ours);
    }

    fn fsck(&self) {
        let (check, option) =
            if self.system == "xfs" { ("xfs_repair", "-n") } else { ("e2fsck", "-fn") };
        Run::of(sbin(check).args([option, &self.device])).expect_success(check);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a test that failed or killed its server: whatever is still there goes.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stderr(Stdio::null()).status();
        if self.attached {
            let _ = sbin("losetup").args(["-d", &self.device]).status();
        }
        let _ = Command::new("umount").arg("-l").arg(&self.export).stderr(Stdio::null()).status();
    }
}

const FIO: &[&str] = &[
    "--rw=randwrite",
    "--size=48m",
    "--bs=16k",
    "--ioengine=libaio",
    "--direct=1",
    "--iodepth=8",
    "--verify=crc32c",
    "--verify_fatal=1",
    "--end_fsync=1",
    "--randseed=7",
    "--minimal",
    "--verify_state_save=0",
];

pub(crate) fn sbin(program: &str) -> Command {
    let place =
        ["/usr/sbin", "/sbin", "/usr/bin"].map(|directory| Path::new(directory).join(program));
    Command::new(place.iter().find(|path| path.exists()).expect("an installed program"))
}

/// Name of the file that a loop device is of; none when it is free.
fn backing_file(device: &str) -> Option<String> {
    let name = device.trim_start_matches("/dev/");
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

pub(crate) fn finish(mut fio: Child) {
    let status = wait(&mut fio, Duration::from_secs(120)).expect("fio ends");
    assert!(status.success(), "fio found wrong data: {status}");
}

#[test]
fn ext4_survives_a_failed_member_and_a_kill_during_recovery() {
    let test = "ext4_survives_a_failed_member_and_a_kill_during_recovery";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let disks = members("live-ext4", 4, MEMBER_BYTES);
    let base = disks[0].parent().expect("a directory");
    create("live-ext4", "5", &disks[..3], &["--chunk", "64K", "--assume-clean"]);
    let export = export(base);
    let arguments = ["--export", export.as_str()];
    let served = Served::in_foreground("live-ext4", &disks[..3], &arguments);
    let mounted = Mounted::new("ext4", "live-ext4", base, true);
    finish(mounted.start_fio("before", 1));
    let fio = mounted.start_fio("during", 2);
    mounted.wait_for_writes(8);
    served.manage("fail", &disks[1]);
    mounted.wait_for_writes(8);
    served.manage("remove", &disks[1]);
    Run::of(served.braid("sync").args(["--max", "2M"])).expect_success("sync --max");
    served.manage("add", &disks[3]);
    until("recovery", || served.status()["sync"]["action"] == "recovery");
    finish(fio);
    Run::of(&mut Command::new("sync")).expect_success("sync");
    until("recovery under way and a clean array", || {
        let sync = &served.status()["sync"];
        assert_eq!(sync["action"], "recovery", "recovered too soon to be interrupted");
        sync["done_bytes"].as_u64().is_some_and(|done| done > 0) && served.is("clean")
    });
    served.kill();
    drop(mounted);

    let disks: Vec<PathBuf> = [0, 3, 2].map(|index| disks[index].clone()).to_vec();
    let served = Served::start("live-ext4", &disks, &["--run", "--export", export.as_str()]);
    served.wait_until_whole();
    let mut mounted = Mounted::new("ext4", "live-ext4", base, false);
    mounted.verify_fio("before", 1);
    mounted.verify_fio("during", 2);
    mounted.unmount();
    assert_eq!(served.check(), 0, "mismatches");
    drop(mounted);
    served.stop();
    let script = file_system_script(&disks, "e2fsck -fn");
    guest::run("live-ext4-md", &script).expect_success("md takes the array");
}

#[test]
fn xfs_survives_a_member_that_fails_and_recovers() {
    let test = "xfs_survives_a_member_that_fails_and_recovers";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let disks = members("live-xfs", 4, MEMBER_BYTES);
    let base = disks[0].parent().expect("a directory");
    create("live-xfs", "6", &disks, &["--chunk", "64K", "--assume-clean", "--bitmap", "internal"]);
    let export = export(base);
    let served = Served::start("live-xfs", &disks, &["--export", export.as_str()]);
    let mut mounted = Mounted::new("xfs", "live-xfs", base, true);
    let fio = mounted.start_fio("during", 2);
    for member in [&disks[2], &disks[0]] {
        mounted.wait_for_writes(6);
        served.manage("fail", member);
        mounted.wait_for_writes(6);
        served.manage("remove", member);
        served.manage("re-add", member);
    }
    finish(fio);
    served.wait_until_whole();
    mounted.verify_fio("during", 2);
    mounted.unmount();
    assert_eq!(served.check(), 0, "mismatches");
    drop(mounted);
    served.stop();
    let script = file_system_script(&disks, "xfs_repair -n");
    guest::run("live-xfs-md", &script).expect_success("md takes the array");
}

pub(crate) fn export(base: &Path) -> String {
    let directory = base.join("export");
    fs::create_dir_all(&directory).expect("a directory");
    Mounted::export_argument(&directory)
}

/// md assembles it whole and clean, and the file system is sound.
fn file_system_script(members: &[PathBuf], fsck: &str) -> String {
    let list: Vec<String> = members.iter().map(|path| path.display().to_string()).collect();
    format!(
        "attach {}\n\
         md --assemble /dev/md0 \"${{LOOPS[@]}}\"\n\
         idle md0\n\
         read -r degraded </sys/block/md0/md/degraded\n\
         [ \"$degraded\" = 0 ] || fail degraded by \"$degraded\"\n\
         scrub md0\n\
         [ \"$MISMATCHES\" = 0 ] || fail \"$MISMATCHES\" mismatches\n\
         {fsck} /dev/md0 || fail {fsck}\n",
        list.join(" ")
    )
}
