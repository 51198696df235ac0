//! Common parts of the tests of the command: a directory of members, and running `braid` there.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod browser;
pub(crate) mod export;
pub(crate) mod filled;
pub(crate) mod nodes;
pub(crate) mod stopped;
pub(crate) mod terminal;
pub(crate) mod typed;

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use braid_array::format::{Superblock, Version};
use braid_array::name::stored_name;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The program `braid`. Tests of another package find it beside their own program.
pub(crate) fn program() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_braid").or(option_env!("CARGO_BIN_EXE_braid-bench"));
    let path = Path::new(built.expect("a program of this workspace")).with_file_name("braid");
    assert!(path.exists(), "{} is not built: cargo build -p braid-cli", path.display());
    path
}

/// A program at `to` that is the same as `from`. Another process writes it: a file that this one
/// has open for writing is open in each child that another test is about to start, too, and cannot
/// be run until that child is (ETXTBSY).
pub(crate) fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "0755"]).args([from, to]).status();
    assert!(status.expect("install(1)").success(), "{} is not there", to.display());
}

/// A program at `to` that a shell reads.
pub(crate) fn install_script(text: &str, to: &Path) {
    let written = to.with_extension("sh");
    std::fs::write(&written, text).expect("a script");
    install(&written, to);
}

/// A directory in which arrays are made and served; all of them are stopped when it goes, and so
/// are nodes in the background.
pub(crate) struct Lab {
    dir: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::with_prefix("braid-cli").expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `count` empty files of `mib` MiB.
    pub(crate) fn members(&self, prefix: &str, count: usize, mib: u64) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = (0..count).map(|i| self.path(&format!("{prefix}{i}"))).collect();
        for path in &paths {
            File::create(path).and_then(|file| file.set_len(mib << 20)).expect("a member");
        }
        paths
    }

    /// The members of the mirrors `left` and `right`, which make `top` of this level.
    pub(crate) fn nested(&self, level: &str) -> Vec<PathBuf> {
        let members = self.members("m", 4, 16);
        for (name, pair) in [("left", &members[..2]), ("right", &members[2..])] {
            self.ok(&format!("create {name} --level 1 --raid-devices 2 --assume-clean"), pair);
        }
        let sectors = |member: &PathBuf, field: &str| {
            let text = self.ok("examine --json", std::slice::from_ref(member));
            let examined: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            examined[0][field].as_u64().expect("sectors") * 512
        };
        // The superblocks of the outer array go into the mirrors: both halves hold the same bytes.
        let halves = self.members("h", 2, 0);
        for half in &halves {
            let bytes = sectors(&members[0], "avail_dev_size_sectors");
            File::create(half).and_then(|file| file.set_len(bytes)).expect("a half");
        }
        self.ok(&format!("create top --level {level} --raid-devices 2"), &halves);
        for (half, pair) in halves.iter().zip(members.chunks(2)) {
            let content = std::fs::read(half).expect("a half");
            for member in pair {
                let file = File::options().write(true).open(member).expect("a member");
                file.write_all_at(&content, sectors(member, "data_offset_sectors")).expect("room");
            }
        }
        members
    }

    /// The command, in this directory, with a run directory of its own.
    pub(crate) fn braid(&self) -> Command {
        self.braid_at(&program())
    }

    /// Returns a command for the program at this path.
    pub(crate) fn braid_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("BRAID_RUN_DIR", self.path("run")).current_dir(self.dir.path());
        // Arrays of the machine are none of the lab's.
        command.env("BRAID_CONFIG", self.path("arrays.toml"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs it with these words, then these paths.
    pub(crate) fn run(&self, words: &str, paths: &[PathBuf]) -> Output {
        self.braid().args(words.split_whitespace()).args(paths).output().expect("braid runs")
    }

    /// Runs a command, which must succeed. Returns its output.
    pub(crate) fn ok(&self, words: &str, paths: &[PathBuf]) -> Vec<u8> {
        let output = self.run(words, paths);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "braid {words}: {:?}: {stderr}", output.status);
        output.stdout
    }

    pub(crate) fn ok_text(&self, words: &str, paths: &[PathBuf]) -> String {
        String::from_utf8(self.ok(words, paths)).expect("text")
    }

    /// Returns the output of a command that succeeds or reports a problem.
    pub(crate) fn told(&self, words: &str, paths: &[PathBuf]) -> String {
        let output = self.run(words, paths);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "braid {words}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs it; it must be refused with this exit status and one line that names a next step, and
    /// leave `unchanged` as they are. Returns the line.
    pub(crate) fn refused(
        &self,
        code: i32,
        words: &str,
        paths: &[PathBuf],
        unchanged: &[PathBuf],
    ) -> String {
        let fingerprints = || unchanged.iter().map(|path| fingerprint(path)).collect::<Vec<_>>();
        let mut before = fingerprints();
        let mut output = self.run(words, paths);
        let mut after = fingerprints();
        if before != after {
            // An array that runs may have noted just then that nothing is written any more. It has
            // nothing to note when it is asked once more.
            before = fingerprints();
            output = self.run(words, paths);
            after = fingerprints();
        }
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "braid {words}: {line}");
        assert!(line.starts_with("braid: ") && line.contains("; "), "braid {words}: {line}");
        assert_eq!(line.lines().count(), 1, "braid {words}: {line}");
        assert!(output.stdout.is_empty(), "braid {words} printed something");
        assert_eq!(before, after, "braid {words} changed a member");
        line
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.path("run")).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if let Some(name) = name.strip_suffix(".sock") {
                // A test that failed has said so already.
                let _ = self.run(&format!("stop {name} --force"), &[]);
            } else if name.ends_with(".pid")
                && let Ok(pid) = std::fs::read_to_string(entry.path())
                && let Some(pid) = pid.trim_end().parse().ok().and_then(Pid::from_raw)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// A minute of a machine with nothing else to do, and more where its processors are shared: what
/// takes longer has no end.
pub(crate) fn patience() -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Duration::from_secs(60).mul_f64((load / processors as f64).clamp(1.0, 8.0))
}

/// Waits until something is so, but not for ever. What is asked is mostly the command: who has
/// waited for long asks less often, or would keep a processor busy with that.
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    let [shortest, longest] = [5, 100].map(Duration::from_millis);
    wait(what, condition, |waited| (waited / 8).clamp(shortest, longest));
}

/// Waits for a moment, which passes, and so is looked for all the time.
pub(crate) fn until_moment(what: &str, condition: impl FnMut() -> bool) {
    wait(what, condition, |_| Duration::ZERO);
}

/// Waits until something is so, with pauses by the time that it has waited.
fn wait(what: &str, mut condition: impl FnMut() -> bool, pause: impl Fn(Duration) -> Duration) {
    let begun = Instant::now();
    while !condition() {
        let waited = begun.elapsed();
        assert!(waited < patience(), "waited {} s in vain: {what}", waited.as_secs());
        std::thread::sleep(pause(waited));
    }
}

/// Gives an array of these members a name that md's may have, and `create` refuses.
pub(crate) fn name_as_md_may(members: &[PathBuf], name: &str) {
    for member in members {
        let file = File::options().read(true).write(true).open(member).expect("a member");
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, 4096).expect("a superblock");
        let mut superblock = Superblock::decode(Version::V1_2, 8, &bytes).expect("a superblock");
        let old = superblock.name();
        let host = old.split(':').next().unwrap_or_default();
        superblock.set_name = Superblock::name_field(&stored_name(host, name));
        file.write_all_at(&superblock.encode(), 4096).expect("room");
    }
}

/// Returns a hash of all that a file holds. Memory for the whole of it would take longer than that,
/// and to read zeroes where nothing was ever written.
pub(crate) fn fingerprint(path: &Path) -> u64 {
    const BLOCK: u64 = 1 << 18;
    static ZEROES: [u8; BLOCK as usize] = [0; BLOCK as usize];
    let mut file = File::open(path).expect("a member");
    let end = file.seek(SeekFrom::End(0)).expect("an end");
    let mut bytes = vec![0; ZEROES.len()];
    let mut hasher = DefaultHasher::new();
    let mut offset = 0;
    while offset < end {
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => offset = data / BLOCK * BLOCK,
            Err(Errno::NXIO) => break,
            // A device, of which nobody knows.
            Err(_) => {}
        }
        let part = &mut bytes[..BLOCK.min(end - offset) as usize];
        file.read_exact_at(part, offset).expect("a readable member");
        if *part != ZEROES[..part.len()] {
            // To hash all bytes themselves takes ten times as long.
            (offset, crc32c::crc32c(part)).hash(&mut hasher);
        }
        offset += BLOCK;
    }
    end.hash(&mut hasher);
    hasher.finish()
}

/// A test that cannot run says so, and fails where everything is meant to be there.
pub(crate) fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test} cannot run: {reason}");
    eprintln!("SKIPPED {test}: {reason}");
}
