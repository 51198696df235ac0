//! fio writes and verifies, over NBD and in a mounted file, while another program takes the array
//! over again and again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::served::Served;
use crate::support::{Run, braid, directory, program, skip, sparse_file, until, wait};

const UPGRADES: usize = 10;
/// So much work there is for the array between two of them, in ticks of 10 ms.
const BETWEEN: u64 = 20;
/// fio has this many bytes for each of its files.
const FILE: &str = "24m";

/// A running fio, which writes and verifies until it is told to stop. It ends with this.
struct Fio {
    process: Child,
    said: PathBuf,
}

impl Fio {
    fn start(dir: &Path, name: &str, engine: &[&str]) -> Self {
        let said = dir.join(name);
        let mut command = Command::new("fio");
        command.current_dir(dir).args(["--name", name, "--rw=randwrite", "--bs=4k-128k"]);
        command.args(["--verify=crc32c", "--verify_backlog=64", "--verify_fatal=1"]);
        command.args(["--iodepth=8", "--time_based", "--runtime=600", "--output"]).arg(&said);
        command.arg(format!("--size={FILE}")).args(engine);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { process: command.spawn().expect("fio starts"), said }
    }

    /// Ends it as its user would, and hears whether all was well.
    fn end(mut self) {
        assert!(self.process.try_wait().expect("a child").is_none(), "{}", text(&self.said));
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        wait(&mut self.process, Duration::from_secs(60)).expect("fio ends");
        let said = text(&self.said);
        assert!(said.contains("err= 0") && said.contains("write: IOPS="), "{said}");
        assert!(!said.contains("verify:"), "{said}");
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // It has ended, but where the test fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// For how long a process has been on a processor, in ticks of 10 ms.
fn ticks(pid: u64) -> u64 {
    let stat = text(Path::new(&format!("/proc/{pid}/stat")));
    let fields = stat.rsplit(") ").next().expect("a name in parentheses").split(' ');
    let used = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
    used.sum()
}

#[test]
fn fio_verifies_through_ten_upgrades() {
    let test = "fio_verifies_through_ten_upgrades";
    if let Err(reason) = program("fio") {
        return skip(test, &reason);
    }
    let dir = directory("upgrade");
    let members: Vec<PathBuf> = (0..4).map(|number| dir.join(format!("m{number}"))).collect();
    members.iter().for_each(|member| sparse_file(member, 64 << 20));
    let mut create = braid();
    create.args(["create", "upgraded", "-l", "6", "-n", "4", "-c", "64K"]).args(&members);
    Run::of(&mut create).expect_success("create");
    let mount = dir.join("mnt");
    fs::create_dir(&mount).expect("a directory");
    let export = format!("fuse:{}", mount.display());
    let served = Served::start("upgraded", &members, &["--export", &export]);

    let uri = format!("--uri={}", served.uri());
    let over_nbd = Fio::start(&dir, "nbd", &["--ioengine=nbd", &uri]);
    let file = format!("--filename={}", mount.join("upgraded").display());
    let elsewhere = ["--ioengine=libaio", "--direct=1", "--offset=64m", &file];
    let in_file = Fio::start(&dir, "fuse", &elsewhere);

    let pid = served.status()["pid"].as_u64().expect("a process");
    let mut pauses = Vec::new();
    for _ in 0..UPGRADES {
        let before = ticks(pid);
        until("fio goes on", || ticks(pid) > before + BETWEEN);
        let said = Run::of(&mut served.braid("upgrade")).expect_success("upgrade").stdout;
        let pause = said.split("requests waited ").nth(1).and_then(|rest| rest.split(' ').next());
        pauses.push(pause.and_then(|pause| pause.parse::<u64>().ok()).expect("a pause"));
    }
    assert_eq!(served.status()["pid"].as_u64(), Some(pid));
    assert!(served.is("clean") || served.is("active"), "{}", served.status()["state"]);
    println!("requests waited {pauses:?} ms");
    over_nbd.end();
    in_file.end();
    Run::of(served.braid("check").arg("--wait")).expect_success("check");
    served.stop();
}
