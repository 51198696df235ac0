//! Files, programs, and what is done where a program is not installed.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use braid_rescue::Image;
use braid_rescue::image::PAGE_BYTES;

/// A folder of a test, empty at its beginning, gone at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rescue-{test}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An empty file of this length.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file as an image. It insists on what readers are promised.
pub(crate) struct FileImage {
    file: File,
    bytes: u64,
}

impl FileImage {
    pub(crate) fn open(path: &Path) -> Self {
        let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let bytes = file.metadata().expect("metadata").len();
        Self { file, bytes }
    }
}

impl Image for FileImage {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        let end = offset_bytes + into.len() as u64;
        assert!(offset_bytes.is_multiple_of(PAGE_BYTES) && !into.is_empty());
        assert!(end.is_multiple_of(PAGE_BYTES) && end <= self.bytes || end == self.bytes);
        self.file.read_exact_at(into, offset_bytes).map_err(|error| error.to_string())
    }
}

/// Writes into a file.
pub(crate) fn write_at(path: &Path, offset_bytes: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("a file to write to");
    file.write_all_at(bytes, offset_bytes).expect("a write");
}

/// Are these programs there? If not, the test is skipped, which fails in CI.
pub(crate) fn have(test: &str, programs: &[&str]) -> bool {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let is_there =
        |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    let Some(missing) = programs.iter().find(|name| !is_there(name)) else { return true };
    // Past the test harness, which swallows what `eprintln!` prints.
    let reason = format!("no {missing} here; scripts/setup.sh installs it");
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    assert!(std::env::var_os("CI").is_none(), "{test} must run in CI: {reason}");
    false
}

/// Runs a command line with these lines as its input, and answers with what it printed.
pub(crate) fn run(folder: &Folder, line: &str, input: &str) -> String {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut child = Command::new(program)
        .args(words)
        .current_dir(&folder.0)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    // A program that wants no input may be gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{line}: {}: {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}
