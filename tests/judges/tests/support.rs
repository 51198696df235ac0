//! What all judges share: running programs with a time limit, files, and saying what was skipped.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No program of a test may run longer, but for a guest.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the rows of a table that this run looks at: all of them, or with `DRAW`, a number that
/// the gate draws by what is committed, one of three.
pub(crate) fn drawn<T>(rows: impl IntoIterator<Item = T>) -> Vec<T> {
    let draw = draw();
    let is_drawn = |place: usize| draw.is_none_or(|draw| (place + draw).is_multiple_of(3));
    let rows = rows.into_iter().enumerate();
    rows.filter(|(place, _)| is_drawn(*place)).map(|(_, row)| row).collect()
}

/// Returns whether this run looks at this one of two that take long.
pub(crate) fn is_drawn(one_of_two: usize) -> bool {
    draw().is_none_or(|draw| draw / 3 % 2 == one_of_two)
}

fn draw() -> Option<usize> {
    let draw = std::env::var("DRAW").ok()?;
    Some(draw.parse().unwrap_or_else(|_| panic!("DRAW={draw}")))
}

/// What a program did.
#[derive(Debug)]
pub(crate) struct Run {
    /// The command line.
    pub(crate) command: String,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Run {
    /// Run to the end, or kill it at the usual time limit and fail.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::within(LIMIT, command)
    }

    /// Run to the end, or kill it at this time limit and fail.
    pub(crate) fn within(limit: Duration, command: &mut Command) -> Self {
        let line = line(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        let stdout = drain(child.stdout.take().expect("a pipe"));
        let stderr = drain(child.stderr.take().expect("a pipe"));
        let status = wait(&mut child, limit).unwrap_or_else(|| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{line}: still running after {} s", limit.as_secs());
        });
        let text = |thread: std::thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&thread.join().expect("a reader")).into_owned()
        };
        Self { command: line, status, stdout: text(stdout), stderr: text(stderr) }
    }

    /// Fail the test unless the program exited with 0.
    pub(crate) fn expect_success(self, doing: &str) -> Self {
        assert!(self.status.success(), "{doing}: {self}");
        self
    }

    /// Fail the test unless the program exited with this status.
    pub(crate) fn expect_status(self, status: i32, doing: &str) -> Self {
        assert_eq!(self.status.code(), Some(status), "{doing}: {self}");
        self
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Why it failed comes before all that it has done.
        write!(f, "{}: {}\n{}\n{}", self.command, self.status, self.stderr, self.stdout)
    }
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Wait for a process to end; `None` when it is still running after the limit.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        if began.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that reads or writes as the test goes along: the system's `timeout` ends it, so that
/// neither waits for ever.
pub(crate) fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([&LIMIT.as_secs().to_string(), program]);
    command
}

/// A minute of a machine with nothing else to do, and more where its processors are shared: what
/// takes longer has no end.
fn patience() -> Duration {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Duration::from_secs(60).mul_f64((load / processors as f64).clamp(1.0, 8.0))
}

/// Polls until a condition holds; fails the test when patience ends.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        let waited = began.elapsed();
        assert!(waited < patience(), "waited {} s in vain: {what}", waited.as_secs());
        // What is asked is mostly the command, which takes a fifth of that of a processor.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The command under test: `$BRAID`, or the one built beside this test.
pub(crate) fn braid() -> Command {
    let built = || {
        let test = std::env::current_exe().expect("this test's path");
        test.ancestors().nth(2).expect("the build directory").join("braid")
    };
    let path = std::env::var_os("BRAID").map_or_else(built, PathBuf::from);
    assert!(path.exists(), "{} is not built; cargo build --release -p braid-cli", path.display());
    Command::new(path)
}

/// Where tests keep their files: a directory of this build.
pub(crate) fn base() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("judges")
}

/// Where the project is.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An empty directory for one test.
pub(crate) fn directory(test: &str) -> PathBuf {
    let path = base().join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file of this size without a byte in it.
pub(crate) fn sparse_file(path: &Path, size_bytes: u64) {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.set_len(size_bytes).expect("a sparse file");
}

/// A number that changes when a byte of the file does.
pub(crate) fn fingerprint(path: &Path) -> u64 {
    use std::hash::Hasher;
    let mut hasher = std::hash::DefaultHasher::new();
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).expect("a readable file") {
            0 => return hasher.finish(),
            // Of all bytes themselves that takes ten times as long.
            length => hasher.write_u32(crc32c::crc32c(&block[..length])),
        }
    }
}

/// The fingerprints of several files.
pub(crate) fn fingerprints(paths: &[PathBuf]) -> Vec<u64> {
    paths.iter().map(|path| fingerprint(path)).collect()
}

/// Gives a disk a partition table, in the words of sfdisk.
pub(crate) fn partition(disk: &Path, table: &str) {
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-tell-kernel"]).arg(disk).stdin(Stdio::piped());
    let mut sfdisk = sfdisk.stdout(Stdio::null()).spawn().expect("sfdisk runs");
    let mut stdin = sfdisk.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, table.as_bytes()).expect("a reader");
    drop(stdin);
    assert!(sfdisk.wait().expect("a child").success(), "sfdisk {table}");
}

/// A test cannot run here: say so past the harness's capture; with CI set that is a failure.
pub(crate) fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    assert!(std::env::var_os("CI").is_none(), "{test} must run in CI: {reason}");
}

/// Is this program on the path? Otherwise the reason to skip.
pub(crate) fn program(name: &str) -> Result<(), String> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let found = std::env::split_paths(&path).any(|directory| directory.join(name).exists());
    if found { Ok(()) } else { Err(format!("no {name} here; scripts/setup.sh installs it")) }
}

pub(crate) mod guest {
    //! A real md kernel: `tests/md/run-md.sh`.

    use super::{Command, Duration, Path, PathBuf, Run, base, fs, program};

    /// Many arrays in one boot, on a slow machine.
    const LIMIT: Duration = Duration::from_secs(320);
    /// The status of a guest that did not end in time.
    const LATE: i32 = 124;

    fn runner() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/run-md.sh")
    }

    /// Can a guest run here? Otherwise the reason to skip.
    pub(crate) fn available() -> Result<(), String> {
        ["linux.uml", "mdadm", "busybox", "modprobe", "cc"].into_iter().try_for_each(program)
    }

    /// Run a bash script under the md kernel.
    pub(crate) fn run(name: &str, script: &str) -> Run {
        with_disks(name, script, &[])
    }

    /// Run a bash script under the md kernel, and once more where that kernel hangs: its md does,
    /// once in some hundred runs, with what it wrote itself too. The script is asked for each time,
    /// with what the first run has printed. What an array makes md wait for, it does twice.
    pub(crate) fn run_patiently(name: &str, mut script: impl FnMut(&str) -> String) -> Run {
        let first = run(name, &script(""));
        if first.status.code() != Some(LATE) {
            return first;
        }
        println!("{name}: the guest hung and is started once more: {first}");
        let mut second = run(name, &script(&first.stdout));
        second.stdout.insert_str(0, &first.stdout);
        second
    }

    /// The same as `run`, with these images as disks.
    pub(crate) fn with_disks(name: &str, script: &str, images: &[PathBuf]) -> Run {
        let path = base().join(format!("{name}.sh"));
        fs::create_dir_all(base()).expect("a directory");
        fs::write(&path, script).expect("a script");
        let mut command = Command::new(runner());
        command.args(["-t", &(LIMIT.as_secs() - 20).to_string()]).arg(path).args(images);
        Run::within(LIMIT, &mut command)
    }
}

pub(crate) mod kernel {
    //! A newer kernel than the machine may have: `tests/kernel/run-kernel.sh`.

    use super::{Command, Duration, Path, Run, base, fs, program};

    /// In software, on a machine that does much else.
    const LIMIT: Duration = Duration::from_secs(900);
    /// The status when there is no guest to be had.
    pub(crate) const CANNOT: i32 = 125;

    /// Can a guest run here? Otherwise the reason to skip.
    pub(crate) fn available() -> Result<(), String> {
        let tools = ["qemu-system-x86_64", "busybox", "cpio", "modprobe", "xz", "fio", "mkfs.ext4"];
        tools.into_iter().try_for_each(program)
    }

    /// Run a bash script under that kernel.
    pub(crate) fn run(name: &str, script: &str) -> Run {
        run_with(name, script, &[])
    }

    /// The same, with what is served on a vhost-user socket as a disk.
    pub(crate) fn with_disk(name: &str, script: &str, socket: &Path) -> Run {
        run_with(name, script, &["-d", socket.to_str().expect("a path of words")])
    }

    fn run_with(name: &str, script: &str, arguments: &[&str]) -> Run {
        let path = base().join(format!("{name}.sh"));
        fs::create_dir_all(base()).expect("a directory");
        fs::write(&path, script).expect("a script");
        let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/run-kernel.sh");
        let limit = (LIMIT.as_secs() - 20).to_string();
        Run::within(LIMIT, Command::new(runner).args(arguments).args(["-t", &limit]).arg(path))
    }
}

/// Fail with all findings at once.
pub(crate) fn report(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// The value, or the message of the assertion that failed on the way to it.
pub(crate) fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}
