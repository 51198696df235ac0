//! A file system on an array that grows: fio and fsx verify all that they write while data move to
//! one more disk, then to other chunks and back. Then the file system is made larger by the
//! commands that `braid grow` names, and holds as much.
//!
//! `GROWN_ROUNDS`: so many rounds of other chunks and layouts, drawn by `GROWN_SEED`; 1 without.

use crate::braid_to_md::{create, members};
use crate::live::{self, MEMBER_BYTES, Mounted, export, sbin};
use crate::served::Served;
use crate::support::{self, Run, program, skip, until};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Of a member, a second: moves last for some seconds.
const SPEED: &str = "40M";
const FSX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fsx.toml");

fn available() -> Result<(), String> {
    live::available()?;
    ["fsx", "resize2fs", "xfs_growfs", "df"].into_iter().try_for_each(program)
}

#[test]
fn ext4_grows_with_a_raid_5_under_load() {
    grows("ext4_grows_with_a_raid_5_under_load", "ext4", "5", 3);
}

#[test]
fn xfs_grows_with_a_raid_6_under_load() {
    grows("xfs_grows_with_a_raid_6_under_load", "xfs", "6", 4);
}

fn grows(test: &str, system: &'static str, level: &str, count: usize) {
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let name = format!("grown-{system}");
    let disks = members(&name, count + 1, MEMBER_BYTES);
    let base = disks[0].parent().expect("a directory");
    create(&name, level, &disks[..count], &["--chunk", "64K", "--assume-clean"]);
    let served = Served::start(&name, &disks[..count], &["--export", &export(base)]);
    let mut mounted = Mounted::new(system, &name, base, true);
    Run::of(served.braid("limit").args(["--max", SPEED])).expect_success("limit");
    written(&mounted.mount, "before", 48, false);
    let before = room(&mounted.mount);
    let passes = AtomicU64::new(0);
    let said = under_load(&mounted.mount, &passes, || {
        let more = (count + 1).to_string();
        let mut grow = served.braid("grow");
        let grow = grow.args(["--raid-devices", &more, "--add"]).arg(&disks[count]);
        let said = Run::of(grow).expect_success("grow").stdout;
        until("all has moved", || is_idle(&served));
        if system == "xfs" {
            enlarge(&mounted, &said);
        }
        said
    });
    // It can do that while it is mounted, but not for a user without CAP_SYS_RESOURCE.
    if system == "ext4" {
        Run::of(Command::new("umount").arg(&mounted.mount)).expect_success("umount");
        Run::of(sbin("e2fsck").args(["-fp", &mounted.device])).expect_success("e2fsck");
        enlarge(&mounted, &said);
        let mut mount = Command::new("mount");
        Run::of(mount.arg(&mounted.device).arg(&mounted.mount)).expect_success("mount");
    }
    let after = room(&mounted.mount);
    assert!(after > before + before / 3, "{before} KiB became {after}");
    for round in 0..numbered("GROWN_ROUNDS", 1) {
        let before = passes.load(Ordering::Relaxed);
        under_load(&mounted.mount, &passes, || {
            change_and_undo(&served, level, numbered("GROWN_SEED", 7) + round);
        });
        let during = passes.load(Ordering::Relaxed) - before;
        assert!(during > 1, "round {round}: {during} passes ended while data moved");
    }
    for what in ["before", "busy"] {
        verified(&mounted.mount, what, &passes);
    }
    // More than there was room for before.
    written(&mounted.mount, "behind", 352, true);
    mounted.unmount();
    assert_eq!(served.check(), 0, "mismatches");
    drop(mounted);
    served.stop();
}

/// Does something while fio and fsx work. What either finds ends the other, too.
fn under_load<T>(mount: &Path, passes: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let ends = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let load = scope.spawn(|| load(mount, &ends, passes));
        let done = support::attempt(work);
        ends.store(true, Ordering::Relaxed);
        load.join().expect("fio and fsx find what they wrote");
        done
    });
    done.unwrap_or_else(|finding| panic!("{finding}"))
}

fn room(mount: &Path) -> u64 {
    let df = Run::of(Command::new("df").args(["-k", "--output=size"]).arg(mount));
    let df = df.expect_success("df").stdout;
    df.lines().nth(1).and_then(|line| line.trim().parse().ok()).expect("a number of KiB")
}

fn numbered(variable: &str, otherwise: u64) -> u64 {
    let value = std::env::var(variable);
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

fn is_idle(served: &Served) -> bool {
    served.status()["sync"]["action"] == "idle"
}

/// Data move to another shape, up to a place that the seed draws, and back; or to the end.
fn change_and_undo(served: &Served, level: &str, seed: u64) {
    let chunks = ["16K", "32K", "128K", "256K"].map(|chunk| ["--chunk", chunk]);
    let layouts = ["left-asymmetric", "right-symmetric"].map(|layout| ["--layout", layout]);
    let all = [&chunks[..], &layouts].concat();
    let change = all[seed as usize % all.len()];
    println!("RAID {level}: {change:?}, draw {seed}");
    let status = served.status();
    let mut grow = served.braid("grow");
    let run = Run::of(grow.args(change));
    // It may have this shape by now.
    if run.stderr.contains(" already; ") {
        return;
    }
    run.expect_success("grow");
    let percent = 20 + seed * 37 % 60;
    let ends = seed.is_multiple_of(3);
    until("a part has moved", || {
        let sync = &served.status()["sync"];
        let [done, total] = ["done_bytes", "total_bytes"].map(|field| sync[field].as_u64());
        sync["action"] == "idle" || done.zip(total).is_some_and(|(d, t)| d * 100 > t * percent)
    });
    if !ends {
        Run::of(served.braid("grow").arg("--undo")).expect_success("grow --undo");
    }
    until("all has moved", || is_idle(served));
    let after = served.status();
    for field in ["chunk_bytes", "layout"] {
        assert!(ends || after[field] == status[field], "{field} is not that of before");
    }
}

/// Makes the file system larger, by what `braid grow` says is to be typed.
fn enlarge(mounted: &Mounted, said: &str) {
    let line = said.lines().rfind(|line| line.contains("fuse:")).expect("a line of the export");
    let next = line.split_once("when that is over, ").expect("a next step").1;
    for (part, program) in next.split("; ").zip(["losetup", ""]) {
        let part = part.strip_prefix("then the file system there: ").unwrap_or(part);
        let mut commands = part.split(", ").map(|one| one.trim_start_matches("or "));
        let growfs = if mounted.system == "xfs" { "xfs_growfs" } else { "resize2fs" };
        let wanted = if program.is_empty() { growfs } else { program };
        let command = commands.find(|one| one.starts_with(wanted)).unwrap_or_else(|| {
            panic!("grow names no {wanted}: {line}");
        });
        let mut words = command.split(' ');
        let mut typed = sbin(words.next().expect("a program"));
        for word in words {
            match word {
                "/dev/loopN" => typed.arg(&mounted.device),
                "MOUNTPOINT" => typed.arg(&mounted.mount),
                word => typed.arg(word),
            };
        }
        Run::of(&mut typed).expect_success(wanted);
    }
}

/// Passes of fio one after the other, and fsx all the time, until it is enough.
fn load(mount: &Path, ends: &AtomicBool, passes: &AtomicU64) {
    let mut fsx = Exerciser::start(&mount.join("fsx"));
    while !ends.load(Ordering::Relaxed) {
        let mut fio = busy(mount, passes.load(Ordering::Relaxed));
        Run::of(&mut fio).expect_success("fio");
        passes.fetch_add(1, Ordering::Relaxed);
        fsx.expect_running();
    }
}

struct Exerciser(Child);

impl Exerciser {
    fn start(file: &Path) -> Self {
        let mut fsx = Command::new("fsx");
        fsx.args(["-S", "7", "-f", FSX, "-P", &std::env::temp_dir().to_string_lossy()]).arg(file);
        Self(fsx.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("fsx starts"))
    }

    /// It ends by itself when something is not what it wrote, and says so.
    fn expect_running(&mut self) {
        let ended = self.0.try_wait().expect("a child");
        assert!(ended.is_none(), "fsx found something: {ended:?}");
    }
}

impl Drop for Exerciser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pass: three jobs write blocks of all sizes where they like, and read them.
fn busy(mount: &Path, pass: u64) -> Command {
    let mut fio = fio(mount, "busy", "8m");
    fio.args(["--rw=randwrite", "--bsrange=4k-128k", "--numjobs=3", "--ioengine=libaio"]);
    fio.args(["--direct=1", "--iodepth=8", "--end_fsync=1", "--fsync=32", "--minimal"]);
    fio.arg(format!("--randseed={}", pass + 1));
    fio
}

fn fio(mount: &Path, name: &str, size: &str) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--thread", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    fio.arg(format!("--directory={}", mount.display()));
    fio.args([format!("--name={name}"), format!("--size={size}")]);
    fio
}

fn sequential(mount: &Path, name: &str, mib: u64) -> Command {
    let mut fio = fio(mount, name, &format!("{mib}m"));
    fio.args(["--rw=write", "--bs=256k", "--end_fsync=1", "--direct=1"]);
    fio
}

/// A file of this size, which is read at once, or later.
fn written(mount: &Path, name: &str, mib: u64, at_once: bool) {
    let mut fio = sequential(mount, name, mib);
    fio.arg(format!("--do_verify={}", u8::from(at_once)));
    Run::of(&mut fio).expect_success("fio");
}

/// Reads again what fio wrote: the file from before, and those of the last pass.
fn verified(mount: &Path, name: &str, passes: &AtomicU64) {
    let last = passes.load(Ordering::Relaxed) - 1;
    let mut fio = if name == "busy" { busy(mount, last) } else { sequential(mount, name, 48) };
    Run::of(fio.arg("--verify_only")).expect_success("what fio wrote is still there");
}
