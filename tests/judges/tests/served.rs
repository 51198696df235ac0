//! An array that `braid` serves while a test runs.

use crate::nbd::Client;
use crate::support::{Run, attempt, braid, limited, read, until, wait};
use braid_judges::Content;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running array. Dropped without `stop`, its process is ended all the same.
pub(crate) struct Served {
    name: String,
    run_dir: PathBuf,
    process: Option<Child>,
    running: bool,
}

impl Served {
    /// Assemble with an NBD export and these further arguments; returns as `braid assemble` does.
    pub(crate) fn start(name: &str, members: &[PathBuf], arguments: &[&str]) -> Self {
        let served = Self::prepare(name);
        let run = Run::of(&mut served.assemble(members, arguments));
        run.expect_success("assembling");
        served.started()
    }

    /// Assemble so that nothing is written to the members.
    pub(crate) fn readonly(name: &str, members: &[PathBuf]) -> Self {
        Self::start(name, members, &["--readonly"])
    }

    /// Assemble as a child of this test, which `kill` can then kill.
    pub(crate) fn in_foreground(name: &str, members: &[PathBuf], arguments: &[&str]) -> Self {
        let mut served = Self::prepare(name);
        let mut command = served.assemble(members, arguments);
        command.arg("--foreground").stdin(Stdio::null()).stdout(Stdio::null());
        served.process = Some(command.spawn().expect("braid starts"));
        served.started()
    }

    /// The same; what it says goes to a file. If it ends before it serves: what it said.
    pub(crate) fn logging_to(
        log: &Path,
        name: &str,
        members: &[PathBuf],
        arguments: &[&str],
    ) -> Result<Self, String> {
        let mut served = Self::prepare(name);
        let mut command = served.assemble(members, arguments);
        let said = fs::File::create(log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        command.arg("--foreground").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let socket = served.socket();
        let process = served.process.insert(command.spawn().expect("braid starts"));
        let mut ended = false;
        until("an array that serves, or does not start", || {
            ended = process.try_wait().expect("a child").is_some();
            ended || std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        if ended { Err(read(log)) } else { Ok(served.started()) }
    }

    fn prepare(name: &str) -> Self {
        // A socket's path is short, so it cannot lie below the build directory.
        let run_dir = std::env::temp_dir().join(format!("bj-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&run_dir);
        fs::create_dir_all(&run_dir).expect("a directory");
        Self { name: name.into(), run_dir, process: None, running: false }
    }

    fn assemble(&self, members: &[PathBuf], arguments: &[&str]) -> Command {
        let mut command = braid();
        command.env("BRAID_RUN_DIR", &self.run_dir).arg("assemble");
        // Whatever a real md called it. Volumes on nodes go by the name that is given.
        command
            .args(members.iter().all(|member| !member.starts_with("node:")).then_some("--rename"));
        command.arg(&self.name).args(members);
        command.arg("--export").arg(format!("nbd:unix:{}", self.socket().display()));
        command.args(arguments);
        command
    }

    fn started(mut self) -> Self {
        let socket = self.socket();
        if self.process.is_some() {
            until("the NBD socket", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        }
        std::os::unix::net::UnixStream::connect(&socket)
            .unwrap_or_else(|error| panic!("assembled, but {}: {error}", socket.display()));
        self.running = true;
        self
    }

    /// Where its NBD socket is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.run_dir.join("nbd")
    }

    /// The same as a URI.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// `braid OPERATION NAME`, to be completed.
    pub(crate) fn braid(&self, operation: &str) -> Command {
        let mut command = braid();
        command.env("BRAID_RUN_DIR", &self.run_dir).arg(operation).arg(&self.name);
        command
    }

    /// `braid OPERATION NAME MEMBER`, which must succeed.
    pub(crate) fn manage(&self, operation: &str, member: &Path) {
        Run::of(self.braid(operation).arg(member)).expect_success(operation);
    }

    /// `braid status NAME --json`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let run = Run::of(self.braid("status").arg("--json")).expect_success("status");
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stdout))
    }

    /// Is this one of the words of its state?
    pub(crate) fn is(&self, word: &str) -> bool {
        has_word(&self.status(), word)
    }

    /// Wait until this is one of the words of its state.
    pub(crate) fn wait_until(&self, word: &str) {
        until(word, || self.is(word));
    }

    /// Wait until no resync, recovery or check runs, and every member is in its place.
    pub(crate) fn wait_until_whole(&self) {
        until("an array that is whole and idle", || {
            let status = self.status();
            !has_word(&status, "degraded") && status["sync"]["action"] == "idle"
        });
    }

    /// `braid check NAME --wait`: the mismatches, of which its exit status tells, too.
    pub(crate) fn check(&self) -> u64 {
        let run = Run::of(self.braid("check").arg("--wait"));
        let mismatches = self.status()["mismatches"].as_u64().expect("a number of mismatches");
        assert_eq!(run.status.code(), Some(i32::from(mismatches > 0)), "check: {run}");
        mismatches
    }

    /// The array's size, as an NBD client sees it.
    pub(crate) fn size_bytes(&self) -> u64 {
        let client = self.client();
        let size_bytes = client.size_bytes();
        client.close().expect("the end of the connection");
        size_bytes
    }

    /// Write all of the content with nbdcopy.
    pub(crate) fn fill(&self, content: &Content) {
        let size_bytes = self.size_bytes();
        let mut copy = limited("nbdcopy");
        copy.args(["--flush", "-"]).arg(self.uri()).stdin(Stdio::piped());
        let mut copy = copy.spawn().expect("nbdcopy starts");
        let mut stdin = copy.stdin.take().expect("a pipe");
        let written = content.write(&mut stdin, 0, size_bytes);
        drop(stdin);
        assert!(copy.wait().expect("nbdcopy ends").success(), "nbdcopy failed; {written:?}");
    }

    /// Write a part, and flush.
    pub(crate) fn write(&self, content: &Content, offset: u64, length: u64) {
        let mut bytes = Vec::new();
        content.write(&mut bytes, offset, length).expect("memory");
        let mut client = self.client();
        client.write_all(offset, &bytes).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        client.close().expect("the end of the connection");
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Run Python with `h`, a libnbd handle.
    pub(crate) fn nbdsh(&self, script: &str) -> Run {
        Run::of(&mut self.nbdsh_command(script))
    }

    /// The same, to be started. The bindings belong to the system's Python, so no other counts.
    pub(crate) fn nbdsh_command(&self, script: &str) -> Command {
        let mut command = Command::new("nbdsh");
        command.env("PATH", "/usr/bin:/bin").args(["-u", &self.uri(), "-c", script]);
        command
    }

    /// Read all with nbdcopy and compare.
    pub(crate) fn expect(&self, content: &Content, when: &str) {
        let size_bytes = self.size_bytes();
        let mut copy = limited("nbdcopy");
        copy.arg(self.uri()).arg("-").stdout(Stdio::piped());
        let mut copy = copy.spawn().expect("nbdcopy starts");
        let mut stdout = copy.stdout.take().expect("a pipe");
        let checked = content.check(&mut stdout, 0, size_bytes);
        drop(stdout);
        let status = copy.wait().expect("nbdcopy ends");
        assert_eq!(checked, Ok(()), "{}, {when}; nbdcopy: {status}", self.name);
    }

    /// All of it, read with nbdcopy.
    pub(crate) fn read(&self) -> Vec<u8> {
        let mut copy = limited("nbdcopy");
        let output = copy.arg(self.uri()).arg("-").output().expect("nbdcopy starts");
        assert!(output.status.success(), "nbdcopy: {}", output.status);
        output.stdout
    }

    /// `braid stop NAME`, and its process is gone.
    pub(crate) fn stop(mut self) {
        Run::of(&mut self.braid("stop")).expect_success("stop");
        self.running = false;
        if let Some(mut process) = self.process.take() {
            let status = wait(&mut process, Duration::from_secs(20)).expect("a process that ends");
            assert!(status.success(), "stopped, but its process ended with {status}");
        }
    }

    /// SIGKILL: the process has no say.
    pub(crate) fn kill(mut self) {
        let mut process = self.process.take().expect("started in the foreground");
        process.kill().expect("SIGKILL");
        process.wait().expect("a dead process");
        self.running = false;
    }
}

fn has_word(status: &serde_json::Value, word: &str) -> bool {
    status["state"].as_array().expect("a list of states").iter().any(|state| state == word)
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        } else if self.running {
            let _ = attempt(|| Run::of(&mut self.braid("stop")));
        }
        let _ = fs::remove_dir_all(&self.run_dir);
    }
}
