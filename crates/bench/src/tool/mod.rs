//! Programs that measure or set things up: found, run, and what they said last when they fail.

pub(crate) mod bonnie;
pub(crate) mod dd;
pub(crate) mod fio;
pub(crate) mod mdstat;
pub(crate) mod qemu_img;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::failure::{About, Failure};

/// Directories in which Debian puts what only root needs, which is not on everybody's path.
const MORE_PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    name: String,
    path: PathBuf,
}

impl Tool {
    /// Finds it, or says which package of Debian has it.
    pub fn find(name: &str, package: &str) -> Result<Self, Failure> {
        let missing = || {
            let next = format!("install the package {package}");
            Failure::gap(name, "it is not installed", next)
        };
        let path = find(name).ok_or_else(missing)?;
        Ok(Self { name: name.to_owned(), path })
    }

    /// The command `braid`: the one that was built or installed with this program, or one on the
    /// path.
    pub fn of_braid() -> Result<Self, Failure> {
        let path = braid_cli::beside_this("braid").or_else(|| find("braid"));
        let missing = || Failure::refused("braid", "it is not installed", "install it first");
        Ok(Self::at("braid", path.ok_or_else(missing)?))
    }

    /// One whose place is known.
    pub fn at(name: &str, path: PathBuf) -> Self {
        Self { name: name.to_owned(), path }
    }

    /// Path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that ends with the thread that starts it, whatever ends that. To be started from
    /// the main thread.
    pub fn command(&self) -> Command {
        let mut command = match find("setpriv") {
            Some(tied) => {
                let mut command = Command::new(tied);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Runs the tool to its end and notes the command line. Returns its output on success.
    pub fn run<I, S>(&self, args: I, note: &mut Note) -> Result<Output, Failure>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let args: Vec<String> = args.into_iter().map(|word| word.as_ref().to_owned()).collect();
        note.commands.push(typed(&self.name, &args));
        self.output(&args)
    }

    /// Runs it like [`Tool::run`], without noting it.
    pub fn output<S: AsRef<str>>(&self, args: &[S]) -> Result<Output, Failure> {
        let mut command = self.command();
        command.args(args.iter().map(AsRef::as_ref));
        let output = command.output().about(&self.name, "check that it can be run")?;
        if output.status.success() {
            return Ok(output);
        }
        Err(Failure::refused(&self.name, last_words(&output), "see what it works on"))
    }

    /// Asks for its version: its first line, or the one that is named so (bonnie++ tells it at the
    /// end of its usage only).
    pub fn version(&self, word: &str) -> Option<String> {
        let output = Command::new(&self.path).arg(word).stdin(Stdio::null()).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let named = text.lines().find_map(|line| line.strip_prefix("Version:"));
        let line = named.or_else(|| text.lines().find(|line| !line.trim().is_empty()))?;
        Some(line.trim().to_owned())
    }
}

/// The record of a run of a job: the commands, and what they said, as files.
#[derive(Debug, Default)]
pub struct Note {
    /// Commands as they were typed.
    pub commands: Vec<String>,
    /// Name (`fio.json`, `dd.txt`: the same in every run of the job) and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Directory in which tools may write; gone afterwards.
    pub scratch: PathBuf,
}

impl Note {
    /// Notes what a tool said.
    pub fn file(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.push((name.to_owned(), content.into()));
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(MORE_PLACES.iter().map(PathBuf::from));
    places.map(|place| place.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The last line that a program said before it failed, on stderr rather than on stdout.
fn last_words(output: &Output) -> String {
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.lines().rfind(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
    };
    let words = last(&output.stderr).or_else(|| last(&output.stdout));
    words.map_or_else(|| output.status.to_string(), |words| format!("it says '{words}'"))
}

/// A command line as it would be typed.
pub(crate) fn typed(name: &str, args: &[String]) -> String {
    let words = args.iter().map(|word| braid_cli::shell_word(word));
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_says_why_and_what_is_missing_says_where_it_comes_from() {
        let shell = Tool::find("sh", "dash").expect("a shell");
        let mut note = Note::default();
        let said = shell.run(["-c", "echo fine"], &mut note).expect("it runs");
        assert_eq!(said.stdout, b"fine\n");
        assert_eq!(note.commands, ["sh -c 'echo fine'"]);
        let failed = shell.output(&["-c", "echo one; echo two >&2; exit 3"]).expect_err("status 3");
        assert_eq!(failed.why.reason, "it says 'two'");
        let gap = Tool::find("no-such-program", "some-package").expect_err("not there");
        assert!(gap.ends == crate::Ends::Part && gap.why.next.advice.contains("some-package"));
    }
}
